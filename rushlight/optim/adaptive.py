"""Optimisers that divide by the size of past gradients: Adadelta, Adagrad, RMSprop, Adamax, NAdam, RAdam.

`foreach` and `fused` ask for what is done anyway: every step is one fused kernel per
parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rushlight.ops.create import creation
from rushlight.ops.optim import formulas
from rushlight.ops.surface.inplace import Update
from rushlight.optim.fused import FusedOptimizer, State, check_betas
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.tensor import Tensor


class Adadelta(FusedOptimizer):
    """p <- p - lr * d, d the gradient times the root mean square of past steps over that of past gradients."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0 <= rho <= 1:
            raise ValueError(f"Adadelta: rho must lie between 0 and 1, got {rho}")
        options = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **switches,
        }
        super().__init__(params, options)

    def kept(self, group: Group) -> tuple[str, ...]:
        return "square_avg", "acc_delta"

    def update(self, group: Group, state: State) -> Update:
        return formulas.adadelta(group["weight_decay"] != 0, group["maximize"])

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        rho = group["rho"]
        return rate_of(group), rho, 1 - rho, group["eps"], group["weight_decay"]


class Adagrad(FusedOptimizer):
    """p <- p - lr * g / (sqrt(sum of g * g) + eps)."""

    by_rows = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        switches = {"foreach": foreach, "differentiable": differentiable, "fused": fused}
        check_options(
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **switches,
        }
        super().__init__(
            params, {**options, "initial_accumulator_value": initial_accumulator_value}
        )
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self.start(p, group)

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def start(self, p: Tensor, group: Group) -> State:
        return {
            "step": 0,
            "sum": creation.like(p, group["initial_accumulator_value"], None, None, False),
        }

    def update(self, group: Group, state: State) -> Update:
        return formulas.adagrad(group["weight_decay"] != 0, group["maximize"])

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        rate = rate_of(group) / (1 + (state["step"] - 1) * group["lr_decay"])
        return rate, group["eps"], group["weight_decay"]


class RMSprop(FusedOptimizer):
    """p <- p - lr * g / (sqrt(v) + eps), v the running mean of g * g, less that of g squared where `centered`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        options = {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered}
        super().__init__(
            params, {**options, "weight_decay": weight_decay, "maximize": maximize, **switches}
        )

    def kept(self, group: Group) -> tuple[str, ...]:
        more = ("grad_avg",) * bool(group["centered"]) + ("momentum_buffer",) * (
            group["momentum"] > 0
        )
        return ("square_avg", *more)

    def update(self, group: Group, state: State) -> Update:
        return formulas.rmsprop(
            group["weight_decay"] != 0,
            group["maximize"],
            bool(group["centered"]),
            group["momentum"] > 0,
        )

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        alpha = group["alpha"]
        return (
            rate_of(group),
            alpha,
            1 - alpha,
            group["eps"],
            group["momentum"],
            group["weight_decay"],
        )


class Adamax(FusedOptimizer):
    """p <- p - lr * m / u, m the running mean of g, corrected for its start at 0, and u its fading largest size."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        options = {
            "lr": lr,
            "betas": check_betas("Adamax", betas),
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, {**options, "maximize": maximize, **switches})

    def kept(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_inf"

    def update(self, group: Group, state: State) -> Update:
        return formulas.adamax(group["weight_decay"] != 0, group["maximize"])

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        beta, keep = group["betas"]
        rate = rate_of(group) / (1 - beta ** state["step"])
        return rate, 1 - beta, keep, group["eps"], group["weight_decay"]


def _decay(group: Group) -> Any:
    decoupled, decay = group["decoupled_weight_decay"], group["weight_decay"]
    return 1 - rate_of(group) * decay if decoupled else decay


class _OfMoments(FusedOptimizer):
    """With running means of the gradient and of its square."""

    def kept(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"


class NAdam(_OfMoments):
    """Adam whose step looks ahead: Nesterov's momentum, growing with `momentum_decay`."""

    by_step = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        options = {
            "lr": lr,
            "betas": check_betas("NAdam", betas),
            "eps": eps,
            "weight_decay": weight_decay,
        }
        more = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**options, **more, "maximize": maximize, **switches})

    def start(self, p: Tensor, group: Group) -> State:
        return {**super().start(p, group), "mu_product": 1.0}

    def update(self, group: Group, state: State) -> Update:
        return formulas.nadam(
            group["weight_decay"] != 0, group["decoupled_weight_decay"], group["maximize"]
        )

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        (beta, keep), step, pace = group["betas"], state["step"], group["momentum_decay"]
        lr = rate_of(group)
        mu, mu_next = (beta * (1 - 0.5 * 0.96 ** (t * pace)) for t in (step, step + 1))
        product = state["mu_product"] = float(state["mu_product"]) * mu
        now, ahead = lr * (1 - mu) / (1 - product), lr * mu_next / (1 - product * mu_next)
        return 1 - beta, keep, 1 - keep, 1 - keep**step, now, ahead, group["eps"], _decay(group)


class RAdam(_OfMoments):
    """Adam that leaves the variance out until enough steps tell it, and corrects for what is unsure after that."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        options = {
            "lr": lr,
            "betas": check_betas("RAdam", betas),
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(
            params,
            {
                **options,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                **switches,
            },
        )

    def _sure(self, group: Group, state: State) -> tuple[float, float]:
        """How many steps' worth of variance there can be, and is."""
        keep, step = group["betas"][1], state["step"]
        most = 2 / (1 - keep) - 1
        return most, most - 2 * step * keep**step / (1 - keep**step)

    def update(self, group: Group, state: State) -> Update:
        rectified = self._sure(group, state)[1] > 5
        decays, decoupled = group["weight_decay"] != 0, group["decoupled_weight_decay"]
        return formulas.radam(decays, decoupled, group["maximize"], rectified)

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        (beta, keep), step = group["betas"], state["step"]
        most, now = self._sure(group, state)
        rate = rate_of(group) / (1 - beta**step)
        correction = math.sqrt(1 - keep**step)
        if now > 5:
            rate *= math.sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now))
        return 1 - beta, keep, 1 - keep, rate, correction, group["eps"], _decay(group)
