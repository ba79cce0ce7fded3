"""What went wrong between processes: which rank, in which collective."""

from __future__ import annotations

from rushlight.core.errors import RushlightError


class DistributedError(RushlightError):
    """A collective that cannot end: a rank died, hangs, raised, or called another collective.

    `rank` is the one at fault, -1 where that is not known; `collective` is the call that failed.
    """

    def __init__(self, message: str, rank: int = -1, collective: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.collective = collective


class QueueEmptyError(DistributedError):
    """A queue of a store has no value, and the call does not wait."""
