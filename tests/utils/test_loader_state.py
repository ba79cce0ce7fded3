"""The state of a loader: another one continues after the same batch with the same bits."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight.random import get_rng_state_all, set_rng_state_all
from rushlight.utils import data

COUNT = 11
Make = Callable[[], data.DataLoader[Any]]


class Drawn(data.Dataset[Any]):
    """Each sample has a number of each stream."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: Any) -> Any:
        who = data.get_worker_info()
        seed = 0 if who is None else who.seed
        return [index, seed, random.random(), np.random.rand(), float(rl.rand(1))]


class Counting(Drawn):
    """A dataset with a state: the number of samples that this copy gave."""

    given = 0

    def __getitem__(self, index: Any) -> Any:
        self.given += 1
        return [*super().__getitem__(index), self.given]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.given = state["given"]


class Failing(Drawn):
    def __getitem__(self, index: Any) -> Any:
        if index == 5:
            raise KeyError("five")
        return super().__getitem__(index)


class Stream(data.IterableDataset[Any]):
    """Samples of a worker in an order drawn from Python's stream; worker 0 has fewest."""

    def __iter__(self) -> Iterator[Any]:
        who = data.get_worker_info()
        order = list(range(9 if who is None else 3 + 4 * who.id))
        random.shuffle(order)
        for i in order:
            yield [i, 0 if who is None else who.id, np.random.rand()]


class Remembering(data.IterableDataset[Any]):
    """A stream that knows where it is; `made` counts what it had to make."""

    def __init__(self) -> None:
        self.at = self.made = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < 12:
            self.at += 1
            self.made += 1
            yield [self.at, random.random()]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at = state["at"]


class Steps:
    """An iterator with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> int:
        if self.at == 10:
            raise StopIteration
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at = state["at"]


class Stepping(data.IterableDataset[Any]):
    def __iter__(self) -> Steps:
        return Steps()


class Shuffled(data.Sampler[int]):
    """A sampler of a user: its order is drawn from Python's stream."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(COUNT))
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return COUNT


class Stateful(data.Sampler[int]):
    """A sampler with a state that nothing else determines: the number and how many are left."""

    def __init__(self) -> None:
        self.number, self.left = 0, COUNT

    def __iter__(self) -> Iterator[int]:
        while self.left:
            self.left -= 1
            self.number = (self.number * 5 + 3) % COUNT
            yield self.number
        self.left = COUNT

    def __len__(self) -> int:
        return COUNT

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number, "left": self.left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.number, self.left = state["number"], state["left"]


def plain(batch: Any) -> Any:
    if isinstance(batch, (list, tuple)):
        return [plain(part) for part in batch]
    return batch.tolist() if isinstance(batch, rl.Tensor) else batch


def draw_in_worker(number: int) -> None:
    random.random()
    np.random.seed(number + 7)


def start() -> None:
    rl.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def go_on(loader: data.DataLoader[Any], epochs: int, stop: int | None = None) -> list[Any]:
    """Batches, with a draw after each, as training does; at most `stop`."""
    found: list[Any] = []
    for _ in range(epochs):
        batches = iter(loader)
        while True:
            try:
                found.append(plain(next(batches)))
            except StopIteration:
                found.append("end")
                break
            except KeyError:
                found.append("error")
            found.append(rl.rand(2).tolist())
            if stop is not None and len(found) >= 2 * stop:
                return found
    return found


def check_continues(make: Make, stop: int | None, epochs: int = 2) -> None:
    """Stop after a number of batches, or between the first two epochs, and continue."""
    start()
    whole = go_on(make(), epochs)
    last = get_rng_state_all()
    start()
    loader = make()
    before = go_on(loader, epochs if stop else 1, stop)
    file = io.BytesIO()
    rl.save([loader.state_dict(), get_rng_state_all()], file)
    del loader
    rl.manual_seed(77)
    random.seed(77)
    file.seek(0)
    state, streams = rl.load(file)
    other = make()
    other.load_state_dict(state)
    set_rng_state_all(streams)
    assert before + go_on(other, epochs - before.count("end")) == whole
    assert get_rng_state_all() == last


def loader_of(dataset: Any, sampler: str = "", workers: int = 0, **named: Any) -> Any:
    generator = rl.Generator().manual_seed(5)
    made = dataset()
    samplers: dict[str, Callable[[], Any]] = {
        "random": lambda: data.RandomSampler(made),
        "drawn": lambda: data.RandomSampler(made, True, 13, generator=generator),
        "long": lambda: data.RandomSampler(made, num_samples=25, generator=generator),
        "subset": lambda: data.SubsetRandomSampler(range(1, 9)),
        "weighted": lambda: data.WeightedRandomSampler(range(COUNT), 12),
        "distributed": lambda: data.DistributedSampler(made, 2, 1),
        "user": Shuffled,
        "state": Stateful,
    }
    if sampler:
        named["sampler"] = samplers[sampler]()
    if named.get("snapshot_every_n_steps", 1) is None:
        return data.DataLoader(made, num_workers=workers, **named)
    return data.StatefulDataLoader(made, num_workers=workers, **named)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "sampler", ["random", "drawn", "long", "subset", "weighted", "distributed", "user", "state"]
)
def test_every_sampler_continues(sampler: str, workers: int) -> None:
    make = functools.partial(loader_of, Drawn, sampler, workers, batch_size=3)
    check_continues(make, 2)


@pytest.mark.parametrize("stop", [1, 4, 6])  # 4 batches are an epoch
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_shuffled_loaders_continue_anywhere(workers: int, stop: int) -> None:
    check_continues(
        functools.partial(loader_of, Drawn, "", workers, shuffle=True, batch_size=3), stop
    )


@pytest.mark.parametrize("every", [1, 2, 5, None])
@pytest.mark.parametrize("stop", [3, 7])
def test_states_between_snapshots_make_batches_again(every: int | None, stop: int) -> None:
    named: dict[str, Any] = {"shuffle": True, "snapshot_every_n_steps": every}
    for dataset in (Counting, Failing):
        check_continues(functools.partial(loader_of, dataset, "", 2, **named), stop, 1)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("stop", [1, 5, 7])
def test_workers_begin_as_they_did(persistent: bool, stop: int) -> None:
    named = {"persistent_workers": persistent, "worker_init_fn": draw_in_worker}
    make = functools.partial(loader_of, Counting, "", 3, shuffle=True, batch_size=3, **named)
    check_continues(make, stop, 3)


@pytest.mark.parametrize("dataset", [Stream, Remembering, Stepping])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("size", "every"), [(2, 1), (2, 3), (None, 1)])
def test_streams_continue(dataset: Any, workers: int, size: int | None, every: int) -> None:
    make = functools.partial(
        loader_of, dataset, "", workers, batch_size=size, snapshot_every_n_steps=every
    )
    for stop in (1, 3, 5):
        check_continues(make, stop, 2)


def test_a_stream_with_a_state_is_not_read_again() -> None:
    loader = loader_of(Remembering, batch_size=2)
    list(itertools.islice(loader, 4))
    other = loader_of(Remembering, batch_size=2)
    other.load_state_dict(loader.state_dict())
    assert next(iter(other))[0].tolist() == [9, 10] and other.dataset.made == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_states_between_epochs(workers: int, persistent: bool) -> None:
    named = {"persistent_workers": persistent and workers > 0, "batch_size": 3}
    for sampler in ("random", "long", "state"):
        check_continues(functools.partial(loader_of, Drawn, sampler, workers, **named), None)
    if persistent or not workers:  # other workers have new copies of the dataset
        check_continues(functools.partial(loader_of, Counting, "", workers, **named), None)
    check_continues(functools.partial(loader_of, Remembering, "", workers, **named), None)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_end_of_an_epoch_is_the_beginning_of_the_next(workers: int) -> None:
    def make() -> data.DataLoader[Any]:
        generator = rl.Generator().manual_seed(2)
        return data.DataLoader(
            range(COUNT), 4, shuffle=True, num_workers=workers, generator=generator
        )

    loader = make()
    orders = [[plain(batch) for batch in loader] for _ in range(2)]
    other = make()
    for _ in other:
        pass
    last = make()
    last.load_state_dict(other.state_dict())
    assert [plain(batch) for batch in last] == orders[1] != orders[0]


def test_the_epoch_of_a_distributed_sampler_is_restored() -> None:
    def make() -> data.DataLoader[Any]:
        return data.DataLoader(range(COUNT), 2, sampler=data.DistributedSampler(range(COUNT), 2, 0))

    loader = make()
    loader.sampler.set_epoch(3)
    batches = iter(loader)
    next(batches)
    other = make()
    other.load_state_dict(loader.state_dict())
    assert [plain(b) for b in other] == [plain(b) for b in batches] and other.sampler.epoch == 3


def test_a_state_before_the_first_batch() -> None:
    loader = loader_of(Drawn, shuffle=True)
    state = loader.state_dict()
    assert state["pass"] is None
    loader.load_state_dict(state)
    assert loader.state_dict() == state and len(list(loader)) == COUNT
    started = loader_of(Drawn, "", 2, shuffle=True)
    batches = iter(started)
    other = loader_of(Drawn, "", 2, shuffle=True)
    other.load_state_dict(started.state_dict())
    assert [plain(b) for b in other] == [plain(b) for b in batches]


def test_a_persistent_loader_goes_back() -> None:
    loader = loader_of(Drawn, "", 2, shuffle=True, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [plain(batch) for batch in batches]
    for _ in range(2):
        loader.load_state_dict(state)
        assert [plain(batch) for batch in loader] == rest


def test_states_that_do_not_fit_are_refused() -> None:
    loader = data.DataLoader(range(4))
    with pytest.raises(ValueError, match="2 workers"):
        loader.load_state_dict(data.DataLoader(range(4), num_workers=2).state_dict())
    with pytest.raises(ValueError, match="missing"):
        loader.load_state_dict({"pass": None})
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        data.DataLoader(range(4), snapshot_every_n_steps=0)
    batches = iter(data.DataLoader(Drawn(), sampler=Stateful()))
    next(batches)
    other = data.DataLoader(Drawn(), sampler=Shuffled())
    owner = data.DataLoader(Drawn(), sampler=Stateful())
    next(iter(owner))
    other.load_state_dict(owner.state_dict())
    with pytest.raises(ValueError, match="load_state_dict"):
        next(iter(other))


def test_a_loader_that_has_been_read_can_be_copied() -> None:
    loader = data.DataLoader(range(4), 2)
    next(iter(loader))
    for copied in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert [plain(batch) for batch in copied] == [[0, 1], [2, 3]]


def test_all_streams_are_captured() -> None:
    random.gauss(0, 1)
    np.random.standard_normal()
    state = get_rng_state_all()
    drawn = [random.gauss(0, 1), np.random.standard_normal(), rl.rand(3).tolist()]
    file = io.BytesIO()
    rl.save(state, file)
    file.seek(0)
    set_rng_state_all(rl.load(file))
    assert [random.gauss(0, 1), np.random.standard_normal(), rl.rand(3).tolist()] == drawn
