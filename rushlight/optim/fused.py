"""The base of optimisers whose step is one kernel on a parameter, its state and its gradient."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import SparseOperandError
from rushlight.ops import creation
from rushlight.ops.inplace import Update
from rushlight.ops.optimise import advance
from rushlight.ops.steps import taken
from rushlight.optim.optimizer import Group, Optimizer
from rushlight.optim.rows import advance_rows
from rushlight.tape.state import enable_grad
from rushlight.tensor import Tensor

State = dict[str, Any]


class FusedOptimizer(Optimizer):
    """A subclass says what it keeps, which kernel it runs and with which numbers."""

    by_rows = (
        False  # whether a row whose gradient is zero stays as it is, so that a sparse gradient moves its rows only
    )

    def kept(self, group: Group) -> tuple[str, ...]:
        """The names of the state's tensors, in the kernel's order."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it keeps")

    def update(self, group: Group, state: State) -> Update:
        """The kernel of this step."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to step")

    def numbers(self, group: Group, state: State) -> tuple[Any, ...]:
        """The kernel's numbers for this step; `state["step"]` counts from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to step")

    def start(self, state: State, p: Tensor, group: Group) -> None:
        state["step"] = 0
        for name in self.kept(group):
            state[name] = creation.zeros_like(p)

    def after(self, group: Group, state: State) -> None:
        """What changes between steps beside the kernel's tensors."""

    def step_group(self, group: Group, undisturbed: bool) -> None:
        names = self.kept(group)
        for p in group["params"]:
            leaf = p.node
            if leaf is None or leaf.grad is None:
                continue
            state = self.state[p]
            if not state:
                self.start(state, p, group)
            state["step"] += 1
            values = (p, *(state[name] for name in names), leaf.grad)
            try:
                advance(self.update(group, state), values, self.numbers(group, state), undisturbed)
            except SparseOperandError:
                if not self.by_rows or group["weight_decay"]:
                    raise
                advance_rows(self.update(group, state), values, self.numbers(group, state))
            self.after(group, state)

    def step_on_tape(self, group: Group) -> None:
        """The same formula as an op with a derivative; parameters that are results get a record, leaves cannot."""
        if group.get("foreach"):
            raise AssertionError("_foreach ops don't support autograd: differentiable needs foreach=False or None")
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                self.start(state, p, group)
            state["step"] = state.get("step", 1) + 1  # SGD counts none elsewhere
            names = self.kept(group)
            with enable_grad():
                numbers = self.numbers(group, state)
                made = taken(self.update(group, state), (p, *(state[name] for name in names), p.grad), numbers)
                p.copy_(made[0])
                state.update(zip(names, made[1:], strict=True))
                self.after(group, state)


def check_betas(name: str, betas: tuple[float, float]) -> tuple[float, float]:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name}: betas must lie in [0, 1), got {betas}")
    first, second = betas
    return first, second
