"""DistributedDataParallel on a rank that has no more inputs, in a block of Note [Joining].

# Note [Uneven inputs]
1. Before each forward the ranks tell who still has inputs, and agree on the highest of them, whose
   buffers come to all. They also tell which collectives follow: none in `no_sync`, those of buffers
   alone in `no_grad`.
2. A rank without inputs takes part in these collectives, with zeros, and gets the others'
   gradients, by which an optimiser that is shared out may step. At the end the last rank's
   parameters and buffers come to all.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight.core.dtypes import int64
from rushlight.distributed.algorithms.join import JoinHook
from rushlight.distributed.collectives import all_gather
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducer import Reducer
from rushlight.ops.create.creation import zeros
from rushlight.tape.record.state import no_grad
from rushlight.tensor import tensor

_THERE, _COPIES, _REDUCES = 1, 2, 4  # what a rank tells: inputs, and the collectives that follow


class Uneven(JoinHook):
    """Who still has inputs. See Note [Uneven inputs].

    Args:
        reducer (Reducer): Of the module.
        group (ProcessGroup): The ranks.
        divides_by_all (bool): Whether averages are over all ranks.
        sync_buffers (callable): Brings the buffers of `source` to all.
        sync_all (callable): The same for parameters, too.
    """

    def __init__(
        self,
        reducer: Reducer,
        group: ProcessGroup,
        divides_by_all: bool,
        sync_buffers: Callable[[], None],
        sync_all: Callable[[], None],
    ) -> None:
        self.reducer = reducer
        self.group = group
        self.divides_by_all = divides_by_all
        self.sync_buffers, self.sync_all = sync_buffers, sync_all
        self.source = 0

    def _tell(self, mine: int) -> int:
        """Tell what follows on this rank; what follows on one that has inputs, or 0."""
        rows = [zeros(1, dtype=int64) for _ in range(self.group.size())]
        with no_grad():
            all_gather(rows, tensor([mine], dtype=int64), self.group)
        told = [int(row) for row in rows]
        there = [rank for rank, what in enumerate(told) if what]
        self.source = there[-1] if there else self.source
        self.reducer.divisor = 0 if self.divides_by_all else len(there)
        return max(told)

    def announce(self, copies: bool, reduces: bool) -> None:
        """Before a forward: this rank has inputs, and copies buffers and sums gradients, or not."""
        self._tell(_THERE + _COPIES * copies + _REDUCES * reduces)

    def main_hook(self) -> None:
        """Take part in one pass of the others."""
        follows, reducer = self._tell(0), self.reducer
        if follows & _COPIES:
            self.sync_buffers()
        if not follows & _REDUCES:
            return
        with no_grad():
            for bucket in reducer.buckets:
                flat = bucket.buffer = bucket.empty().zero_()
                reducer.send(bucket, flat, True)
            reducer.end_pass(set(range(len(reducer.parameters))))

    def post_hook(self, is_last_joiner: bool) -> None:
        """The last rank's module comes to all."""
        self.reducer.divisor = 0
        self.sync_all()
