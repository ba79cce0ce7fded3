"""PyTorch's `torch.onnx.symbolic_helper`: a decorator of functions for its exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parse_args(*arg_descriptors: str) -> Callable[[Any], Any]:
    """A decorator that changes nothing: there is no exporter."""
    return lambda function: function
