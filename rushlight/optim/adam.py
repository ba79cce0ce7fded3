"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rushlight.ops.optim.fused import adam
from rushlight.ops.surface.inplace import Update
from rushlight.optim.fused import FusedOptimizer, State, check_betas
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.tensor import Tensor


class Adam(FusedOptimizer):
    """p <- p - lr * m / (sqrt(v) + eps), m and v the running means of g and g * g, corrected for their start at 0.

    `weight_decay` adds to the gradient, or scales the parameter where `decoupled_weight_decay`; `amsgrad` divides by the largest v
    so far. `foreach` and `fused` ask for what is done anyway: every step is one fused kernel per parameter.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        name = type(self).__name__
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError(
                f"{name}: lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        options = {
            "lr": lr,
            "betas": check_betas(name, betas),
            "eps": eps,
            "weight_decay": weight_decay,
        }
        switches = {"maximize": maximize, "foreach": foreach, "capturable": capturable}
        more = {
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, {**options, "amsgrad": amsgrad, **switches, **more})

    def kept(self, group: Group) -> tuple[str, ...]:
        return (
            ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
            if group["amsgrad"]
            else ("exp_avg", "exp_avg_sq")
        )

    def update(self, group: Group, state: State) -> Update:
        return adam(
            group["decoupled_weight_decay"],
            group["weight_decay"] != 0,
            group["amsgrad"],
            group["maximize"],
        )

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        (beta, keep), step, lr, decay = (
            group["betas"],
            state["step"],
            rate_of(group),
            group["weight_decay"],
        )
        if group["decoupled_weight_decay"]:
            decay = 1 - lr * decay
        rate, correction = lr / (1 - beta**step), math.sqrt(1 - keep**step)
        return 1 - beta, keep, 1 - keep, rate, correction, group["eps"], decay


class AdamW(Adam):
    """Adam whose weight decay scales the parameter, p <- p * (1 - lr * weight_decay), and does not enter the means."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
