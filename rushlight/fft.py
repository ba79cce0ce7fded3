"""Discrete Fourier transforms under PyTorch's names.

Owns: the names without their prefix.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names as _Names
from rushlight.ops.declared import MODULES as _MODULES
from rushlight.ops.surface.public import op_of_namespace as _op

_NAMES = _Names(__name__)
_NAMES.made(
    [op.removeprefix("fft_") for op in _MODULES if op.startswith("fft_")],
    lambda name: _op(__name__, name, f"fft_{name}"),
)
__all__ = sorted(_NAMES.sources)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
