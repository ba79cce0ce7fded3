"""Losses as layers."""

from __future__ import annotations

from rushlight.nn.module import Module
from rushlight.ops import composite, losses
from rushlight.tensor import Tensor


class CrossEntropyLoss(Module):
    """Negative log likelihood of the target classes under softmax along dimension 1."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return losses.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class MSELoss(Module):
    """Squared differences, averaged, summed or as they are."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return composite.mse_loss(input, target, self.reduction)
