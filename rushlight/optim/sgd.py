"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight.core.errors import SparseOperandError
from rushlight.ops.create import creation
from rushlight.ops.optim.formula import Expr
from rushlight.ops.optim.whole_steps import Moves
from rushlight.optim.fused import FusedOptimizer, Numbers, State
from rushlight.optim.optimizer import Group, check_options, rate_of
from rushlight.optim.rows import move_rows
from rushlight.tape.record.value import Leaf
from rushlight.tensor import Tensor


class SGD(FusedOptimizer):
    """p <- p - lr * b, where b <- momentum * b + (1 - dampening) * g, and g itself the first time.

    `nesterov` steps by g + momentum * b. `foreach` and `fused` have no effect: every step is one
    fused kernel per parameter, one launch for a group where the device has lists.
    """

    counts_on_device = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"SGD: nesterov needs momentum and no dampening, got {momentum} and {dampening}"
            )
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
        }
        switches = {
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, {**options, "nesterov": nesterov, **switches})

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def numbers(self, group: Group, state: State) -> Numbers:
        momentum, share = group["momentum"], 1 - group["dampening"]
        first = state["step"] == 1  # the buffer is the gradient itself
        return {
            "rate": rate_of(group),
            "keep": 0.0 if first else momentum,
            "share": 1.0 if first else share,
            "ahead": momentum,
        }

    def choices(self, group: Group, state: State) -> dict[str, bool]:
        return {"nesterov": group["nesterov"]}

    @staticmethod
    def formula(
        p: Expr,
        g: Expr,
        momentum_buffer: Expr | None = None,
        *,
        rate: Expr,
        keep: Expr,
        share: Expr,
        ahead: Expr,
        nesterov: bool,
    ) -> Sequence[Expr]:
        if momentum_buffer is None:
            return (p - g * rate,)
        buffer = momentum_buffer * keep + g * share
        g = g + buffer * ahead if nesterov else buffer
        return p - g * rate, buffer

    def after(self, group: Group, state: State) -> None:
        if not group["momentum"]:
            state.clear()

    def prepare(self, group: Group, moves: Moves) -> None:
        """No steps are counted: the first step of a parameter is the one without a buffer."""
        update, later = self.kernel(group, {"step": 2})
        momentum, states, add = group["momentum"], self.state, self.adder(group, moves)
        for p in group["params"]:
            leaf = p._node
            if leaf is None:
                continue
            grad = leaf.grad if leaf.__class__ is Leaf else p.grad
            if grad is None:
                continue
            if not momentum:
                try:
                    add(update, (p, grad), later)
                except SparseOperandError:
                    if group["weight_decay"]:
                        raise
                    move_rows(moves, update, (p, grad), later)
                continue
            state, numbers = states.get(p), later
            if not state or state.get("momentum_buffer") is None:
                state, numbers = moves.begun.get(p), later
                if state is None:
                    state, (_, numbers) = self._begin(p, moves), self.kernel(group, {"step": 1})
            buffer = state["momentum_buffer"]
            try:
                add(update, (p, buffer, grad), numbers)
            except SparseOperandError as error:  # momentum changes all rows
                if group["weight_decay"]:
                    raise
                add(update, (p, buffer, error.obj.to_dense()), numbers)

    def can_leave_out(self, group: Group) -> bool:
        """With dampening the host must know which step is the first."""
        return super().can_leave_out(group) and not (group["momentum"] and group["dampening"])

    def prepare_unless(self, found: Tensor, group: Group, moves: Moves) -> None:
        numbers = self._numbers(group, {"step": 2})
        update = self._update(group, self.choices(group, {}), (*numbers,), ("found",))
        add = self.adder(group, moves)
        for p in group["params"]:
            if p.grad is None:
                continue
            buffers: tuple[Any, ...] = ()
            if group["momentum"]:
                state = self.state.get(p)
                if not state or state.get("momentum_buffer") is None:
                    state = self._begin(p, moves)
                buffers = (state["momentum_buffer"],)
            add(update, (p, *buffers, p.grad, found), (*numbers.values(),))

    def _begin(self, p: Tensor, moves: Moves) -> State:
        state = moves.begun[p] = {"momentum_buffer": creation.zeros_like(p)}
        known = self.state.get(p)
        if known is None:
            moves.put(self.state, p, state)
        else:  # a loaded state with other entries
            moves.put(known, "momentum_buffer", state["momentum_buffer"])
        return state
