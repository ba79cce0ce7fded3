"""Activations as layers."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import ShapeError
from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.ops.pointwise import scaled
from rushlight.tensor import Tensor


class _Shown(Module):
    """A layer of a few numbers, shown as name=value."""

    shown: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self.shown]
        return ", ".join([*parts, "inplace=True"] if self.__dict__.get("inplace") else parts)


class _MaybeInPlace(_Shown):
    """An activation that may write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class _Along(_Shown):
    """A function along a dimension."""

    shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


# ---- piecewise linear ----


class ReLU(_MaybeInPlace):
    """x where positive, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace)


class ReLU6(_MaybeInPlace):
    """x between 0 and 6."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu6(input, self.inplace)

    def _pytorch_attributes(self) -> dict[str, Any]:
        return {"min_val": 0.0, "max_val": 6.0}


class Hardtanh(_Shown):
    """x between two bounds."""

    shown = ("min_val", "max_val")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,  # the older names of the bounds
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        min_val = min_val if min_value is None else min_value
        max_val = max_val if max_value is None else max_value
        if min_val >= max_val:
            raise AssertionError(
                f"Hardtanh: min_val {min_val} must be smaller than max_val {max_val}"
            )
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)


class LeakyReLU(_Shown):
    """x where positive, else negative_slope * x."""

    shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.leaky_relu(input, self.negative_slope, self.inplace)


class PReLU(Module):
    """x where positive, else a learned slope times x.

    There is one slope for all elements, or one for each channel (dimension 1).
    """

    weight: Parameter

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(creation.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.weight.detach().fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(_Shown):
    """x where positive, else a slope times x.

    The slope is random between two bounds in training, else their mean.
    """

    shown = ("lower", "upper")

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Threshold(_Shown):
    """x where above the threshold, else a value."""

    shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.threshold(input, self.threshold, self.value, self.inplace)


class Hardshrink(Module):
    """x where |x| is above lambd, else 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Module):
    """x - lambd above lambd, x + lambd below -lambd, 0 between."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return functional.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardsigmoid(_MaybeInPlace):
    """x / 6 + 1/2 between 0 and 1."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardsigmoid(input, self.inplace)


class Hardswish(_MaybeInPlace):
    """x * hardsigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardswish(input, self.inplace)


# ---- smooth ----


class SiLU(_MaybeInPlace):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input, self.inplace)


class Mish(_MaybeInPlace):
    """x * tanh(softplus(x))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.mish(input, self.inplace)


class SELU(_MaybeInPlace):
    """ELU with the constants that keep mean 0 and variance 1."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.selu(input, self.inplace)


class ELU(_Shown):
    """x where positive, else alpha * (exp(x) - 1)."""

    shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha, self.inplace)


class CELU(_Shown):
    """x where positive, else alpha * (exp(x / alpha) - 1)."""

    shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.celu(input, self.alpha, self.inplace)


class GELU(_Shown):
    """x times the normal distribution function of x, exactly or by tanh."""

    shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return scaled.gelu(input, self.approximate)


class Softplus(_Shown):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return functional.softplus(input, self.beta, self.threshold)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softsign(input)


# ---- along a dimension ----


class Softmax(_Along):
    """exp(x) / sum(exp(x)) along a dimension."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)


class LogSoftmax(_Along):
    """log(softmax(x)) along a dimension."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.log_softmax(input, self.dim)


class Softmin(_Along):
    """softmax(-x) along a dimension."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmin(input, self.dim)


class Softmax2d(Module):
    """softmax over the channels of an image."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: input must have 3 or 4 dimensions, got {input._spec!r}")
        return functional.softmax(input, -3)


class GLU(_Along):
    """The first half of a dimension times the sigmoid of the second."""

    dim: int

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim)
