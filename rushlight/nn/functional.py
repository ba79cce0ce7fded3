"""Every op as a function, with PyTorch's signatures. The names come from the registry of ops."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.ops import composite, elementwise as e, random, shuffle
from rushlight.ops.registry import REGISTRY
from rushlight.ops.windows import Given
from rushlight.tensor import Tensor

globals().update({name: entry.function for name, entry in REGISTRY.items() if not name.startswith(("to_", "linalg_"))})

_softmax, _log_softmax = REGISTRY["softmax"].function, REGISTRY["log_softmax"].function

# Below: functions of which PyTorch's signature says more than the op's.


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """x where positive, else 0."""
    return input.relu_() if inplace else e.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return input.copy_(e.silu(input)) if inplace else e.silu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope * x."""
    result = composite.leaky_relu(input, negative_slope)
    return input.copy_(result) if inplace else result


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return e.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return e.tanh(input)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along a dimension."""
    return _softmax(input, dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along a dimension."""
    return _log_softmax(input, dim, dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); itself when not training."""
    result = random.dropout(input, p, training)
    return input.copy_(result) if inplace and result is not input else result


def unfold(input: Tensor, kernel_size: Given, dilation: Given = 1, padding: Given = 0, stride: Given = 1) -> Tensor:
    """The windows of an image as columns; `Tensor.unfold` is another op, windows of one dimension as a view."""
    return shuffle.im2col(input, kernel_size, dilation, padding, stride)


def __getattr__(name: str) -> Any:  # for type checkers, which do not see the names from the registry
    raise AttributeError(f"rushlight.nn.functional has no {name!r}")
