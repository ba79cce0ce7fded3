"""PyTorch's `special`: ops under their mathematical names."""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names as _Names
from rushlight.ops.declared import SPECIAL as _SPECIAL
from rushlight.ops.surface.public import (
    checked_kinds as _checked_kinds,
    located as _located,
    op_of_namespace as _op,
)

_NAMES = _Names(__name__)
_NAMES.made(_SPECIAL, lambda name: _op(__name__, name, _SPECIAL[name]))
_NAMES.defined(
    {"rushlight.ops.reduce.softmax": "log_softmax softmax"},
    lambda name, found: _located(__name__, name, _checked_kinds(found)),
)
__all__ = sorted(_NAMES.sources)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
