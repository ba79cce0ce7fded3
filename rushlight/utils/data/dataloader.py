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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from rushlight.ops.random.random import Generator
from rushlight.utils.data.collate import default_collate, default_convert
from rushlight.utils.data.dataset import Dataset, IterableDataset
from rushlight.utils.data.pinning import pin_memory
from rushlight.utils.data.position import (
    Position,
    State,
    has_state,
    samplers_of,
    set_words,
    words_of,
)
from rushlight.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, drawn_seed
from rushlight.utils.data.worker import (
    DONE,
    FAILED,
    Begin,
    Fetcher,
    Report,
    Worker,
    get_worker_info,
    work,
)

__all__ = ["DataLoader", "StatefulDataLoader", "default_collate", "default_convert"]
__all__ += ["get_worker_info"]


_FIXED = frozenset(
    ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
T = TypeVar("T", covariant=True)


class DataLoader(Generic[T]):
    """Batches of a dataset: their order, size, collating, and the number of worker processes.

    With `pin_memory` the tensors of a batch are in pinned memory, where a device copies from it
    beside its work (`Tensor.pin_memory`); elsewhere it has no effect.

    `state_dict()` is the position after the last batch given, also inside an epoch; another loader
    made alike continues after `load_state_dict`, with the same bits. Workers send their state with
    every `snapshot_every_n_steps`-th batch; the batches since, without snapshots all of the epoch,
    are made again. See Note [Resume].
    """

    _snapshots: int | None = None  # the default of snapshot_every_n_steps

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
        snapshot_every_n_steps: int | None = None,
    ) -> None:
        _check_workers(num_workers, timeout, persistent_workers, prefetch_factor)
        _check_positive("prefetch_factor", prefetch_factor)
        _check_positive("snapshot_every_n_steps", snapshot_every_n_steps)
        if shuffle is not None and hasattr(dataset, "_shuffled"):
            # A pipeline has its own order, and says so: the loader reads what it gives.
            dataset, shuffle = dataset._shuffled(shuffle), None
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
        self.snapshot_every_n_steps = snapshot_every_n_steps or self._snapshots
        self.iterable = isinstance(dataset, IterableDataset)
        _check_order(self.iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
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
        self._latest: _Reading | _Marks | None = None  # of the latest pass
        self._loaded: State | None = None
        self._kept: _FromWorkers | None = None

    @property
    def _tasks(self) -> Any:
        """The tasks of one pass: lists of indices, indices, or requests for the next batch."""
        if self.iterable:
            return itertools.repeat(None)
        return self.batch_sampler if self.batch_sampler is not None else self.sampler

    # ---- what libraries that wrap loaders read ----

    @property
    def _auto_collation(self) -> bool:
        """Whether a batch sampler gives lists of indices."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _dataset_kind(self) -> int:
        return int(self.iterable)

    _IterableDataset_len_called: int | None = None

    def _get_iterator(self) -> Iterator[Any]:
        return iter(self)

    def check_worker_number_rationality(self) -> None:
        """Has no effect: more workers than cores are slow and right."""

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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    def __iter__(self) -> Iterator[Any]:
        state, self._loaded = self._loaded, None
        if state is not None:
            self._restore_generator(state)
            if state["pass"] is None:
                state = None
        if not self.num_workers:
            return self._alone(state)
        return self._from_workers(state)

    def _alone(self, state: State | None) -> Iterator[Any]:
        made = _Alone(self, None if state is None else state["pass"])
        if state is not None and state["ended"]:
            made = _Alone(self, None)
        self._latest = made.reading
        return made

    def _from_workers(self, state: State | None) -> Iterator[Any]:
        ended = state is not None and state["ended"]
        if state is not None and ended and not self.persistent_workers:
            self._tasks_at(state["pass"]["tasks"])
            state = None
        kept = None if state is None else state["pass"]
        made = self._kept
        if made is None:
            made = _FromWorkers(self, kept)
        else:
            made.begin(kept)
        if ended and kept is not None:
            made.begin()
        if self.persistent_workers:
            self._kept = made
        self._latest = made.marks
        return made

    def _tasks_at(self, state: State | None) -> Position:
        """The tasks of a pass, from the first or after those of a state."""
        tasks = self._tasks
        made = Position(tasks, [] if self.iterable else samplers_of(tasks))
        if state is not None:
            made.load_state_dict(state)
        return made

    def state_dict(self) -> State:
        """The position after the last batch that was given: numbers, bytes and containers of them.

        After an epoch's end it is the beginning of the next. The states of the default stream, of
        Python's and NumPy's are not in it: `rushlight.random.get_rng_state_all()`.
        """
        if self._loaded is not None:
            return self._loaded
        return {
            "num_workers": self.num_workers,
            "generator": None if self.generator is None else words_of(self.generator),
            "ended": self._latest is not None and self._latest.ended,
            "pass": None if self._latest is None else self._latest.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration continue from a state of `state_dict`."""
        missing = {"num_workers", "generator", "ended", "pass"} - set(state_dict)
        if missing:
            raise ValueError(
                f"DataLoader.load_state_dict: the state of no DataLoader: {sorted(missing)} are "
                "missing"
            )
        if state_dict["num_workers"] != self.num_workers:
            raise ValueError(
                f"DataLoader.load_state_dict: the state is of {state_dict['num_workers']} workers, "
                f"this loader has {self.num_workers}; make it with as many"
            )
        self._loaded = dict(state_dict)

    def _restore_generator(self, state: State) -> None:
        if self.generator is not None and state["generator"] is not None:
            set_words(self.generator, state["generator"])

    def __len__(self) -> int:
        if not self.iterable:
            return len(self._tasks)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class StatefulDataLoader(DataLoader[T]):
    """A DataLoader whose workers send their state with every batch: no batch is made again."""

    _snapshots = 1


def _check_workers(
    num_workers: int, timeout: float, persistent: bool, prefetch: int | None
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


def _check_order(
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
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
    if iterable and (shuffle or sampler is not None or batch_sampler is not None):
        raise ValueError(
            "DataLoader: an IterableDataset has no order to choose: pass no shuffle and no sampler"
        )
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: sampler goes without shuffle")


def _check_positive(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise ValueError(f"DataLoader: {name} must be positive, got {count}")


class _Reading:
    """The position of a pass in this process."""

    def __init__(self, tasks: Position, fetcher: Fetcher) -> None:
        self.tasks = tasks
        self.fetcher = fetcher
        self.ended = False

    def state_dict(self) -> State:
        return {"tasks": self.tasks.state_dict(), "fetcher": self.fetcher.state_dict()}


class _Alone:
    """A pass over a dataset in this process; after an error it continues with the next batch."""

    def __init__(self, loader: DataLoader[Any], state: State | None) -> None:
        self.loader = loader
        fetcher = loader._make_fetcher()()
        fetcher.begin(None if state is None else state["fetcher"])
        tasks = loader._tasks_at(None if state is None else state["tasks"])
        self.reading = _Reading(tasks, fetcher)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        try:
            batch = self.reading.fetcher.fetch(next(self.reading.tasks))
        except StopIteration:
            self.reading.ended = True
            raise
        return pin_memory(batch) if self.loader.pin_memory else batch


class _Task(NamedTuple):
    """A task that a worker has: its worker, and the sampler's state after it where that is kept."""

    worker: int
    state: State | None


class _Marks:
    """The position of a pass by workers: the state at a mark, and the batches given since.

    See Note [Resume] 4.
    """

    def __init__(self, seed: int, again: int | None) -> None:
        self.seeds = {"seed": seed, "again": again}
        self.ended = False

    def mark(
        self, tasks: State, workers: list[Any], waiting: list[int], active: list[int], turn: int
    ) -> None:
        self.at = {"tasks": tasks, "waiting": waiting, "active": active, "turn": turn}
        self.workers = workers
        self.since = 0

    def end(self, tasks: State, workers: list[Any]) -> None:
        self.ended = True
        self.at |= {"tasks": tasks, "waiting": []}
        self.workers = workers
        self.since = 0

    def state_dict(self) -> State:
        workers = [
            (pickle.loads(state) if state else None) if isinstance(state, bytes) else state
            for state in self.workers
        ]
        return {**self.seeds, **self.at, "workers": workers, "since": self.since}


def _beginning(state: State | None, number: int) -> Begin | None:
    """How a worker continues a pass; None where it has made no batch of its first one."""
    if state is None or (state["again"] is None and state["workers"][number] is None):
        return None
    seed = state["seed"] if state["again"] is None else state["again"]
    return Begin(int(seed), state["workers"][number])


class _FromWorkers:
    """A pass over a dataset by worker processes; see Note [Workers].

    Tasks go round among the workers and batches are taken in the order of the tasks. A thread reads
    the connections, so that workers can prefetch as many batches as are requested.
    """

    def __init__(self, loader: DataLoader[Any], state: State | None) -> None:
        self.loader = loader
        self.epoch = 0
        self.closed = False
        self.arrived = threading.Condition()
        self.answers: list[deque[bytes | None]] = []
        self.processes: list[Any] = []
        self.connections: list[Any] = []
        self.reader: threading.Thread | None = None
        self.stop, self.stopped = multiprocessing.Pipe()
        self.seed = drawn_seed(loader.generator) if state is None else int(state["seed"])
        try:
            for number in range(loader.num_workers):
                self._start(number, _beginning(state, number))
        except BaseException:
            self.close()
            raise
        args = (self.connections, self.answers, self.arrived, self.stopped)
        self.reader = threading.Thread(target=_read, args=args, daemon=True)
        self.reader.start()
        self._begin(state, None, [None] * loader.num_workers)

    def _start(self, number: int, first: Begin | None) -> None:
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
        who = Worker(number, loader.num_workers, self.seed + number, loader.dataset)
        args = (theirs, os.getpid(), who, loader._make_fetcher(), loader.worker_init_fn, first)
        process = context.Process(target=work, args=args, daemon=True)
        process.start()
        theirs.close()
        self.processes.append(process)
        self.connections.append(mine)
        self.answers.append(deque())

    def begin(self, state: State | None = None) -> None:
        """Start another pass, or continue one; answers to an older one are ignored."""
        self.epoch += 1
        again = drawn_seed(self.loader.generator) if state is None else None
        seed = again if state is None else int(state["seed"])
        wanted = has_state(self.loader.dataset)  # the workers' copies stay as they are
        for number, connection in enumerate(self.connections):
            begin = _beginning(state, number) or Begin(seed or 0, None)
            connection.send((self.epoch, begin, wanted))
        states = [self._answer(k)[2] if wanted else None for k in range(len(self.connections))]
        self._begin(state, again, states)

    def _begin(self, state: State | None, again: int | None, states: list[Any]) -> None:
        """Ask for the first batches, or continue: for those that were under way.

        `states` are those of the workers.
        """
        count = len(self.processes)
        self.waiting: deque[_Task] = deque()  # the open tasks, in order
        self.asked = 0
        self.tasks = self.loader._tasks_at(None if state is None else state["tasks"])
        self.tasks.begin()
        before = self.tasks.state_dict()
        # Of each worker after its last batch given; b"" where it is not known.
        self.states = states
        self.active = list(range(count))
        self.turn = 0
        if state is None:
            self.marks = _Marks(self.seed, again)
            for _ in range((self.loader.prefetch_factor or 2) * count):
                self._ask()
        else:
            self.marks = _Marks(int(state["seed"]), state["again"])
            self.states, self.active = list(state["workers"]), list(state["active"])
            self.turn = state["turn"]
            for worker in state["waiting"]:
                self._ask_of(worker)
        self._mark(before)
        for _ in range(0 if state is None else state["since"]):
            self._advance()

    def _ask(self) -> None:
        """Give the next worker in turn the next task, if there is one of each."""
        if self.active and self._ask_of(self.active[self.turn % len(self.active)]):
            self.turn += 1

    def _ask_of(self, worker: int) -> bool:
        """Give a worker the next task, if there is one."""
        try:
            task = next(self.tasks)
        except StopIteration:
            return False
        self.asked += 1
        every = self.loader.snapshot_every_n_steps
        # Wanted of the last task of each worker before a mark; as a rule they take turns.
        wanted = every is not None and -self.asked % every < len(self.processes)
        try:
            self.connections[worker].send((self.epoch, task, wanted))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died(worker) from error
        marked = every is not None and self.asked % every == 0
        self.waiting.append(_Task(worker, self.tasks.state_dict() if marked else None))
        return True

    def _mark(self, tasks: State) -> None:
        waiting = [task.worker for task in self.waiting]
        self.marks.mark(tasks, list(self.states), waiting, list(self.active), self.turn)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        answer = self._advance()
        if answer is None:
            self._end()
            raise StopIteration
        worker, kind, content = answer
        if kind == FAILED:
            raise _as_error(worker, *content)
        return pin_memory(content) if self.loader.pin_memory else content

    def _end(self) -> None:
        if self.marks.ended:
            return
        if not self.loader.persistent_workers:
            self.close()
        elif has_state(self.loader.dataset):
            for connection in self.connections:
                connection.send((self.epoch, Report(), True))
            self.states = [self._answer(k)[2] for k in range(len(self.connections))]
        self.marks.end(self.tasks.state_dict(), list(self.states))

    def _advance(self) -> tuple[int, str, Any] | None:
        """The next batch or error, and whose it is; None at the end."""
        while self.waiting:
            task = self.waiting.popleft()
            kind, content, self.states[task.worker] = self._answer(task.worker)
            if kind == DONE:
                if task.worker in self.active:
                    self.active.remove(task.worker)
                continue
            self._ask()
            self.marks.since += 1
            if task.state is not None and b"" not in self.states:
                self._mark(task.state)
            return task.worker, kind, content
        return None

    def _answer(self, worker: int) -> tuple[str, Any, bytes]:
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
            epoch, kind, content, state = pickle.loads(raw)
            if epoch == self.epoch:
                return kind, content, state

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


class _DatasetKind:
    """What PyTorch's loaders tell of their dataset."""

    Map = 0
    Iterable = 1


_collate_fn_t = Callable[[list[Any]], Any]  # PyTorch's names
_BaseDataLoaderIter = _Reading
_SingleProcessDataLoaderIter = _Alone
_MultiProcessingDataLoaderIter = _FromWorkers


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
