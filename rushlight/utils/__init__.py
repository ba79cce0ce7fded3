"""Small tools with PyTorch's names.

Owns: checkpoint, capsules, datasets and loaders.
Takes: user functions and tensors. Gives: their results, with less memory held.
Never: reaches below the tape's public records.
"""

from typing import Any

from rushlight.lazy import Names, shown
from rushlight.utils import (
    _pytree as _pytree,
    checkpoint as checkpoint,
    data as data,
    dlpack as dlpack,
    hooks as hooks,
)

_NAMES = Names(__name__)
_NAMES.defined({"rushlight.compat.subclasses": "swap_tensors"})
__all__ = ["checkpoint", "data", "dlpack", "hooks", "swap_tensors"]


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return shown(__name__)
