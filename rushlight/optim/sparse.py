"""SparseAdam: Adam for the sparse gradients of embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation
from rushlight.ops.optim.fused import adam
from rushlight.ops.optim.whole_steps import Moves
from rushlight.optim.fused import check_betas
from rushlight.optim.optimizer import Group, Optimizer, check_options
from rushlight.optim.rows import move_rows
from rushlight.sparse.coo import SparseTensor


class SparseAdam(Optimizer):
    """Adam for sparse gradients: means and parameters of rows without a gradient stay as they are in that step."""

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
                        "SparseAdam requires dense parameter tensors; their gradients are what is sparse"
                    )

    def prepare(self, group: Group, moves: Moves) -> None:
        first, second = group["betas"]
        update = adam(False, False, False, group["maximize"])
        for p in group["params"]:
            grad: Any = p.grad
            if grad is None:
                continue
            if not isinstance(grad, SparseTensor):
                raise RushlightError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
            state = self.state.get(p)
            if not state:
                state = {
                    "step": 0,
                    "exp_avg": creation.zeros_like(p),
                    "exp_avg_sq": creation.zeros_like(p),
                }
                moves.begin(self.state, p, state)
            step = state["step"] + 1
            # The root is not corrected before eps is added: the correction is in the rate.
            rate = group["lr"] * (1 - second**step) ** 0.5 / (1 - first**step)
            numbers = (1 - first, second, 1 - second, rate, 1.0, group["eps"], 0.0)
            move_rows(moves, update, (p, state["exp_avg"], state["exp_avg_sq"], grad), numbers)
            moves.put(state, "step", step)
