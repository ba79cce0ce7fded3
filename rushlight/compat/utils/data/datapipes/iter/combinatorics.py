"""Pipes that change the order of samples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, length_of
from rushlight.utils.data.sampler import Sampler, SequentialSampler, drawn_seed
from rushlight.utils.data.worker import get_worker_info


class SamplerIterDataPipe(IterDataPipe[Any]):
    """What a sampler draws of a pipe: indices.

    Args:
        datapipe (IterDataPipe): What has a length.
        sampler (type): A class of samplers.
        sampler_args (tuple): Its arguments after the pipe.
        sampler_kwargs (dict): Its named arguments.
    """

    def __init__(
        self,
        datapipe: Any,
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.datapipe = datapipe
        self.sampler_args = sampler_args or ()
        self.sampler_kwargs = dict(sampler_kwargs or {}, data_source=datapipe)
        self.sampler: Sampler[Any] = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return length_of(self, self.sampler)


def seed_of_workers(salt: int) -> int | None:
    """A seed that all workers of a loader have in common in an epoch; None outside of a worker.

    What comes before a `sharding_filter` must be in the same order in all of them.
    """
    worker = get_worker_info()
    return None if worker is None else worker.seed - worker.id + 7919 * salt


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Samples in random order, drawn from a buffer that is kept full.

    Args:
        datapipe (IterDataPipe): The samples.
        buffer_size (int): How many samples the buffer holds; 1 keeps their order.
        unbatch_level (int): How many levels of batches are taken apart before.
    """

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle, or pass the samples on as they come."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """The seed of the next iteration."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Begin with the seed that was set, or with one drawn from the default generator."""
        if not self._enabled:
            return
        seed = self._seed if self._seed is not None else seed_of_workers(_depth(self.datapipe))
        self._rng.seed(drawn_seed(None) if seed is None else seed)
        self._seed = None

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            at = self._rng.randint(0, len(buffer) - 1)
            drawn, buffer[at] = buffer[at], sample
            yield drawn
        while buffer:
            yield buffer.pop(self._rng.randint(0, len(buffer) - 1))

    def __len__(self) -> int:
        return length_of(self, self.datapipe)


def _depth(pipe: Any) -> int:
    """How many pipes come before, along the first source of each."""
    count = 0
    while isinstance(pipe, IterDataPipe):
        count += 1
        pipe = pipe.__dict__.get("datapipe", pipe.__dict__.get("source_datapipe"))
    return count
