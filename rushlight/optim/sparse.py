"""SparseAdam: Adam for the sparse gradients of embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.optim.whole_steps import Moves
from rushlight.optim.adam import Adam, adam_numbers
from rushlight.optim.fused import FusedOptimizer, Numbers, State, check_betas
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.sparse.coo import SparseTensor


class SparseAdam(FusedOptimizer):
    """Adam for sparse gradients: rows without a gradient, and their means, stay."""

    by_rows = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_options(lr=lr, eps=eps)
        if not lr > 0:
            raise ValueError(f"SparseAdam: lr must be above 0, got {lr}")
        options = {
            "lr": lr,
            "betas": check_betas("SparseAdam", betas),
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                if isinstance(p, SparseTensor):
                    raise ValueError(
                        "SparseAdam requires dense parameter tensors; their gradients are what is "
                        "sparse"
                    )

    def kept(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def numbers(self, group: Group, state: State) -> Numbers:
        # eps is added to the uncorrected root: the correction is in the rate.
        (first, second), step = group["betas"], state["step"]
        rate = rate_of(group) * (1 - second**step) ** 0.5 / (1 - first**step)
        return {**adam_numbers(group, state), "rate": rate, "correction": 1.0}

    formula = staticmethod(Adam.formula)

    def prepare(self, group: Group, moves: Moves) -> None:
        for p in group["params"]:
            if p.grad is not None and not isinstance(p.grad, SparseTensor):
                raise RushlightError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
        super().prepare(group, moves)
