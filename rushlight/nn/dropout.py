"""Dropout."""

from __future__ import annotations

from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.tensor import Tensor


class Dropout(Module):
    """In training, zero each element with probability p and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: the probability must lie in [0, 1], got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training, self.inplace) if self.training else input

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
