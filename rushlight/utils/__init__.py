"""Small tools with PyTorch's names.

Owns: checkpoint, capsules, datasets and loaders.
Takes: user functions and tensors. Gives: their results, with less memory held.
Never: reaches below the tape's public records.
"""

from rushlight.lazy import shown
from rushlight.utils import (
    _pytree as _pytree,
    checkpoint as checkpoint,
    data as data,
    dlpack as dlpack,
    hooks as hooks,
)

__all__ = ["checkpoint", "data", "dlpack", "hooks"]


def __dir__() -> list[str]:
    return shown(__name__)
