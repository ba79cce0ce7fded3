"""PyTorch's `torch.utils.flop_counter`, which is refused: there is no dispatcher to count at."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


class FlopCounterMode:
    """Counts the operations of a block in PyTorch."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError(
            "FlopCounterMode is not supported; memory.estimate tells the work of a function"
        )
