"""The base of optimisers whose step is one kernel on a parameter, its state and its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import setitem
from typing import Any, ClassVar

from rushlight.compat.torch_function import overrides, part_of
from rushlight.core.dtypes import DType
from rushlight.core.errors import SparseOperandError
from rushlight.ops.create import creation
from rushlight.ops.optim.counted import counted
from rushlight.ops.optim.differentiable import taken
from rushlight.ops.optim.formula import Formula, kernel_of
from rushlight.ops.optim.whole_steps import Moves, has_lists
from rushlight.ops.view.inplace import Update, prepare_copy
from rushlight.optim.optimizer import Group, Optimizer, ParameterState, count_of, rate_of
from rushlight.optim.rows import move_rows
from rushlight.tape.record.state import enable_grad
from rushlight.tape.record.value import Leaf
from rushlight.tensor import Tensor

State = dict[str, Any]
_HELD = dict.__getitem__  # of a ParameterState, without the reader's tensor of the count
Numbers = dict[str, Any]  # by name; tensors where `lr` is one and the step is differentiable


@functools.cache
def _picker(names: tuple[str, ...]) -> Callable[[State], tuple[Any, ...]]:
    """A function that reads some names of a state."""
    return lambda state: tuple([_HELD(state, name) for name in names])


class FusedOptimizer(Optimizer):
    """A subclass declares its state, its numbers and its formula, each once. See Note [Optimisers].

    The options `maximize`, `weight_decay` and `decoupled_weight_decay` are handled here.
    """

    formula: ClassVar[Formula]  # a static method; state, numbers and choices come by name

    # Whether a row without gradient stays, so that a sparse gradient changes its rows only.
    by_rows = False
    # Whether kernel and numbers are equal for all parameters with the same step count.
    by_step = True
    # The plain numbers of a state that a step changes.
    counts: ClassVar[tuple[str, ...]] = ("step",)
    # Whether `numbers` and `after` take counted numbers: Note [Steps decided on the device]. A
    # subclass that changes the step says so anew.
    counts_on_device: ClassVar[bool] = False

    def kept(self, group: Group) -> tuple[str, ...]:
        """The names of the state's tensors, in the order in which the formula gives them."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it keeps")

    def numbers(self, group: Group, state: State) -> Numbers:
        """The formula's numbers for this step, by name; `state["step"]` counts from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to step")

    def choices(self, group: Group, state: State) -> dict[str, bool]:
        """The formula's choices for this step, by name."""
        return {}

    def kernel(self, group: Group, state: State) -> tuple[Update, tuple[Any, ...]]:
        """The kernel of this step and its numbers."""
        numbers = self._numbers(group, state)
        choices = self.choices(group, state)
        return self._update(group, choices, (*numbers,), ()), (*numbers.values(),)

    def _numbers(self, group: Group, state: State) -> Numbers:
        """The formula's numbers and that of its weight decay."""
        numbers, weight_decay = self.numbers(group, state), group.get("weight_decay")
        if weight_decay is not None:
            decoupled = group.get("decoupled_weight_decay")
            numbers["decay"] = 1 - rate_of(group) * weight_decay if decoupled else weight_decay
        return numbers

    def _update(
        self,
        group: Group,
        choices: dict[str, bool],
        numbers: tuple[str, ...],
        operands: tuple[str, ...],
    ) -> Update:
        kind = type(self)
        return kernel_of(
            kind.formula,
            kind.__name__.lower(),
            kind.__doc__ or "",
            self.kept(group),
            numbers,
            operands,
            (*choices.items(),),
            bool(group.get("weight_decay")),
            bool(group.get("decoupled_weight_decay")),
            bool(group.get("maximize")),
        )

    def start(self, p: Tensor, group: Group) -> State:
        """The state before the first step."""
        return {"step": 0, **{name: creation.zeros_like(p) for name in self.kept(group)}}

    def after(self, group: Group, state: State) -> None:
        """Changes between steps beside the kernel's tensors."""

    def adder(self, group: Group, moves: Moves) -> Callable[..., None]:
        """How a group's updates are collected: in lists, where its device has them."""
        params = group["params"]
        if any(map(overrides, set(map(type, params)))):
            return lambda update, values, numbers: moves.add(
                update, tuple(map(part_of, values)), numbers
            )
        listed = bool(params) and not self._repeats and has_lists(params[0])
        return moves.add_listed if listed else moves.add

    def prepare(self, group: Group, moves: Moves) -> None:
        states, put, repeats, by_step = self.state, moves.acts.append, self._repeats, self.by_step
        pick = _picker(self.kept(group))
        pending: dict[Tensor, State] = {}
        count, numbers = -1, ()
        update: Any = None
        add = self.adder(group, moves)
        for p in group["params"]:
            leaf = p._node
            if leaf is None:
                continue
            grad = leaf.grad if leaf.__class__ is Leaf else p.grad
            if grad is None:
                continue
            state = seen = states.get(p) or self.begin(p, group, moves)
            if repeats:  # listed twice: continue from its pending state
                seen = pending.setdefault(p, dict(state))
            step = _HELD(seen, "step")
            step = (step if step.__class__ is int else int(step)) + 1
            if not by_step:
                change = {**seen, "step": step}
                update, numbers = self.kernel(group, change)
                self.after(group, change)
                put((state.update, change))
            else:
                if step != count:
                    change = {"step": step}
                    count, (update, numbers) = step, self.kernel(group, change)
                put((setitem, state, "step", step))
            if repeats:
                seen.update(change if not by_step else {"step": step})
            values = (p, *pick(state), grad)
            try:
                add(update, values, numbers)
            except SparseOperandError:
                if not self.by_rows or group.get("weight_decay"):
                    raise
                move_rows(moves, update, values, numbers)

    def can_leave_out(self, group: Group) -> bool:
        return (
            _counts_on_device(type(self))
            and not self._repeats
            and not group.get("differentiable")
            and not any(
                overrides(type(p)) or (p.grad is not None and p.grad.is_sparse)
                for p in group["params"]
            )
        )

    def prepare_unless(self, found: Tensor, group: Group, moves: Moves) -> None:
        add, pick, known = self.adder(group, moves), _picker(self.kept(group)), {}
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state.get(p) or self.begin(p, group, moves)
            old = [_shared(_HELD(state, name), found) for name in self.counts]
            key = (p.dtype, *[id(v) if isinstance(v, Tensor) else v for v in old])
            if key not in known:
                known[key] = self._counted(found, group, old, p.dtype)
            update, counts, operands, numbers = known[key]
            moves.acts += [(setitem, state, name, value) for name, value in counts.items()]
            add(update, (p, *pick(state), p.grad, found, *operands), numbers)

    def _counted(self, found: Tensor, group: Group, old: list[Any], dtype: DType) -> Any:
        """The kernel of a step from some counts, the new counts, its operands and its numbers."""
        choices: dict[str, bool] = {}

        def numbers(counts: State) -> Numbers:
            made = self._numbers(group, counts)
            choices.update(self.choices(group, counts))
            self.after(group, counts)
            return made

        counts, named = counted(numbers, dict(zip(self.counts, old, strict=True)), found, dtype)
        held = {name: x for name, x in named.items() if isinstance(x, Tensor)}
        given = {name: x for name, x in named.items() if name not in held}
        update = self._update(group, choices, (*given,), ("found", *held))
        return update, counts, (*held.values(),), (*given.values(),)

    def begin(self, p: Tensor, group: Group, moves: Moves) -> State:
        """The state of a parameter that has none; it is stored when the step is made."""
        state = moves.begun.get(p)
        if state is None:
            state = moves.begun[p] = ParameterState(self.start(p, group))
            moves.begin(self.state, p, state)
        return state

    def prepare_on_tape(self, group: Group, moves: Moves) -> None:
        """The same formula as an op with a derivative; results get a record, leaves cannot."""
        if group.get("foreach"):
            raise AssertionError(
                "_foreach ops don't support autograd: differentiable needs foreach=False or None"
            )
        names = self.kept(group)
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state.get(p) or self.begin(p, group, moves)
            # SGD has no counter of its own.
            change = {**state, "step": (count_of(state) if "step" in state else 1) + 1}
            with enable_grad():
                update, numbers = self.kernel(group, change)
                values = (p, *[state[name] for name in names], p.grad)
                made = taken(update, values, numbers)
                moves.writes.append(prepare_copy(p, made[0]))
                change.update(zip(names, made[1:], strict=True))
                self.after(group, change)
            moves.replace(state, change)


def _counts_on_device(kind: type[FusedOptimizer]) -> bool:
    """`counts_on_device`, unless a class below the one that says it changes the step."""
    for each in kind.__mro__:
        if "counts_on_device" in vars(each):
            break
        if not _OF_A_STEP.isdisjoint(vars(each)):
            return False
    return kind.counts_on_device


_OF_A_STEP = {"after", "choices", "kernel", "numbers", "prepare"}


def _shared(count: Any, found: Tensor) -> Any:
    """A count as it is on the device of `found`, else as a number."""
    if isinstance(count, Tensor) and count._spec.device is not found._spec.device:
        count = count.item()
    return count


def check_betas(name: str, betas: tuple[float, float]) -> tuple[float, float]:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name}: betas must lie in [0, 1), got {betas}")
    first, second = betas
    return first, second
