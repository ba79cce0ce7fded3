"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rushlight.ops import creation
from rushlight.ops.optimise import adam, advance
from rushlight.optim.optimizer import Group, Optimizer, check_options
from rushlight.tensor import Tensor


class Adam(Optimizer):
    """p <- p - lr * m / (sqrt(v) + eps), m and v the running means of g and g * g, corrected for their start at 0.

    `weight_decay` adds to the gradient; `amsgrad` divides by the largest v so far. `foreach` and `fused` are accepted
    for PyTorch's sake: every step is one fused kernel per parameter.
    """

    decoupled = False  # AdamW: weight decay scales the parameter instead

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"{type(self).__name__}: betas must lie in [0, 1), got {betas}")
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "amsgrad": amsgrad, "maximize": maximize})

    def step_group(self, group: Group, undisturbed: bool) -> None:
        lr, (beta, beta_square), eps = float(group["lr"]), group["betas"], group["eps"]
        weight_decay, amsgrad = group["weight_decay"], group["amsgrad"]
        update = adam(self.decoupled, weight_decay != 0, amsgrad, group["maximize"])
        decay = 1 - lr * weight_decay if self.decoupled else weight_decay
        states = self.state
        count = 0
        params: tuple[float, ...] = ()
        values: tuple[Tensor, ...]
        for p in group["params"]:
            leaf = p.node
            if leaf is None or leaf.grad is None:
                continue
            state = states[p]
            if not state:
                _start(state, p, amsgrad)
            step = state["step"] = state["step"] + 1
            if step != count:
                count = step
                rate = lr / (1 - beta**step)
                correction = math.sqrt(1 - beta_square**step)
                params = (1 - beta, beta_square, 1 - beta_square, rate, correction, eps, decay)
            if amsgrad:
                values = (p, state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"], leaf.grad)
            else:
                values = (p, state["exp_avg"], state["exp_avg_sq"], leaf.grad)
            advance(update, values, params, undisturbed)


def _start(state: dict[str, Any], p: Tensor, amsgrad: bool) -> None:
    state["step"] = 0
    state["exp_avg"] = creation.zeros_like(p)
    state["exp_avg_sq"] = creation.zeros_like(p)
    if amsgrad:
        state["max_exp_avg_sq"] = creation.zeros_like(p)


class AdamW(Adam):
    """Adam whose weight decay scales the parameter, p <- p * (1 - lr * weight_decay), and does not enter the means."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
