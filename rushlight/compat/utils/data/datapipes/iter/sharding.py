"""The pipe that shares samples out among workers and ranks."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, length_of
from rushlight.utils.data.sampler import _group_of_processes
from rushlight.utils.data.worker import get_worker_info


class SHARDING_PRIORITIES(enum.IntEnum):
    """Whether samples are shared out among ranks, among the workers of one, or both at once."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


class _ShardingIterDataPipe(IterDataPipe[Any]):
    """A pipe that `apply_sharding` tells how many there are."""

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any) -> None:
        """The number of shards, and the one that this pipe reads."""
        raise NotImplementedError


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_ShardingIterDataPipe):
    """Each n-th sample: those of this worker of this rank.

    Until `apply_sharding` is called, in a worker of a DataLoader n is the number of workers, times
    that of ranks; elsewhere it is the number of ranks.

    Args:
        source_datapipe (IterDataPipe): The samples, in the same order in all of them.
        sharding_group_filter (SHARDING_PRIORITIES): What alone is looked at.
    """

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}

    def apply_sharding(
        self,
        num_of_instances: int,
        instance_id: int,
        sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
    ) -> None:
        """The number of shards, and the one that this pipe reads."""
        if instance_id >= num_of_instances:
            raise ValueError(
                f"instance_id({instance_id}) should be smaller than num_of_instances"
                f"({num_of_instances})"
            )
        default = SHARDING_PRIORITIES.DEFAULT
        if self.groups and (sharding_group == default) != (default in self.groups):
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = (num_of_instances, instance_id)

    def _place(self) -> tuple[int, int]:
        """How many shards there are, and this one."""
        if not self.groups:
            ranks, rank = _group_of_processes()
            worker = get_worker_info()
            if worker is None:
                return ranks, rank
            return worker.num_workers * ranks, worker.id * ranks + rank
        count, number = 1, 0
        for group in sorted(self.groups):
            if self.sharding_group_filter in (None, group):
                shards, shard = self.groups[group]
                number += count * shard
                count *= shards
        return count, number

    @property
    def num_of_instances(self) -> int:
        """How many shards there are."""
        return self._place()[0]

    @property
    def instance_id(self) -> int:
        """The shard that this pipe reads."""
        return self._place()[1]

    def __iter__(self) -> Iterator[Any]:
        count, mine = self._place()
        for number, sample in enumerate(self.source_datapipe):
            if number % count == mine:
                yield sample

    def __len__(self) -> int:
        count, mine = self._place()
        total = length_of(self, self.source_datapipe)
        return total // count + int(mine < total % count)
