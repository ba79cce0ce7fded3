"""PyTorch's `torch.cuda.amp.common`."""

from __future__ import annotations

from importlib.util import find_spec

from rushlight import cuda

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is no card, nor torch_xla."""
    return not (cuda.is_available() or find_spec("torch_xla") is not None)
