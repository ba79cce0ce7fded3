"""Signal processing: the windows of `rushlight.signal.windows`.

Owns: windows as functions of their length.
Takes: numbers. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from rushlight.lazy import shown
from rushlight.signal import windows

__all__ = ["windows"]


def __dir__() -> list[str]:
    return shown(__name__)
