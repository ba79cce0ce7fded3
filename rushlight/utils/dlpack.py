"""PyTorch's `torch.utils.dlpack`: capsules by function."""

from __future__ import annotations

from typing import Any

from rushlight import dlpack
from rushlight.dlpack import take as from_dlpack
from rushlight.lazy import shown
from rushlight.tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def __dir__() -> list[str]:
    return shown(__name__)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule (without a version) over the tensor's memory, for one consumer."""
    return dlpack.give(tensor)
