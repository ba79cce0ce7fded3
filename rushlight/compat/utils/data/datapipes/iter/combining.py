"""Pipes of several pipes, and several pipes of one.

# Note [Children of a pipe]
1. `fork` and `demux` give pipes that read one source together. What one has read and another still
   needs lies in a buffer of at most `buffer_size` samples.
2. When a child begins a second iteration all of them begin again: an iterator of another child
   raises at its next sample.
"""

from __future__ import annotations

import collections
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import (
    IterDataPipe,
    length_of,
    no_length,
    stale,
)
from rushlight.compat.utils.data.datapipes.utils.common import StreamWrapper, _check_unpickable_fn

_FULL = "DataPipe buffer overflow, buffer size is insufficient."


def _check_pipes(name: str, pipes: tuple[Any, ...]) -> None:
    if not pipes:
        raise ValueError(f"Expected at least one DataPipe for {name}, but got nothing")
    if not all(isinstance(pipe, IterDataPipe) for pipe in pipes):
        raise TypeError(f"Expected all inputs of {name} to be `IterDataPipe`")


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """The samples of one pipe, then those of the next.

    Args:
        *datapipes (IterDataPipe): The pipes.
    """

    def __init__(self, *datapipes: Any) -> None:
        _check_pipes("ConcaterIterDataPipe", datapipes)
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(length_of(self, pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples of a sample of each pipe, as many as the shortest has.

    Args:
        *datapipes (IterDataPipe): The pipes.
    """

    def __init__(self, *datapipes: Any) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(length_of(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """A sample of each pipe in turn, until the shortest ends.

    Args:
        *datapipes (IterDataPipe): The pipes.
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.datapipes, strict=False):
            yield from row

    def __len__(self) -> int:
        return len(self.datapipes) * min(length_of(self, pipe) for pipe in self.datapipes)


class _Source:
    """What children read together. See Note [Children of a pipe]."""

    def __init__(self, datapipe: Any, num_instances: int, buffer_size: int) -> None:
        self.main_datapipe = datapipe
        self.num_instances = num_instances
        self.buffer_size = buffer_size
        self.round = 0
        self.restart()

    def restart(self) -> None:
        """Begin at the first sample."""
        self.round += 1
        self.rest: Iterator[Any] | None = None
        self.waiting: list[collections.deque[Any]] = [
            collections.deque() for _ in range(self.num_instances)
        ]
        self.ended = [False] * self.num_instances

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(rest=None, waiting=None, ended=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.restart()

    def put(self, sample: Any, asking: int) -> None:
        """Give a sample to the children that get it."""
        raise NotImplementedError

    def held(self) -> int:
        """How many samples the buffer holds."""
        return sum(map(len, self.waiting))

    def take(self, child: int) -> Any:
        """The next sample of a child; StopIteration at the end."""
        mine = self.waiting[child]
        while not mine:
            if self.rest is None:
                self.rest = iter(self.main_datapipe)
            try:
                sample = next(self.rest)
            except StopIteration:
                self.ended[child] = True
                raise
            self.put(sample, child)
            # The sample that is given at once needs no room.
            if 0 <= self.buffer_size < self.held() - bool(mine):
                raise BufferError(_FULL)
        return mine.popleft()


class _ForkSource(_Source):
    def __init__(self, datapipe: Any, num_instances: int, buffer_size: int, copying: Any) -> None:
        self.copying = copying
        super().__init__(datapipe, num_instances, buffer_size)

    def put(self, sample: Any, asking: int) -> None:
        for queue in self.waiting:
            queue.append(sample if self.copying is None else self.copying(sample))

    def held(self) -> int:
        return max(map(len, self.waiting))


class _DemuxSource(_Source):
    def __init__(
        self, datapipe: Any, num_instances: int, buffer_size: int, classify: Any, drop_none: bool
    ) -> None:
        self.classify, self.drop_none = classify, drop_none
        super().__init__(datapipe, num_instances, buffer_size)

    def put(self, sample: Any, asking: int) -> None:
        found = self.classify(sample)
        if found is None and self.drop_none:
            StreamWrapper.close_streams(sample)
        elif found is None or not 0 <= found < self.num_instances:
            raise ValueError(
                f"Output of the classification fn should be between 0 and {self.num_instances - 1}."
                f" {found} is returned."
            )
        else:
            self.waiting[found].append(sample)


class _ChildDataPipe(IterDataPipe[Any]):
    """One of the pipes that `fork` or `demux` gives. See Note [Children of a pipe]."""

    _counts_iterators = True

    def __init__(self, source: _Source, instance_id: int) -> None:
        self.main_datapipe = source
        self.instance_id = instance_id
        self.round = 0

    def __iter__(self) -> Iterator[Any]:
        source = self.main_datapipe
        if self.round == source.round:
            if not all(source.ended):
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are "
                    "resetting the buffer and each child DataPipe will read from the start again.",
                    UserWarning,
                    stacklevel=2,
                )
            source.restart()
        self.round = source.round
        return self._read(source.round)

    def _read(self, number: int) -> Iterator[Any]:
        while True:
            if self.main_datapipe.round != number:
                raise stale(self)
            try:
                sample = self.main_datapipe.take(self.instance_id)
            except StopIteration:
                return
            yield sample

    def __len__(self) -> int:
        if isinstance(self.main_datapipe, _DemuxSource):
            raise no_length(self)
        return length_of(self, self.main_datapipe.main_datapipe)


def _check_count(num_instances: int, buffer_size: int) -> None:
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
    if buffer_size == 0:
        raise ValueError("Expected `buffer_size` to be larger than 0")
    if buffer_size < 0:
        warnings.warn(
            "Unlimited buffer size is set, please be aware of OOM risks", UserWarning, stacklevel=3
        )


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """Several pipes that each give all samples.

    Args:
        datapipe (IterDataPipe): The samples.
        num_instances (int): How many pipes.
        buffer_size (int): How far one may be ahead of another; -1 for no limit.
        copy (str): "shallow" or "deep" gives each a copy of its own; None the same object.
    """

    def __new__(
        cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: Any = None
    ) -> Any:
        if num_instances < 1:
            raise ValueError(
                f"Expected `num_instances` larger than 0, but {num_instances} is found"
            )
        if num_instances == 1:
            return datapipe
        _check_count(num_instances, buffer_size)
        if copy not in _COPIES:
            raise ValueError(
                f"Unknown copy method `{copy}`, please specify one of `None`, `shallow` or `deep`."
            )
        source = _ForkSource(datapipe, num_instances, buffer_size, _COPIES[copy])
        return [_ChildDataPipe(source, n) for n in range(num_instances)]


_COPIES: dict[Any, Callable[[Any], Any] | None] = {
    None: None,
    "shallow": copy.copy,
    "deep": copy.deepcopy,
}


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """Several pipes, among which a function shares out the samples.

    Args:
        datapipe (IterDataPipe): The samples.
        num_instances (int): How many pipes.
        classifier_fn (callable): The number of a sample's pipe.
        drop_none (bool): Whether a sample whose number is None is left out; else an error.
        buffer_size (int): How many samples wait for their pipes; -1 for no limit.
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        _check_count(num_instances, buffer_size)
        _check_unpickable_fn(classifier_fn)
        source = _DemuxSource(datapipe, num_instances, buffer_size, classifier_fn, drop_none)
        return [_ChildDataPipe(source, n) for n in range(num_instances)]
