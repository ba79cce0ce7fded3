"""PyTorch's `torch.profiler.itt`: marks for Intel's VTune, which is not called here."""

from __future__ import annotations

from typing import NoReturn

from rushlight.core.errors import RushlightError

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """False."""
    return False


def range_push(msg: str = "") -> NoReturn:
    """Refused: there is no library of marks.

    Args:
        msg (str): The mark.
    """
    raise RushlightError("profiler.itt: marks of ITT are not made; use profiler.record_function")


mark = range = range_pop = range_push
