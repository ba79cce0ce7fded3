"""Pipes that put samples together, and take batches apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, length_of
from rushlight.compat.utils.data.datapipes.utils.common import _check_unpickable_fn


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Batches of samples.

    Args:
        datapipe (IterDataPipe): The samples.
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

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = length_of(self, self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The samples of batches.

    Args:
        datapipe (IterDataPipe): The batches.
        unbatch_level (int): How many levels are taken apart; -1 for all.
    """

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield from self._dive(sample, self.unbatch_level)

    def _dive(self, element: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level < 0 and not isinstance(element, list)):
            yield element
            return
        if not isinstance(element, list):
            raise IndexError(
                f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe"
            )
        for item in element:
            yield from self._dive(item, level - 1 if level > 0 else level)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Batches of samples with one key.

    Args:
        datapipe (IterDataPipe): The samples.
        group_key_fn (callable): The key of a sample.
        keep_key (bool): Whether a batch comes with its key, as a pair.
        buffer_size (int): How many samples wait for their group.
        group_size (int): How many samples make a group.
        guaranteed_group_size (int): The fewest samples of a group that a full buffer gives.
        drop_remaining (bool): Whether smaller groups are left out where the buffer is full.
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        _check_unpickable_fn(group_key_fn)
        self.guaranteed_group_size = None
        if group_size is not None and buffer_size is not None:
            if not 0 < group_size <= buffer_size:
                raise ValueError("group_size must be > 0 and <= buffer_size")
            self.guaranteed_group_size = group_size
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise ValueError("guaranteed_group_size must be > 0 and <= group_size")
            self.guaranteed_group_size = guaranteed_group_size
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size = buffer_size, group_size
        self.drop_remaining = drop_remaining
        self.wrapper_class = DataChunk

    def _made(self, key: Any, group: list[Any]) -> Any:
        chunk = self.wrapper_class(group)
        return (key, chunk) if self.keep_key else chunk

    def _largest(self, groups: dict[Any, list[Any]]) -> Any:
        """The key of the group that a full buffer gives away."""
        key = max(groups, key=lambda one: len(groups[one]))
        least = self.guaranteed_group_size
        if least is not None and len(groups[key]) < least and not self.drop_remaining:
            raise RuntimeError("Failed to group items", str(groups[key]))
        return key

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = {}
        held = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups.setdefault(key, []).append(sample)
            held += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                held -= self.group_size
                yield self._made(key, groups.pop(key))
            if held == self.max_buffer_size:
                largest = self._largest(groups)
                group = groups.pop(largest)
                held -= len(group)
                if self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size:
                    yield self._made(largest, group)
                else:
                    warnings.warn(f"groupby: {len(group)} samples are left out", stacklevel=2)
        for key in tuple(groups):
            yield self._made(key, groups.pop(key))
