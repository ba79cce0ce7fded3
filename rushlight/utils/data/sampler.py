"""Samplers: the order in which a dataset is read."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from rushlight.core.dtypes import float64
from rushlight.ops.random.distributions import multinomial
from rushlight.ops.random.permutation import randperm
from rushlight.ops.random.random import Generator, randint
from rushlight.tensor import as_tensor

T = TypeVar("T", covariant=True)


def drawn_seed(generator: Generator | None) -> int:
    """A seed from a stream, or from the default one."""
    return int(randint(0, 1 << 62, (1,), generator=generator, device="cpu").tolist()[0])


def _order(count: int, generator: Generator) -> list[int]:
    return randperm(count, generator=generator, device="cpu").tolist()


class Sampler(Generic[T]):
    """The base: a subclass defines `__iter__`, which gives indices, or lists for batches."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order; with replacement each is drawn independently."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement is True or False, got {replacement!r}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples < 0):
            raise ValueError(f"RandomSampler: num_samples must not be negative, got {num_samples}")

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        generator = self.generator or Generator().manual_seed(drawn_seed(None))
        if self.replacement:
            for _ in range(self.num_samples):
                yield drawn_seed(generator) % count
            return
        for start in range(0, self.num_samples, max(count, 1)):
            yield from itertools.islice(_order(count, generator), self.num_samples - start)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = self.generator or Generator().manual_seed(drawn_seed(None))
        for i in _order(len(self.indices), generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with weights, with replacement or without."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(
                f"WeightedRandomSampler: num_samples must be a positive integer, got {num_samples}"
            )
        self.weights = as_tensor(weights, dtype=float64, device="cpu")
        if self.weights.ndim != 1:
            raise ValueError(
                "WeightedRandomSampler: weights must have one dimension, got "
                f"{self.weights._spec!r}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn: Any = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of a sampler's indices."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"BatchSampler: batch_size must be a positive integer, got {batch_size!r}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last is True or False, got {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        rest = iter(self.sampler)
        while batch := list(itertools.islice(rest, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on.

    All processes shuffle the order of an epoch in the same way. Number and rank are those of the
    group of processes where they are not given.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        own_count, own_rank = _group_of_processes()
        self.num_replicas = own_count if num_replicas is None else num_replicas
        self.rank = own_rank if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"DistributedSampler: rank must lie between 0 and {self.num_replicas - 1}, got "
                f"{self.rank}"
            )
        self.dataset = dataset
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        count = len(dataset)
        self.num_samples = (
            count // self.num_replicas if drop_last else math.ceil(count / self.num_replicas)
        )
        self.total_size = self.num_samples * self.num_replicas
        self.skipped = 0

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            order = _order(count, Generator().manual_seed(self.seed + self.epoch))
        if not self.drop_last and order:  # the first ones repeated, so that all have equally many
            order = list(itertools.islice(itertools.cycle(order), self.total_size))
        return iter(order[self.skipped + self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return max(0, self.total_size - self.skipped) // self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which seeds the order, and begin it anew."""
        self.epoch = epoch
        self.skipped = 0

    def skip(self, count: int) -> None:
        """Begin the epoch after the first `count` samples of all processes together.

        So a run goes on where another stopped, also with another number of processes.
        """
        if count < 0 or count % self.num_replicas:
            raise ValueError(
                f"DistributedSampler.skip: {count} samples are no multiple of the "
                f"{self.num_replicas} processes"
            )
        self.skipped = count


def _group_of_processes() -> tuple[int, int]:
    """Size and rank; a process that joined a group has loaded the module of groups."""
    joined = sys.modules.get("rushlight.distributed.process_groups")
    group = None if joined is None else joined.default_group()
    return (1, 0) if group is None else (group.size(), group.rank())


# They draw from a generator or the default stream only.
OWN = frozenset(
    [
        *(SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler),
        *(BatchSampler, DistributedSampler),
    ]
)
