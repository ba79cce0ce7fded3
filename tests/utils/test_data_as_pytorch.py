"""Loaders and datasets where PyTorch's own tests found them lacking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rushlight as rl
from rushlight.utils.data import ChainDataset, DataLoader, Dataset, IterableDataset, StackDataset, TensorDataset


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
    assert [(x.tolist(), y.tolist()) for x, y in loader] == [([0, 1], [0, 10]), ([2, 3, 5], [20, 30, 50])]


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
