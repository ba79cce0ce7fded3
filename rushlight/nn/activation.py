"""Activations as layers."""

from __future__ import annotations

from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.ops import composite
from rushlight.tensor import Tensor


class _MaybeInPlace(Module):
    """An activation that may write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_MaybeInPlace):
    """x where positive, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace)


class SiLU(_MaybeInPlace):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input, self.inplace)


class GELU(Module):
    """x times the normal distribution function of x, exactly or by tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return composite.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanh(input)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along a dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
