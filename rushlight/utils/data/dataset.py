"""Datasets: samples by index, samples in sequence, and datasets made of others."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from rushlight.core.dtypes import int64
from rushlight.ops.random.permutation import randperm
from rushlight.ops.random.random import Generator
from rushlight.tensor import Tensor, tensor

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by index: a subclass defines `__getitem__`, and `__len__` for random sampling."""

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T], Iterable[T]):
    """Samples in sequence: a subclass defines `__iter__`.

    Each worker iterates over all of it; `get_worker_info` tells which worker it is.
    """

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors whose first dimension counts samples."""

    def __init__(self, *tensors: Tensor) -> None:
        if len({t.shape[0] for t in tensors}) > 1:
            raise AssertionError(
                f"TensorDataset: first sizes differ: {[t.shape[0] for t in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(each[index] for each in self.tensors)

    def __getitems__(self, indices: list[int]) -> Sequence[tuple[Tensor, ...]]:
        own = type(self).__getitem__ is TensorDataset.__getitem__
        if own and indices and not any(each.is_sparse for each in self.tensors):
            return Rows(self.tensors, indices)
        return [self[i] for i in indices]

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class Rows(Sequence[tuple[Tensor, ...]]):
    """Samples of a TensorDataset: views when they are read, one gather when they are collated."""

    __slots__ = ("indices", "tensors")

    def __init__(self, tensors: tuple[Tensor, ...], indices: list[int]) -> None:
        self.tensors = tensors
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        return tuple(each[self.indices[at]] for each in self.tensors)

    def stacked(self) -> list[Tensor]:
        """The batch of each tensor."""
        places: dict[Any, Tensor] = {}
        made = []
        for each in self.tensors:
            device = each.device
            if device not in places:
                places[device] = tensor(self.indices, dtype=int64, device=device)
            made.append(each[places[device]])
        return made


class StackDataset(Dataset[Any]):
    """Datasets in parallel: a sample is a tuple of theirs, or a dict where they are named."""

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: pass datasets, either all with names or all without")
        self.datasets: Any = args or kwargs
        sizes = [len(part) for part in args or kwargs.values()]  # type: ignore[arg-type]
        if len(set(sizes)) > 1:
            raise ValueError(f"StackDataset: sizes differ: {sizes}")
        self._size = sizes[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if isinstance(self.datasets, dict):
            named = {name: _several(part, indices) for name, part in self.datasets.items()}
            return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
        return list(zip(*(_several(part, indices) for part in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._size


def _several(dataset: Any, indices: list[int]) -> list[Any]:
    """Samples by a list of indices, in one call where the dataset has `__getitems__`."""
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[i] for i in indices]
    found: list[Any] = dataset.__getitems__(indices)
    if len(found) != len(indices):
        raise ValueError(
            f"{type(dataset).__name__}.__getitems__ gave {len(found)} samples for {len(indices)} "
            "indices"
        )
    return found


class ConcatDataset(Dataset[Any]):
    """Datasets concatenated."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: at least one dataset is needed")
        if any(isinstance(part, IterableDataset) for part in self.datasets):
            raise AssertionError(
                "ConcatDataset: an IterableDataset has no indices; use ChainDataset"
            )
        self.cumulative_sizes = list(itertools.accumulate(len(part) for part in self.datasets))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError(
                    f"ConcatDataset: index {index} is out of range for {len(self)} samples"
                )
            index += len(self)
        at = bisect.bisect_right(self.cumulative_sizes, index)
        if at == len(self.datasets):
            raise IndexError(
                f"ConcatDataset: index {index} is out of range for {len(self)} samples"
            )
        return self.datasets[at][index - (self.cumulative_sizes[at - 1] if at else 0)]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets concatenated."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._checked_datasets())

    def _checked_datasets(self) -> Iterator[Any]:
        for part in self.datasets:
            if not isinstance(part, IterableDataset):
                raise AssertionError(
                    f"ChainDataset: takes IterableDatasets, got {type(part).__name__}"
                )
            yield part

    def __len__(self) -> int:
        return sum(len(part) for part in self._checked_datasets())


class Subset(Dataset[T]):
    """Some samples of a dataset."""

    def __init__(self, dataset: Dataset[T] | Sequence[T], indices: Sequence[int]) -> None:
        self.dataset: Any = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return _several(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T] | Sequence[T],
    lengths: Sequence[float],
    generator: Generator | None = None,
) -> list[Subset[T]]:
    """Random subsets of a dataset, of given sizes, or of shares that add up to 1.

    Args:
        dataset (Dataset): The dataset.
        lengths (numbers): The sizes, or shares that add up to 1.
        generator (Generator): The source of random numbers; None for the default one.
    """
    total = len(dataset)  # type: ignore[arg-type]  # a dataset without a length is refused here
    sizes = [int(n) for n in lengths]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= share <= 1 for share in lengths):
            raise ValueError(f"random_split: shares must lie between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * share) for share in lengths]
        for i in range(total - sum(sizes)):  # the remainder of rounding, one each
            sizes[i % len(sizes)] += 1
    if sum(sizes) != total:
        raise ValueError(
            f"random_split: lengths {list(lengths)} do not add up to the {total} samples of the "
            "dataset"
        )
    order = randperm(total, generator=generator, device="cpu").tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
