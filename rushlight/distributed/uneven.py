"""Ranks with unequally many inputs: `DistributedDataParallel.join`.

# Note [Uneven inputs]
1. Before each forward the ranks count how many still have inputs, and agree on the highest of them,
   whose buffers come to all. They also tell which collectives follow: none in `no_sync`, those of
   buffers alone in `no_grad`.
2. A rank without inputs takes part in these collectives, with zeros, until nobody has inputs. Then
   the last rank's parameters and buffers come to all.
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

_THERE, _COPIES, _REDUCES = 1, 2, 4  # what a rank tells: inputs, and the collectives that follow


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

    def _tell(self, mine: int) -> int:
        """Tell what follows on this rank; what follows on one that has inputs, or 0."""
        rows = [zeros(1, dtype=int64) for _ in range(self.group.size())]
        with no_grad():
            all_gather(rows, tensor([mine], dtype=int64), self.group)
        told = [int(row) for row in rows]
        there = [rank for rank, what in enumerate(told) if what]
        self.source = there[-1] if there else self.source
        if self.raises and len(there) < self.group.size():
            raise RuntimeError("DistributedDataParallel.join: a rank has no more inputs")
        self.reducer.divisor = 0 if self.divides_by_all else len(there)
        return max(told)

    def announce(self, copies: bool, reduces: bool) -> None:
        """Before a forward: this rank has inputs, and copies buffers and sums gradients, or not."""
        self._tell(_THERE + _COPIES * copies + _REDUCES * reduces)

    def shadow(self, sync_buffers: Callable[[], None]) -> None:
        """Take part in the others' passes until nobody has inputs."""
        reducer = self.reducer
        while follows := self._tell(0):
            if follows & _COPIES:
                sync_buffers()
            if not follows & _REDUCES:
                continue
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
