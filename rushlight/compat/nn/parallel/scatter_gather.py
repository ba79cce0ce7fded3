"""PyTorch's `torch.nn.parallel.scatter_gather`: parts of inputs on each device, and back."""

from __future__ import annotations

from typing import Any

from rushlight.nn.data_parallel import (
    gather as gather,
    scatter as scatter,
    scatter_kwargs as scatter_kwargs,
)


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")
