"""DataLoader: batches of a dataset, made in this process or ahead by worker processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from rushlight.ops.random.random import Generator
from rushlight.utils.data.collate import default_collate, default_convert
from rushlight.utils.data.dataset import Dataset, IterableDataset
from rushlight.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, drawn_seed
from rushlight.utils.data.worker import DONE, FAILED, RESUME, Fetcher, Worker, get_worker_info, work

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]


_FIXED = frozenset(
    ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
T = TypeVar("T", covariant=True)


class DataLoader(Generic[T]):
    """Batches of a dataset: their order, size, collating, and the number of worker processes.

    `pin_memory` is accepted for compatibility: batches are in ordinary memory.
    """

    def __init__(
        self,
        dataset: Dataset[T] | Sequence[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset: Any = dataset
        samples: Any = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.iterable = isinstance(dataset, IterableDataset)
        if batch_sampler is not None and (
            batch_size != 1 or shuffle or sampler is not None or drop_last
        ):
            raise ValueError(
                "DataLoader: batch_sampler goes without batch_size, shuffle, sampler and drop_last"
            )
        if batch_sampler is None and batch_size is None and drop_last:
            raise ValueError(
                "DataLoader: without batches (batch_size=None) there is no last one to drop"
            )
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader: an IterableDataset has no order to choose: pass no shuffle and no "
                "sampler"
            )
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler goes without shuffle")
        if sampler is None and not self.iterable:
            sampler = (
                RandomSampler(samples, generator=generator)
                if shuffle
                else SequentialSampler(samples)
            )
        if batch_size is not None and batch_sampler is None and not self.iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = (
            batch_size if batch_sampler is None or isinstance(batch_sampler, BatchSampler) else None
        )
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        whole = batch_sampler is not None or (self.iterable and batch_size is not None)
        self.collate_fn = collate_fn or (default_collate if whole else default_convert)
        self._kept: _FromWorkers | None = None

    @property
    def _tasks(self) -> Any:
        """The tasks of one pass: lists of indices, indices, or requests for the next batch."""
        if self.iterable:
            return itertools.repeat(None)
        return self.batch_sampler if self.batch_sampler is not None else self.sampler

    def _make_fetcher(self) -> Callable[[], Fetcher]:
        batched = self.batch_sampler is not None
        return partial(
            Fetcher,
            self.dataset,
            self.iterable,
            batched,
            self.collate_fn,
            self.batch_size,
            self.drop_last,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_kept" in self.__dict__:
            raise ValueError(f"DataLoader: {name} is said when the loader is made; make another")
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.num_workers:
            return _Alone(self)
        if not self.persistent_workers:
            return _FromWorkers(self)
        if self._kept is None:
            self._kept = _FromWorkers(self)
        else:
            self._kept.begin()
        return self._kept

    def __len__(self) -> int:
        if not self.iterable:
            return len(self._tasks)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _check_workers(
    num_workers: int, timeout: float, prefetch: int | None, persistent: bool
) -> None:
    if num_workers < 0 or timeout < 0:
        raise ValueError(
            f"DataLoader: num_workers and timeout must not be negative, got {num_workers} and "
            f"{timeout}"
        )
    if num_workers == 0 and (prefetch is not None or persistent or timeout):
        raise ValueError(
            "DataLoader: prefetch_factor, persistent_workers and timeout go with num_workers above "
            "0"
        )
    if prefetch is not None and prefetch < 1:
        raise ValueError(f"DataLoader: prefetch_factor must be positive, got {prefetch}")


class _Alone:
    """A pass over a dataset in this process; after an error it continues with the next batch."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.fetcher = loader._make_fetcher()()
        self.tasks = iter(loader._tasks)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        return self.fetcher.fetch(next(self.tasks))


class _FromWorkers:
    """A pass over a dataset by worker processes; see Note [Workers].

    Tasks go round among the workers and batches are taken in the order of the tasks. A thread reads
    the connections, so that workers can prefetch as many batches as are requested.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.epoch = -1
        self.closed = False
        self.arrived = threading.Condition()
        self.answers: list[deque[bytes | None]] = []
        self.processes: list[Any] = []
        self.connections: list[Any] = []
        self.reader: threading.Thread | None = None
        self.stop, self.stopped = multiprocessing.Pipe()
        seed = drawn_seed(loader.generator)
        try:
            for number in range(loader.num_workers):
                self._start(number, seed)
        except BaseException:
            self.close()
            raise
        args = (self.connections, self.answers, self.arrived, self.stopped)
        self.reader = threading.Thread(target=_read, args=args, daemon=True)
        self.reader.start()
        self.begin(first=True)

    def _start(self, number: int, seed: int) -> None:
        loader = self.loader
        given = loader.multiprocessing_context
        # By default fork, where the system has it: datasets need not be picklable, scripts need no
        # guard.
        method = "fork" if sys.platform == "linux" else None
        context: Any = (
            multiprocessing.get_context(given if isinstance(given, str) else method)
            if (given is None or isinstance(given, str))
            else given
        )
        mine, theirs = context.Pipe()
        who = Worker(number, loader.num_workers, seed + number, loader.dataset)
        args = (theirs, os.getpid(), who, loader._make_fetcher(), loader.worker_init_fn)
        process = context.Process(target=work, args=args, daemon=True)
        process.start()
        theirs.close()
        self.processes.append(process)
        self.connections.append(mine)
        self.answers.append(deque())

    def begin(self, first: bool = False) -> None:
        """Start a pass; answers to an older one are ignored."""
        self.epoch += 1
        self.tasks = iter(self.loader._tasks)
        self.waiting: deque[int] = deque()  # the worker of each open task, in order
        self.active = list(range(len(self.processes)))
        self.turn = 0
        if not first:
            seed = drawn_seed(self.loader.generator)
            for connection in self.connections:
                connection.send((self.epoch, (RESUME, seed)))
        for _ in range((self.loader.prefetch_factor or 2) * len(self.processes)):
            self._ask()

    def _ask(self) -> None:
        """Give the next worker in turn the next task, if there is one of each."""
        if not self.active:
            return
        try:
            task = next(self.tasks)
        except StopIteration:
            return
        worker = self.active[self.turn % len(self.active)]
        self.turn += 1
        try:
            self.connections[worker].send((self.epoch, task))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died(worker) from error
        self.waiting.append(worker)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        while self.waiting:
            worker = self.waiting.popleft()
            kind, content = self._answer(worker)
            if kind == DONE:
                if worker in self.active:
                    self.active.remove(worker)
                continue
            self._ask()
            if kind == FAILED:
                raise _as_error(worker, *content)
            return content
        if not self.loader.persistent_workers:
            self.close()
        raise StopIteration

    def _answer(self, worker: int) -> tuple[str, Any]:
        limit = self.loader.timeout or None
        while True:
            with self.arrived:
                if not self.arrived.wait_for(lambda: self.answers[worker], limit):
                    raise RuntimeError(
                        f"DataLoader: worker {worker} made no batch in {limit} seconds (timeout)"
                    )
                raw = self.answers[worker].popleft()
            if raw is None:
                self.answers[worker].append(None)
                raise self._died(worker)
            epoch, kind, content = pickle.loads(raw)
            if epoch == self.epoch:
                return kind, content

    def _died(self, worker: int) -> RuntimeError:
        process = self.processes[worker]
        process.join(1)
        return RuntimeError(
            f"DataLoader: worker {worker} (pid {process.pid}) ended with exit code "
            f"{process.exitcode}"
        )

    def close(self) -> None:
        """End the workers."""
        if self.closed:
            return
        self.closed = True
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send(None)
        for process in self.processes:
            process.join(2)
            if process.is_alive():
                process.terminate()
                process.join()
        self._end_reader()

    def _end_reader(self) -> None:
        """Have the reader close the connections, and wait for it.

        The system gives a closed connection's number to the next one opened, and a reader still
        running would read that one's bytes.
        """
        if self.reader is None:
            _close([*self.connections, self.stop, self.stopped])
            return
        self.stop.send_bytes(b"")
        # At the end of the process threads do not run; and the collector may have called this in
        # the reader.
        if not sys.is_finalizing() and self.reader is not threading.current_thread():
            self.reader.join()
        self.stop.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _read(
    connections: list[Any],
    answers: list[deque[bytes | None]],
    arrived: threading.Condition,
    stopped: Any,
) -> None:
    """Receive messages of workers until `stopped` is readable, then close all.

    None means a worker's end.
    """
    numbers = {connection: i for i, connection in enumerate(connections)}
    while True:
        ready = multiprocessing.connection.wait([*numbers, stopped])
        if stopped in ready:
            break
        for connection in ready:
            raw: bytes | None = None
            with contextlib.suppress(EOFError, OSError):
                raw = connection.recv_bytes()  # type: ignore[union-attr]
            with arrived:
                answers[numbers[connection]].append(raw)
                arrived.notify_all()
            if raw is None:
                del numbers[connection]
    _close([*connections, stopped])


def _close(connections: list[Any]) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.close()


def _as_error(worker: int, kind: type[BaseException], text: str) -> BaseException:
    """The error of a worker, of its own class where that takes a text."""
    said = f"in worker {worker} of a DataLoader:\n{text}"
    try:
        return kind(said)
    except TypeError:
        return RuntimeError(said)
