"""The code of a worker process: fetch samples by index, collate and send them.

# Note [Workers]
1. A worker has one connection. It gets (epoch, task, whether its state is wanted) and answers
   (epoch, kind, content, state), pickled in its own thread, so that a batch that cannot be pickled
   is an ordinary error. None ends it; so does the end of its parent.
2. A task is a list of indices, one index, or a request for the next batch of an iterable dataset.
   `Begin` starts a new epoch in a persistent worker, or continues one (Note [Resume]); it has an
   answer where the state is wanted. `Report` asks for the state alone.
3. Random streams begin at the loader's seed plus the worker's number, in Python, NumPy and here.
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rushlight.devices.shared.registry import pool_of
from rushlight.ops.random.random import manual_seed
from rushlight.random import get_rng_state_all, set_rng_state_all
from rushlight.utils.data.collate import default_collate
from rushlight.utils.data.dataset import Rows
from rushlight.utils.data.position import Position, State, has_state

DONE, MADE, FAILED = "done", "made", "failed"
_PATIENCE = 5.0  # seconds between checks whether the parent is alive


@dataclass(frozen=True)
class Worker:
    """A worker process: its number, the number of workers, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


@dataclass(frozen=True)
class Begin:
    """The beginning of a pass in a worker: the loader's seed, and the state to continue from."""

    seed: int
    state: State | None


class Report:
    """A request for a worker's state alone."""


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
        self.rest = Position(dataset, [dataset]) if iterable else None

    def begin(self, state: State | None = None) -> None:
        """Begin to read, or continue after a state."""
        if state is not None:
            self.load_state_dict(state)
        elif self.rest is not None:
            self.rest.begin()

    def fetch(self, task: Any) -> Any:
        """The batch of a task; StopIteration at the end."""
        if self.rest is not None:
            return self._next(self.rest)
        if not self.batched:
            return self.collate(self.dataset[task])
        many = getattr(self.dataset, "__getitems__", None)
        batch = many(task) if callable(many) else [self.dataset[i] for i in task]
        if isinstance(batch, Rows) and self.collate is not default_collate:
            batch = list(batch)  # a user's function gets a list
        return self.collate(batch)

    def _next(self, rest: Position) -> Any:
        if self.size is None:
            return self.collate(next(rest))
        batch = rest.take(self.size)
        if not batch or (self.drop and len(batch) < self.size):
            raise StopIteration
        return self.collate(batch)

    def state_dict(self) -> State:
        """The position in an iterable dataset, or the state of another that has one."""
        if self.rest is not None:
            return self.rest.state_dict()
        return copy.deepcopy(self.dataset.state_dict()) if has_state(self.dataset) else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if self.rest is not None:
            self.rest.load_state_dict(state_dict)
        elif has_state(self.dataset):
            self.dataset.load_state_dict(state_dict)


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


def _state_of(fetcher: Fetcher | None) -> bytes:
    """What continues after the batch just made: streams and the dataset's state, pickled."""
    if fetcher is None:
        return b""
    kept = {"streams": get_rng_state_all(), "fetcher": fetcher.state_dict()}
    return pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)


def _pickled(epoch: int, kind: str, content: Any, fetcher: Fetcher | None, wanted: bool) -> bytes:
    try:
        state = _state_of(fetcher) if wanted else b""
        return pickle.dumps((epoch, kind, content, state), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        told = f"a batch or a state cannot be sent from a worker:\n{text}"
        return pickle.dumps((epoch, FAILED, (RuntimeError, told), b""))


def _begun(make: Callable[[], Fetcher], number: int, begin: Begin | None) -> Fetcher:
    """What makes batches; `begin` seeds its streams, or continues after a state."""
    if begin is not None:
        seed_everything(begin.seed + number)
    fetcher = make()
    if begin is None or begin.state is None:
        fetcher.begin()
    else:
        fetcher.begin(begin.state["fetcher"])
        set_rng_state_all(begin.state["streams"])
    return fetcher


def work(
    connection: Any,
    parent: int,
    who: Worker,
    make: Callable[[], Fetcher],
    init: Callable[[int], Any] | None,
    first: Begin | None,
) -> None:
    """The main loop of a worker. See Note [Workers]."""
    pool_of("cpu").device.set_num_threads(1)  # type: ignore[attr-defined]
    seed_everything(who.seed)
    _this[:] = [who]
    fetcher: Fetcher | None = None
    problem: Exception | None = None
    try:
        if init is not None:
            init(who.id)
        fetcher = _begun(make, who.id, first)
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
            epoch, task, wanted = message
            if isinstance(task, Begin):
                fetcher, problem = None, None
                try:
                    fetcher = _begun(make, who.id, task)
                except Exception as error:
                    problem = error
                if not wanted:
                    continue
            kind, content = DONE, None
            if not isinstance(task, (Begin, Report)):
                kind, content = _answer(fetcher, problem, task)
            connection.send_bytes(_pickled(epoch, kind, content, fetcher, wanted))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
