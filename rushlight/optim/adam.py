"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.ops.optim.counted import lacking, root
from rushlight.ops.optim.formula import Expr, maximum, sqrt
from rushlight.optim.fused import FusedOptimizer, Numbers, State, check_betas
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.tensor import Tensor


class Adam(FusedOptimizer):
    """p <- p - lr * m / (sqrt(v) + eps), m and v the bias-corrected running means of g and g * g.

    `weight_decay` adds to the gradient, or scales the parameter where `decoupled_weight_decay`;
    `amsgrad` divides by the largest v so far. `foreach` and `fused` have no effect: every step is
    one fused kernel per parameter, one launch for a group where the device has lists.
    """

    counts_on_device = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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

    def numbers(self, group: Group, state: State) -> Numbers:
        return adam_numbers(group, state)

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        exp_avg: Expr,
        exp_avg_sq: Expr,
        max_exp_avg_sq: Expr | None = None,
        *,
        towards: Expr,
        keep: Expr,
        rest: Expr,
        rate: Expr,
        correction: Expr,
        eps: Expr,
    ) -> Sequence[Expr]:
        m = exp_avg + (g - exp_avg) * towards
        v = exp_avg_sq * keep + g * g * rest
        if max_exp_avg_sq is None:
            return p - rate * (m / (sqrt(v) / correction + eps)), m, v
        top = maximum(max_exp_avg_sq, v)
        return p - rate * (m / (sqrt(top) / correction + eps)), m, v, top


def adam_numbers(group: Group, state: State) -> Numbers:
    (beta, keep), step = group["betas"], state["step"]
    return {
        "towards": 1 - beta,
        "keep": keep,
        "rest": 1 - keep,
        "rate": rate_of(group) / lacking(beta, step),
        "correction": root(lacking(keep, step)),
        "eps": group["eps"],
    }


class AdamW(Adam):
    """Adam with decoupled weight decay: p <- p * (1 - lr * weight_decay) before the step."""

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
