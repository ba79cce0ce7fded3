"""Every op as a function, with PyTorch's signatures. The names come from the registry of ops."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.lazy import Names
from rushlight.ops.declared import MODULES
from rushlight.ops.nn import activations, convolution, losses
from rushlight.ops.pointwise import arithmetic as e, scaled
from rushlight.ops.random import random
from rushlight.ops.reduce.softmax import implied_dim
from rushlight.ops.registry import REGISTRY, stores as _stores
from rushlight.ops.surface.documentation import described
from rushlight.ops.surface.public import checked_kinds, op_of_namespace, storing
from rushlight.ops.view import inplace as writing
from rushlight.ops.view.windows import Given
from rushlight.tensor import Tensor

_FILES = ("to_", "linalg_")  # ops that are public elsewhere only
_NAMES = Names(__name__)
_NAMES.made(
    [name for name in MODULES if not name.startswith(_FILES)],
    lambda name: op_of_namespace(__name__, name, name),
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()


_softmax, _log_softmax = REGISTRY["softmax"].function, REGISTRY["log_softmax"].function
_kl_div = REGISTRY["kl_div"].function

# Functions whose PyTorch signature has more than the op's.


def _written(kernel: Any, input: Tensor, *numbers: Any) -> Any:
    """The kernel's result, written into its input."""
    return writing.apply_inplace(kernel.op, input, *numbers)


@described
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """x where positive, else 0."""
    return input.relu_() if inplace else e.relu(input)


@described
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return _written(e.silu, input) if inplace else e.silu(input)


@storing
@_stores("cast")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope * x."""
    if inplace:
        return _written(scaled.leaky, input, negative_slope)
    return scaled.leaky_relu(input, negative_slope)


@described
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return e.sigmoid(input)


@described
def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return e.tanh(input)


@described
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along a dimension."""
    return _softmax(input, implied_dim("softmax", dim, input.ndim) if dim is None else dim, dtype)


@described
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """log(softmax(x)) along a dimension."""
    return _log_softmax(
        input, implied_dim("log_softmax", dim, input.ndim) if dim is None else dim, dtype
    )


@described
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input)."""
    if reduction == "mean" and size_average is None and reduce is None:
        losses.warn_of_mean()
    return _kl_div(input, target, size_average, reduce, reduction, log_target)


@checked_kinds
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    Outside of training the input is returned.
    """
    return (_dropped_in_place if inplace else random.dropout)(input, p, training)


@random.drawing
def _dropped_in_place(input: Tensor, p: float, training: bool) -> Tensor:
    result = random.dropout(input, p, training)
    return input if result is input else input.copy_(result)


# ---- older names: an underscore or a suffix in place of an argument ----


@checked_kinds
def relu_(input: Tensor) -> Tensor:
    """relu, into its input."""
    return relu(input, inplace=True)


@checked_kinds
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu, into its input."""
    return leaky_relu(input, negative_slope, inplace=True)


@checked_kinds
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu, into its input.

    Args:
        alpha: The limit below zero is -alpha.
    """
    return activations.elu(input, alpha, inplace=True)


@checked_kinds
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu, into its input.

    Args:
        alpha: The limit below zero is -alpha.
    """
    return activations.celu(input, alpha, inplace=True)


@checked_kinds
def selu_(input: Tensor) -> Tensor:
    """selu, into its input."""
    return activations.selu(input, inplace=True)


@checked_kinds
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh, into its input."""
    return activations.hardtanh(input, min_val, max_val, inplace=True)


@checked_kinds
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold, into its input."""
    return activations.threshold(input, threshold, value, inplace=True)


@checked_kinds
def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """rrelu, into its input.

    Args:
        lower: The least slope.
        upper: The largest slope.
    """
    return activations.rrelu(input, lower, upper, training, inplace=True)


def _with_indices(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    plain = name.removesuffix("_with_indices")
    pool = REGISTRY[plain].function

    def function(*args: Any, return_indices: bool = True, **named: Any) -> tuple[Tensor, Tensor]:
        return pool(*args, return_indices=True, **named)

    function.__wrapped__ = pool  # type: ignore[attr-defined]  # whose signature it shows
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{plain}, and where in the input each element was found."
    return described(function)


_NAMES.made(
    [
        *(f"{kind}max_pool{n}d_with_indices" for kind in ("", "adaptive_") for n in (1, 2, 3)),
        *(f"fractional_max_pool{n}d_with_indices" for n in (2, 3)),
    ],
    _with_indices,
)


@checked_kinds
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """channel_shuffle."""
    return REGISTRY["channel_shuffle"].function(input, groups)


@checked_kinds
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of (time, batch, channel) with weights (window, channel in, channel out)."""
    x, kernel = input.permute(1, 2, 0), weight.permute(2, 1, 0)
    return convolution.conv1d(x, kernel, bias, padding=pad).permute(2, 0, 1)


@checked_kinds
def unfold(
    input: Tensor, kernel_size: Given, dilation: Given = 1, padding: Given = 0, stride: Given = 1
) -> Tensor:
    """The windows of an image as columns.

    `Tensor.unfold` is another op: windows of one dimension as a view.
    """
    return REGISTRY["im2col"].function(input, kernel_size, dilation, padding, stride)


_ELSEWHERE = ("_", "fft_")
__all__ = sorted(
    name
    for name, member in {**_NAMES.sources, **globals()}.items()
    if not name.startswith(_ELSEWHERE)
    and (name in _NAMES.sources or getattr(member, "__module__", "") == __name__)
)

# What PyTorch's file imports, and functions beneath it that copies of its attention import.
_NAMES.defined(
    {
        "rushlight.compat.nn.attention_parts": (
            "_canonical_mask _get_softmax_dim _in_projection _in_projection_packed _none_or_dtype"
        ),
        "rushlight.compat.overrides": (
            "handle_torch_function has_torch_function has_torch_function_unary "
            "has_torch_function_variadic"
        ),
        "rushlight.nn.modules.sizes": "_list_with_default _pair _single _triple",
    }
)
_NAMES.made(["_Reduction"], lambda name: importlib.import_module("rushlight.compat.nn._reduction"))
