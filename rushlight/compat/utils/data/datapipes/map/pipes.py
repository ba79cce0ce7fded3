"""The pipes by index."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import (
    DataChunk,
    IterDataPipe,
    MapDataPipe,
    length_of,
)
from rushlight.compat.utils.data.datapipes.iter.combinatorics import seed_of_workers
from rushlight.compat.utils.data.datapipes.utils.common import _check_unpickable_fn
from rushlight.utils.data.sampler import drawn_seed


def default_fn(data: Any) -> Any:
    """The sample as it is."""
    return data


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """A sequence or mapping as a pipe.

    Args:
        sequence (sequence or mapping): The samples.
        deepcopy (bool): Whether to read a copy made now.
    """

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place "
                    "modification would affect source data",
                    stacklevel=2,
                )

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """A function of each sample.

    Args:
        datapipe (MapDataPipe): The samples.
        fn (callable): The function.
    """

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = default_fn) -> None:
        _check_unpickable_fn(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Batches of samples that follow one another.

    Args:
        datapipe (MapDataPipe): The samples.
        batch_size (int): How many samples make a batch.
        drop_last (bool): Whether a last batch with fewer is left out.
        wrapper_class (type): Made of the list of a batch.
    """

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        begin = index * self.batch_size
        end = min(begin + self.batch_size, len(self.datapipe))
        if not 0 <= begin < end or (self.drop_last and end - begin < self.batch_size):
            raise IndexError(f"Index {index} is out of bound.")
        return self.wrapper_class([self.datapipe[n] for n in range(begin, end)])

    def __len__(self) -> int:
        count = length_of(self, self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """The samples of one pipe, then those of the next.

    Args:
        *datapipes (MapDataPipe): The pipes.
    """

    def __init__(self, *datapipes: Any) -> None:
        _check_pipes(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> Any:
        first = 0
        for pipe in self.datapipes:
            if index - first < len(pipe):
                return pipe[index - first]
            first += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """Tuples of a sample of each pipe.

    Args:
        *datapipes (MapDataPipe): The pipes.
    """

    def __init__(self, *datapipes: Any) -> None:
        _check_pipes(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        found = []
        for pipe in self.datapipes:
            try:
                found.append(pipe[index])
            except IndexError as error:
                raise IndexError(f"Index {index} is out of range for {pipe}.") from error
        return tuple(found)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


def _check_pipes(pipes: tuple[Any, ...]) -> None:
    if not pipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in pipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The samples of a pipe by index in random order; an iterable pipe.

    Args:
        datapipe (MapDataPipe): The samples.
        indices (list): Their indices; 0, 1, ... without them.
    """

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle, or give the samples in order."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """The seed of the next iteration."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Begin with the seed that was set, or with one drawn from the default generator."""
        if self._enabled:
            seed = self._seed if self._seed is not None else seed_of_workers(0)
            self._rng.seed(drawn_seed(None) if seed is None else seed)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        order = self.indices
        if self._enabled:
            order = self._rng.sample(self.indices, len(self.indices))[::-1]  # as PyTorch takes them
        for index in order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


# A method of pipes by index, though what it makes is iterable.
MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
