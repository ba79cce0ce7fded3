"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.core.errors import SparseOperandError
from rushlight.ops import creation
from rushlight.ops.inplace import Update
from rushlight.ops.optimise import advance, sgd
from rushlight.optim.fused import FusedOptimizer, State
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.optim.rows import advance_rows


class SGD(FusedOptimizer):
    """p <- p - lr * b, where b <- momentum * b + (1 - dampening) * g, and g itself the first time.

    `nesterov` steps by g + momentum * b. `foreach` and `fused` ask for what is done anyway: every step is one fused kernel
    per parameter.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"SGD: nesterov needs momentum and no dampening, got {momentum} and {dampening}")
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        switches = {"maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused}
        super().__init__(params, {**options, "nesterov": nesterov, **switches})

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def update(self, group: Group, state: State) -> Update:
        return sgd(group["momentum"] != 0, group["nesterov"], group["weight_decay"] != 0, group["maximize"])

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        lr, momentum, decay = rate_of(group), group["momentum"], group["weight_decay"]
        if state["step"] == 1:  # the buffer is the gradient itself
            return lr, decay, 0.0, 1.0, momentum
        return lr, decay, momentum, 1 - group["dampening"], momentum

    def after(self, group: Group, state: State) -> None:
        if not group["momentum"]:
            state.clear()

    def step_group(self, group: Group, undisturbed: bool) -> None:
        lr, momentum, decay = float(group["lr"]), group["momentum"], group["weight_decay"]
        update = sgd(momentum != 0, group["nesterov"], decay != 0, group["maximize"])
        first = (lr, decay, 0.0, 1.0, momentum)
        later = (lr, decay, momentum, 1 - group["dampening"], momentum)
        states = self.state
        for p in group["params"]:
            leaf = p.node
            if leaf is None or leaf.grad is None:
                continue
            if not momentum:
                try:
                    advance(update, (p, leaf.grad), later, undisturbed)
                except SparseOperandError:
                    if decay:
                        raise
                    advance_rows(update, (p, leaf.grad), later)
                continue
            state = states[p]
            buffer, numbers = state.get("momentum_buffer"), later
            if buffer is None:
                state["momentum_buffer"] = buffer = creation.zeros_like(p)
                numbers = first
            try:
                advance(update, (p, buffer, leaf.grad), numbers, undisturbed)
            except SparseOperandError as error:  # momentum moves all rows
                if decay:
                    raise
                advance(update, (p, buffer, error.obj.to_dense()), numbers, undisturbed)
