"""Ranks with unequally many inputs: `DistributedDataParallel.join`.

# Note [Uneven inputs]
1. Before each forward the ranks count how many still have inputs, and agree on the highest of them,
   whose buffers come to all.
2. A rank without inputs takes part in the collectives of the others' passes, with zeros, until
   nobody has inputs. Then the last rank's parameters and buffers come to all.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight.core.dtypes import int32 as _BITS, int64
from rushlight.distributed.collectives import all_gather, all_reduce
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducer import Reducer
from rushlight.distributed.reducing import ReduceOp
from rushlight.ops.create.creation import zeros
from rushlight.tape.record.state import no_grad
from rushlight.tensor import tensor


class Uneven:
    """Who still has inputs. See Note [Uneven inputs].

    Args:
        reducer (Reducer): Of the module.
        group (ProcessGroup): The ranks.
        divides_by_all (bool): Whether averages are over all ranks.
        raises (bool): Whether all ranks raise when one has no more inputs.
    """

    def __init__(
        self, reducer: Reducer, group: ProcessGroup, divides_by_all: bool, raises: bool
    ) -> None:
        self.reducer = reducer
        self.group = group
        self.divides_by_all = divides_by_all
        self.raises = raises
        self.source = 0

    def _count(self, mine: int) -> int:
        rows = [zeros(1, dtype=int64) for _ in range(self.group.size())]
        with no_grad():
            all_gather(rows, tensor([mine], dtype=int64), self.group)
        there = [rank for rank, row in enumerate(rows) if int(row)]
        self.source = there[-1] if there else self.source
        if self.raises and len(there) < self.group.size():
            raise RuntimeError("DistributedDataParallel.join: a rank has no more inputs")
        self.reducer.divisor = 0 if self.divides_by_all else len(there)
        return len(there)

    def announce(self) -> None:
        """Before a forward: this rank has inputs."""
        self._count(1)

    def shadow(self, sync_buffers: Callable[[], None]) -> None:
        """Take part in the others' passes until nobody has inputs."""
        reducer = self.reducer
        while self._count(0):
            sync_buffers()
            with no_grad():
                for bucket in reducer.buckets:
                    flat = bucket.buffer = bucket.empty().zero_()
                    reducer.send(bucket, flat, True)
                if reducer.looks:
                    all_reduce(
                        zeros(len(reducer.parameters), dtype=_BITS), ReduceOp.MAX, self.group
                    )
                for bucket in reducer.buckets:
                    reducer.result(bucket)
                    bucket.buffer = None
