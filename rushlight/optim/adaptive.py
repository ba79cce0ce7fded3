"""Optimisers that divide by the size of past gradients.

They are Adadelta, Adagrad, RMSprop, Adamax, NAdam and RAdam. `foreach` and `fused` have no effect:
every step is one fused kernel per parameter, one launch for a group where the device has lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.ops.create import creation
from rushlight.ops.optim.counted import Counted, chosen, lacking, largest, plain, root
from rushlight.ops.optim.formula import Expr, absolute, maximum, sqrt, where
from rushlight.optim.fused import FusedOptimizer, Numbers, State, check_betas
from rushlight.optim.optimizer import Group, ParameterState, check_options, rate_of
from rushlight.tensor import Tensor


class Adadelta(FusedOptimizer):
    """p <- p - lr * d, d the gradient times the RMS of past steps over that of past gradients."""

    counts_on_device = True

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

    def numbers(self, group: Group, state: State) -> Numbers:
        rho = group["rho"]
        return {"rate": rate_of(group), "keep": rho, "rest": 1 - rho, "eps": group["eps"]}

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        square_avg: Expr,
        acc_delta: Expr,
        *,
        rate: Expr,
        keep: Expr,
        rest: Expr,
        eps: Expr,
    ) -> Sequence[Expr]:
        v = square_avg * keep + g * g * rest
        delta = sqrt(acc_delta + eps) / sqrt(v + eps) * g
        return p - delta * rate, v, acc_delta * keep + delta * delta * rest


class Adagrad(FusedOptimizer):
    """p <- p - lr * g / (sqrt(sum of g * g) + eps)."""

    by_rows = True
    counts_on_device = True

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
                self.state[p] = ParameterState(self.start(p, group))

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def start(self, p: Tensor, group: Group) -> State:
        return {
            "step": 0,
            "sum": creation.like(p, group["initial_accumulator_value"], None, None, False),
        }

    def numbers(self, group: Group, state: State) -> Numbers:
        rate = rate_of(group) / (1 + (state["step"] - 1) * group["lr_decay"])
        return {"rate": rate, "eps": group["eps"]}

    @staticmethod
    def formula(p: Expr, g: Expr, sum: Expr, *, rate: Expr, eps: Expr) -> Sequence[Expr]:
        total = sum + g * g
        return p - rate * (g / (sqrt(total) + eps)), total


class RMSprop(FusedOptimizer):
    """p <- p - lr * g / (sqrt(v) + eps), v the running mean of g * g.

    With `centered`, v is less the square of the running mean of g.
    """

    counts_on_device = True

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

    def numbers(self, group: Group, state: State) -> Numbers:
        alpha = group["alpha"]
        return {
            "rate": rate_of(group),
            "keep": alpha,
            "rest": 1 - alpha,
            "eps": group["eps"],
            "momentum": group["momentum"],
        }

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        square_avg: Expr,
        grad_avg: Expr | None = None,
        momentum_buffer: Expr | None = None,
        *,
        rate: Expr,
        keep: Expr,
        rest: Expr,
        eps: Expr,
        momentum: Expr,
    ) -> Sequence[Expr]:
        v = spread = square_avg * keep + g * g * rest
        new = [v]
        if grad_avg is not None:
            mean = grad_avg + (g - grad_avg) * rest
            spread = v - mean * mean
            new.append(mean)
        step = g / (sqrt(spread) + eps)
        if momentum_buffer is not None:
            step = momentum_buffer * momentum + step
            new.append(step)
        return p - rate * step, *new


class Adamax(FusedOptimizer):
    """p <- p - lr * m / u, m the bias-corrected running mean of g, u a decaying maximum of |g|."""

    counts_on_device = True

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

    def numbers(self, group: Group, state: State) -> Numbers:
        beta, keep = group["betas"]
        rate = rate_of(group) / lacking(beta, state["step"])
        return {"rate": rate, "towards": 1 - beta, "keep": keep, "eps": group["eps"]}

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        exp_avg: Expr,
        exp_inf: Expr,
        *,
        rate: Expr,
        towards: Expr,
        keep: Expr,
        eps: Expr,
    ) -> Sequence[Expr]:
        m = exp_avg + (g - exp_avg) * towards
        top = maximum(exp_inf * keep, absolute(g) + eps)
        return p - rate * (m / top), m, top


class _OfMoments(FusedOptimizer):
    """With running means of the gradient and of its square."""

    def kept(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"


class NAdam(_OfMoments):
    """Adam with Nesterov's momentum, which grows with `momentum_decay`."""

    by_step = False
    counts = ("step", "mu_product")
    counts_on_device = True

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

    def numbers(self, group: Group, state: State) -> Numbers:
        (beta, keep), step, pace = group["betas"], state["step"], group["momentum_decay"]
        lr = rate_of(group)
        mu, mu_next = (beta * (1 - 0.5 * 0.96 ** (t * pace)) for t in (step, step + 1))
        product = state["mu_product"] = plain(state["mu_product"]) * mu
        return {
            "towards": 1 - beta,
            "keep": keep,
            "rest": 1 - keep,
            "correction": lacking(keep, step),
            "now": lr * (1 - mu) / (1 - product),
            "ahead": lr * mu_next / (1 - product * mu_next),
            "eps": group["eps"],
        }

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        exp_avg: Expr,
        exp_avg_sq: Expr,
        *,
        towards: Expr,
        keep: Expr,
        rest: Expr,
        correction: Expr,
        now: Expr,
        ahead: Expr,
        eps: Expr,
    ) -> Sequence[Expr]:
        m = exp_avg + (g - exp_avg) * towards
        v = exp_avg_sq * keep + g * g * rest
        size = sqrt(v / correction) + eps
        return p - now * (g / size) - ahead * (m / size), m, v


class RAdam(_OfMoments):
    """Adam that ignores the variance for the first steps and rectifies it after that."""

    counts_on_device = True

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

    def _sure(self, group: Group, state: State) -> tuple[float, Any]:
        """The largest and the present length of the approximated moving average of the variance."""
        keep, step = group["betas"][1], state["step"]
        most = 2 / (1 - keep) - 1
        return most, most - 2 * step * keep**step / lacking(keep, step)

    def numbers(self, group: Group, state: State) -> Numbers:
        (beta, keep), step = group["betas"], state["step"]
        most, now = self._sure(group, state)
        rate = whole = rate_of(group) / lacking(beta, step)
        if most > 5:  # else no length is
            enough = largest(now, 5.0)
            share = (enough - 4) * (enough - 2) * most / ((most - 4) * (most - 2) * enough)
            whole = rate * root(share)
        made = {
            "towards": 1 - beta,
            "keep": keep,
            "rest": 1 - keep,
            "rate": chosen(now > 5, whole, rate),
            "correction": root(lacking(keep, step)),
            "eps": group["eps"],
        }
        return {**made, "rectified": chosen(now > 5, 1, 0)} if isinstance(now, Counted) else made

    def choices(self, group: Group, state: State) -> dict[str, bool]:
        now = self._sure(group, state)[1]
        return {} if isinstance(now, Counted) else {"rectified": now > 5}

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        exp_avg: Expr,
        exp_avg_sq: Expr,
        *,
        towards: Expr,
        keep: Expr,
        rest: Expr,
        rate: Expr,
        correction: Expr,
        eps: Expr,
        rectified: bool | Expr,
    ) -> Sequence[Expr]:
        m = exp_avg + (g - exp_avg) * towards
        v = exp_avg_sq * keep + g * g * rest
        step = m * rate
        if rectified is not False:
            whole = step * (correction / (sqrt(v) + eps))
            step = whole if rectified is True else where(rectified > 0, whole, step)
        return p - step, m, v
