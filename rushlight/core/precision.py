"""Which float32 computations may round their factors to TF32 (10 bits of mantissa) on a GPU.

The defaults are PyTorch's. Plans and programs are made for the value of their time and records keep
it, so a change empties the caches (`core/cache.py`) and a replay gives the same bits.
"""

from __future__ import annotations

from rushlight.core.cache import forget

_allowed = {"convolution": True}


def allows_tf32(computation: str) -> bool:
    """Whether TF32 is allowed: `computation` is "convolution"."""
    return _allowed[computation]


def allow_tf32(computation: str, allowed: bool) -> None:
    """Allow or forbid TF32 for the calls that follow."""
    if _allowed[computation] is not bool(allowed):
        _allowed[computation] = bool(allowed)
        forget()
