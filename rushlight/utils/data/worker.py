"""The code of a worker process: fetch samples by index, collate and send them.

# Note [Workers]
1. A worker has one connection. It gets (epoch, task) and answers (epoch, kind, content), pickled in
   its own thread, so that a batch that cannot be pickled is an ordinary error. None ends it; so
   does the end of its parent.
2. A task is a list of indices, one index, or a request for the next batch of an iterable dataset.
   RESUME with a seed begins a new epoch in a persistent worker.
3. Random streams begin at the loader's seed plus the worker's number, in Python, NumPy and here.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rushlight.devices.shared.registry import pool_of
from rushlight.ops.random.random import manual_seed

DONE, MADE, FAILED, RESUME = "done", "made", "failed", "resume"
_PATIENCE = 5.0  # seconds between checks whether the parent is alive


@dataclass(frozen=True)
class Worker:
    """A worker process: its number, the number of workers, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_this: list[Worker] = []


def _this_worker() -> Worker | None:
    """The WorkerInfo of this process; None in the main process."""
    return _this[0] if _this else None


get_worker_info = _this_worker


class Fetcher:
    """Makes batches: by indices, or the next ones of an iterable dataset."""

    def __init__(
        self,
        dataset: Any,
        iterable: bool,
        batched: bool,
        collate: Callable[[Any], Any],
        size: int | None,
        drop: bool,
    ) -> None:
        self.dataset, self.batched, self.collate, self.size, self.drop = (
            dataset,
            batched,
            collate,
            size,
            drop,
        )
        self.rest = iter(dataset) if iterable else None

    def fetch(self, task: Any) -> Any:
        """The batch of a task; StopIteration at the end."""
        if self.rest is not None:
            return self._next()
        if not self.batched:
            return self.collate(self.dataset[task])
        many = getattr(self.dataset, "__getitems__", None)
        return self.collate(many(task) if callable(many) else [self.dataset[i] for i in task])

    def _next(self) -> Any:
        assert self.rest is not None
        if self.size is None:
            return self.collate(next(self.rest))
        batch = list(itertools.islice(self.rest, self.size))
        if not batch or (self.drop and len(batch) < self.size):
            raise StopIteration
        return self.collate(batch)


def seed_everything(seed: int) -> None:
    random.seed(seed)
    manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


def _answer(fetcher: Fetcher | None, problem: BaseException | None, task: Any) -> tuple[str, Any]:
    try:
        if problem is not None:
            raise problem
        assert fetcher is not None
        return MADE, fetcher.fetch(task)
    except StopIteration:
        return DONE, None
    except Exception as error:
        return FAILED, (type(error), "".join(traceback.format_exception(error)))


def _pickled(epoch: int, kind: str, content: Any) -> bytes:
    try:
        return pickle.dumps((epoch, kind, content), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        return pickle.dumps(
            (epoch, FAILED, (RuntimeError, f"a batch cannot be sent from a worker:\n{text}"))
        )


def work(
    connection: Any,
    parent: int,
    who: Worker,
    make: Callable[[], Fetcher],
    begin: Callable[[int], Any] | None,
) -> None:
    """The main loop of a worker. See Note [Workers]."""
    pool_of("cpu").device.set_num_threads(1)  # type: ignore[attr-defined]
    seed_everything(who.seed)
    _this[:] = [who]
    fetcher, problem = None, None
    try:
        if begin is not None:
            begin(who.id)
        fetcher = make()
    except Exception as error:
        problem = error
    try:
        while True:
            while not connection.poll(_PATIENCE):
                if os.getppid() != parent:
                    return
            message = connection.recv()
            if message is None:
                return
            epoch, task = message
            if isinstance(task, tuple) and task[:1] == (RESUME,):
                seed_everything(task[1] + who.id)
                fetcher, problem = make(), None
                continue
            connection.send_bytes(_pickled(epoch, *_answer(fetcher, problem, task)))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
