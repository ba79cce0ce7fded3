"""PyTorch's `torch.utils.flop_counter`: counting is refused, for there is no dispatcher."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


class FlopCounterMode:
    """Counts the operations of a block in PyTorch. Entering the block is refused here."""

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, **named: Any
    ) -> None:
        self.depth, self.display = depth, display

    def __enter__(self) -> FlopCounterMode:
        raise RushlightError(
            "FlopCounterMode is not supported; memory.estimate tells the work of a function"
        )

    def __exit__(self, *_: object) -> None:
        return None

    def get_total_flops(self) -> int:
        """0: nothing was counted."""
        return 0

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The counts of the whole: none."""
        return {"Global": {}}
