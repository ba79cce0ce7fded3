"""ASGD, which averages its parameters, and Rprop, which uses the signs of gradients alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.ops.create import creation
from rushlight.ops.optim.counted import chosen, largest, plain
from rushlight.ops.optim.formula import Expr, const, maximum, minimum, where
from rushlight.optim.fused import FusedOptimizer, Numbers, State
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.tensor import Tensor


class ASGD(FusedOptimizer):
    """Stochastic gradient descent with decaying steps.

    `state[p]["ax"]` is the mean of p since `t0`.
    """

    by_step = False
    counts = ("step", "eta", "mu")
    counts_on_device = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr, weight_decay=weight_decay)
        options = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": maximize, **switches})

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("ax",)

    def start(self, p: Tensor, group: Group) -> State:
        return {**super().start(p, group), "eta": rate_of(group), "mu": 1.0}

    def numbers(self, group: Group, state: State) -> Numbers:
        # A first step that was left out has begun the state with the rate of that time.
        eta = chosen(state["step"] > 1, state["eta"], rate_of(group))
        eta = eta if group["differentiable"] else plain(eta)
        return {"shrink": 1 - group["lambd"] * eta, "rate": eta, "share": plain(state["mu"])}

    @staticmethod
    def formula(
        p: Expr, g: Expr, ax: Expr, *, shrink: Expr, rate: Expr, share: Expr
    ) -> Sequence[Expr]:
        p = p * shrink - rate * g
        return p, ax + (p - ax) * share

    def after(self, group: Group, state: State) -> None:
        lr, step = rate_of(group), state["step"]
        state["eta"] = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
        state["mu"] = 1 / largest(step - group["t0"], 1.0)


class Rprop(FusedOptimizer):
    """Each element has a step size: it grows while the gradient keeps its sign, else shrinks."""

    counts_on_device = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        switches = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        check_options(lr=lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"Rprop: etas must be below and above 1, got {etas}")
        super().__init__(
            params,
            {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize, **switches},
        )

    def kept(self, group: Group) -> tuple[str, ...]:
        return "prev", "step_size"

    def start(self, p: Tensor, group: Group) -> State:
        return {
            **super().start(p, group),
            "step_size": creation.like(p, float(group["lr"]), None, None, False),
        }

    def numbers(self, group: Group, state: State) -> Numbers:
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        made = {"shrink": shrink, "grow": grow, "least": least, "most": most}
        # A first step that was left out has begun the state with the rate of that time.
        return {**made, "begin": float(group["lr"]), "later": chosen(state["step"] > 1, 1, 0)}

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        prev: Expr,
        step_size: Expr,
        *,
        shrink: Expr,
        grow: Expr,
        least: Expr,
        most: Expr,
        begin: Expr,
        later: Expr,
    ) -> Sequence[Expr]:
        step_size = where(later > 0, step_size, begin)
        turn = g * prev
        size = step_size * where(turn > 0, grow, where(turn < 0, shrink, const(1, p.dtype)))
        size = minimum(maximum(size, least), most)
        g = where(turn < 0, const(0, p.dtype), g)
        return p - where(g > 0, size, where(g < 0, -size, const(0, p.dtype))), g, size
