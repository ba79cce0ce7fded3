"""Datasets, samplers, collating, and loaders with and without worker processes."""

from __future__ import annotations

import collections
import itertools
import multiprocessing.connection
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight.utils import data
from rushlight.utils.data import (
    ChainDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    TensorDataset,
)

Pair = collections.namedtuple("Pair", "x y")


class Squares(data.Dataset):
    def __init__(self, count=10):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i >= self.count:
            raise IndexError(i)
        return rl.tensor([i, i * i]), float(i)


class Stream(data.IterableDataset):
    """0, 1, ..., distributed among the workers."""

    def __init__(self, count=10):
        self.count = count

    def __iter__(self):
        who = data.get_worker_info()
        first, step = (0, 1) if who is None else (who.id, who.num_workers)
        return iter(range(first, self.count, step))

    def __len__(self):
        return self.count


class Told(data.Dataset):
    """A worker's information about itself."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        who = data.get_worker_info()
        assert who.dataset is self
        return [who.id, who.num_workers, os.getpid(), float(rl.rand(1)), float(np.random.rand())]


class Broken(data.Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if self.how == "raise" and i == 2:
            raise KeyError("sample two")
        if self.how == "die" and i == 2:
            os._exit(3)
        if self.how == "sleep" and i == 2:
            time.sleep(30)
        if self.how == "unpicklable":
            return lambda: i
        return i


def flat(parts):
    return list(itertools.chain.from_iterable(parts))


def firsts(loader):
    return [batch[0][:, 0].tolist() for batch in loader]


# ---- datasets ----


def test_datasets_made_of_others():
    tensors = data.TensorDataset(rl.arange(6), rl.arange(12).reshape(6, 2))
    assert len(tensors) == 6 and [v.tolist() for v in tensors[4]] == [4, [8, 9]]
    both = Squares(3) + Squares(2)
    assert (
        isinstance(both, data.ConcatDataset)
        and len(both) == 5
        and both[-1][1] == 1.0
        and both[3][1] == 0.0
    )
    with pytest.raises(ValueError, match="5 samples"):
        both[-6]
    part = data.Subset(Squares(), [7, 1])
    assert (
        len(part) == 2
        and part[0][1] == 7.0
        and [s[1] for s in part.__getitems__([1, 0])] == [1.0, 7.0]
    )
    assert data.StackDataset(a=range(3), b="xyz")[1] == {"a": 1, "b": "y"}
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="sizes differ"):
        data.TensorDataset(rl.zeros(2), rl.zeros(3))


def test_split_at_random():
    parts = data.random_split(range(10), [0.5, 0.3, 0.2], rl.Generator().manual_seed(4))
    assert [len(p) for p in parts] == [5, 3, 2] and sorted(
        i for p in parts for i in p.indices
    ) == list(range(10))
    again = data.random_split(range(10), [5, 3, 2], rl.Generator().manual_seed(4))
    assert [p.indices for p in again] == [p.indices for p in parts]
    assert [len(p) for p in data.random_split(range(7), [0.5, 0.5])] == [4, 3]
    with pytest.raises(ValueError, match="do not add up"):
        data.random_split(range(10), [5, 4])


# ---- samplers ----


def test_orders():
    assert list(data.SequentialSampler(range(3))) == [0, 1, 2]
    shuffled = data.RandomSampler(range(20), generator=rl.Generator().manual_seed(1))
    first, second = list(shuffled), list(shuffled)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert len(list(data.RandomSampler(range(3), num_samples=7))) == 7
    drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=50))
    assert len(drawn) == 50 and set(drawn) == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert (
        list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
        and len(data.BatchSampler(range(5), 2, True)) == 2
    )
    weighted = data.WeightedRandomSampler([0.0, 1.0, 3.0], 400)
    counts = collections.Counter(weighted)
    assert counts[0] == 0 and 1.5 < counts[2] / counts[1] < 6
    assert sorted(data.WeightedRandomSampler([1.0, 1.0, 0.0], 2, replacement=False)) == [0, 1]


def test_shares_of_processes():
    parts = [data.DistributedSampler(range(7), 3, rank) for rank in range(3)]
    assert [len(p) for p in parts] == [3, 3, 3] and {i for p in parts for i in p} == set(range(7))
    before = list(parts[0])
    parts[0].set_epoch(1)
    assert list(parts[0]) != before
    assert [
        list(data.DistributedSampler(range(7), 3, r, shuffle=False, drop_last=True)) for r in (0, 2)
    ] == [
        [0, 3],
        [2, 5],
    ]


def test_the_default_stream_seeds_shuffling():
    def order():
        rl.manual_seed(3)
        return firsts(data.DataLoader(Squares(), 4, shuffle=True))

    assert order() == order() and sorted(flat(order())) == list(range(10))


# ---- collating ----


def test_batches_of_everything():
    samples = [
        {"x": np.full(2, i, np.float32), "y": (i, "ab"[i], 0.5), "z": Pair(rl.ones(1) * i, True)}
        for i in (0, 1)
    ]
    batch = data.default_collate(samples)
    assert batch["x"].tolist() == [[0, 0], [1, 1]] and batch["x"].dtype is rl.float32
    assert (
        batch["y"][0].tolist() == [0, 1]
        and batch["y"][1] == ["a", "b"]
        and batch["y"][2].dtype is rl.float64
    )
    assert batch["z"].x.tolist() == [[0], [1]] and batch["z"].y.dtype is rl.bool
    converted = data.default_convert({"a": np.arange(2), "b": ["s", np.float64(1.5)]})
    assert (
        converted["a"].tolist() == [0, 1]
        and converted["b"][0] == "s"
        and converted["b"][1].item() == 1.5
    )
    with pytest.raises(RuntimeError, match="equally many"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="collate_fn"):
        data.default_collate([object()])


# ---- loaders ----


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_in_order(workers):
    loader = data.DataLoader(Squares(), batch_size=4, num_workers=workers)
    assert len(loader) == 3
    batches = list(loader)
    assert [b[0].tolist() for b in batches] == [
        [[i, i * i] for i in part] for part in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])
    ]
    assert batches[0][1].dtype is rl.float64
    assert firsts(data.DataLoader(Squares(), 4, drop_last=True, num_workers=workers)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert firsts(data.DataLoader(Squares(), batch_sampler=[[9], [0, 1]], num_workers=workers)) == [
        [9],
        [0, 1],
    ]
    alone = list(data.DataLoader(Squares(3), batch_size=None, num_workers=workers))
    assert [s[0].tolist() for s in alone] == [[0, 0], [1, 1], [2, 4]]
    summed = data.DataLoader(range(6), 3, num_workers=workers, collate_fn=sum)
    assert list(summed) == [3, 12]


def test_closing_a_loader_waits_for_its_reader(monkeypatch):
    """A reader that is left over would take bytes of the next loader, whose connections get the
    same numbers.
    """
    wait = multiprocessing.connection.wait

    def at_its_end(connection):
        with socket.socket(fileno=os.dup(connection.fileno())) as peeking:
            return peeking.recv(1, socket.MSG_PEEK) == b""

    def slow_wait(connections, timeout=None):
        ready = wait(connections, timeout)
        if any(
            at_its_end(c) for c in ready if isinstance(c, multiprocessing.connection.Connection)
        ):
            time.sleep(0.5)  # while the worker's process ends and is waited for
        return ready

    monkeypatch.setattr(multiprocessing.connection, "wait", slow_wait)
    passing = iter(data.DataLoader(Stream(), 3, num_workers=2))
    assert len(list(passing)) == 4
    assert not passing.reader.is_alive()


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(workers):
    batches = [b.tolist() for b in data.DataLoader(Stream(), 3, num_workers=workers)]
    assert sorted(flat(batches)) == list(range(10))
    if workers:
        assert batches == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    assert len(data.DataLoader(Stream(), 3)) == 4
    assert sorted(data.DataLoader(Stream(3), None, num_workers=workers)) == [0, 1, 2]


def test_workers_know_themselves_and_draw_apart():
    assert data.get_worker_info() is None
    marks = []
    loader = data.DataLoader(Told(), batch_size=None, num_workers=2, worker_init_fn=marks.append)
    told = list(loader)
    assert [t[:2] for t in told] == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert len({t[2] for t in told}) == 2 and os.getpid() not in {t[2] for t in told}
    assert len({t[3] for t in told}) == 4 and len({t[4] for t in told}) == 4
    assert marks == []  # it ran elsewhere


def test_workers_that_stay():
    loader = data.DataLoader(Told(), batch_size=None, num_workers=2, persistent_workers=True)
    first = list(loader)
    half = next(iter(loader))  # an epoch that ends early
    again = list(loader)
    assert {t[2] for t in first} == {t[2] for t in again} and half[2] in {t[2] for t in first}
    assert [t[:2] for t in again] == [t[:2] for t in first] and again[0][3] != first[0][3]
    streamed = data.DataLoader(Stream(5), 2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(flat(b.tolist() for b in streamed)) == list(range(5))


@pytest.mark.parametrize(
    ("how", "kind", "match"),
    [
        ("raise", KeyError, "sample two"),
        ("die", RuntimeError, "exit code 3"),
        ("unpicklable", RuntimeError, "cannot be sent"),
    ],
)
def test_workers_that_fail(how, kind, match):
    loader = data.DataLoader(Broken(how), num_workers=2, collate_fn=lambda batch: batch)
    with pytest.raises(kind, match=match):
        list(loader)


def test_workers_that_are_slow():
    loader = iter(data.DataLoader(Broken("sleep"), num_workers=1, timeout=0.5))
    with pytest.raises(RuntimeError, match="timeout"):
        list(loader)
    loader.processes[0].terminate()


def test_an_error_before_the_first_batch():
    def begin(number):
        raise RuntimeError(f"cannot begin {number}")

    with pytest.raises(RuntimeError, match="cannot begin 0"):
        list(data.DataLoader(Squares(), num_workers=1, worker_init_fn=begin))


@pytest.mark.parametrize(
    ("named", "match"),
    [
        ({"num_workers": -1}, "negative"),
        ({"prefetch_factor": 2}, "num_workers above 0"),
        ({"persistent_workers": True}, "num_workers above 0"),
        ({"batch_size": None, "drop_last": True}, "no last one"),
        ({"sampler": [0], "shuffle": True}, "without shuffle"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler"),
        ({"batch_size": 0}, "positive"),
    ],
)
def test_bad_loaders(named, match):
    with pytest.raises(ValueError, match=match):
        data.DataLoader(Squares(), **named)
    with pytest.raises(ValueError, match="IterableDataset"):
        data.DataLoader(Stream(), shuffle=True)


class Faulty(Dataset[int]):
    def __getitem__(self, index: Any) -> int:
        if index % 2:
            raise RuntimeError(f"sample {index}")
        return int(index)

    def __len__(self) -> int:
        return 4


def test_after_an_error_the_next_batch_comes() -> None:
    batches = iter(DataLoader(Faulty()))
    made, failed = [], 0
    while True:
        try:
            made.append(next(batches).item())
        except RuntimeError:
            failed += 1
        except StopIteration:
            break
    assert made == [0, 2] and failed == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_indices_may_be_tuples(workers: int) -> None:
    data = TensorDataset(rl.arange(6), rl.arange(6) * 10)
    loader = DataLoader(data, batch_sampler=[(0, 1), (2, 3, 5)], num_workers=workers)
    assert [(x.tolist(), y.tolist()) for x, y in loader] == [
        ([0, 1], [0, 10]),
        ([2, 3, 5], [20, 30, 50]),
    ]


def test_what_a_loader_is_made_of_stays() -> None:
    loader: DataLoader[Any] = DataLoader(TensorDataset(rl.arange(4)), batch_size=2)
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset"):
        with pytest.raises(ValueError, match=name):
            setattr(loader, name, None)
    loader.num_workers = 0


def test_datasets_side_by_side_give_several_at_once() -> None:
    class Many(Faulty):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [i * 2 for i in indices]

    rows = StackDataset(a=Many(), b=rl.arange(4))  # type: ignore[arg-type]
    assert [(row["a"], int(row["b"])) for row in rows.__getitems__([1, 3])] == [(2, 1), (6, 3)]

    class Short(Faulty):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return []

    with pytest.raises(ValueError, match="0 samples for 1"):
        StackDataset(Short()).__getitems__([0])


def test_chains_are_of_iterable_datasets() -> None:
    class Counting(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

    assert list(ChainDataset([Counting(), Counting()])) == [0, 1, 0, 1]
    with pytest.raises(AssertionError, match="ChainDataset"):
        list(ChainDataset([Counting(), Faulty()]))


def test_other_places_of_names() -> None:
    from rushlight.utils.data import DistributedSampler
    from rushlight.utils.data.distributed import DistributedSampler as same

    assert same is DistributedSampler


def test_a_users_collate_gets_a_list_of_a_tensor_dataset():
    def descending(batch):
        batch.sort(key=lambda row: -row[0].item())
        return [row[0].item() for row in batch]

    rows = TensorDataset(rl.arange(4))
    assert list(DataLoader(rows, 2, collate_fn=descending)) == [[1, 0], [3, 2]]
    part = data.Subset(rows, [1, 3])
    assert list(DataLoader(part, 2, collate_fn=descending)) == [[3, 1]]


def test_a_batch_of_a_tensor_dataset_is_one_gather():
    x, y = rl.arange(12.0).reshape(6, 2), rl.arange(6)
    dataset = TensorDataset(x, y)
    samples = dataset.__getitems__([3, -1, 0])
    assert [s[1].item() for s in samples] == [3, 5, 0] and len(samples) == 3
    assert samples[0][0]._is_view() and [s[1].item() for s in samples[1:]] == [5, 0]
    made = next(iter(DataLoader(dataset, batch_size=4)))
    assert [type(part) for part in made] == [rl.Tensor, rl.Tensor] and type(made) is list
    assert rl.equal(made[0], x[:4]) and rl.equal(made[1], y[:4])
    picked = DataLoader(data.Subset(dataset, [5, 2]), batch_size=2)
    assert next(iter(picked))[1].tolist() == [5, 2]
    listed = DataLoader(dataset, batch_size=2, collate_fn=lambda batch: [b[1] for b in batch])
    assert [v.item() for v in next(iter(listed))] == [0, 1]
    with pytest.raises(IndexError):
        data.default_collate(dataset.__getitems__([9]))


def test_a_subclass_of_tensor_dataset_has_its_own_samples():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(2 * v for v in super().__getitem__(index))

    loader = DataLoader(Doubled(rl.arange(4)), batch_size=4)
    assert next(iter(loader))[0].tolist() == [0, 2, 4, 6]
