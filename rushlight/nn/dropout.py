"""Dropout of elements, of whole channels, and the variant for SELU."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.ops.nn import dropout
from rushlight.tensor import Tensor


class Dropout(Module):
    """In training, zero each element with probability p and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: the probability must lie in [0, 1], got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return (
            functional.dropout(input, self.p, self.training, self.inplace)
            if self.training
            else input
        )

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class _DropoutOf(Dropout):
    function: Callable[..., Tensor]

    def forward(self, input: Tensor) -> Tensor:
        drop = type(self).function
        return drop(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutOf):
    """In training, zero whole channels of (batch, channel, length)."""

    function = staticmethod(dropout.dropout1d)


class Dropout2d(_DropoutOf):
    """In training, zero whole channels of (batch, channel, height, width)."""

    function = staticmethod(dropout.dropout2d)


class Dropout3d(_DropoutOf):
    """In training, zero whole channels of (batch, channel, depth, height, width)."""

    function = staticmethod(dropout.dropout3d)


class AlphaDropout(_DropoutOf):
    """In training, dropout that keeps mean 0 and variance 1."""

    function = staticmethod(dropout.alpha_dropout)


class FeatureAlphaDropout(_DropoutOf):
    """In training, AlphaDropout of whole channels."""

    function = staticmethod(dropout.feature_alpha_dropout)
