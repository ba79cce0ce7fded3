"""The hot path of backward: the derivative of an elementwise call with one result, as one launch.

The gradient's plan is known from the call's own plan as long as the gradient has the layout of the result, which it nearly
always has; then nothing is looked up. Everything else goes the general way. See Note [Hot path].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value
from rushlight.tape.walk.saves import saves_of

Direct = Callable[[Value, Node], Any]  # see Grad.direct


def pass_through(n: int, through: Sequence[int]) -> Direct:
    """Every asked gradient is `g` itself."""
    if len(through) == 1:
        return lambda g, node: g
    if len(through) == n:
        return lambda g, node: (g,) * n
    places = [i in through for i in range(n)]
    return lambda g, node: [g if here else None for here in places]


def one_launch(
    plan: Plan,
    grad_op: Op,
    n: int,
    computed: Sequence[int],
    through: Sequence[int],
    saves_out: bool,
) -> Direct:
    """One kernel for the gradients of `computed`; those of `through` are `g` itself."""
    get_state = STATE.get
    out = plan.out
    known: Any = None
    launch: Callable[..., Any] = call.launch_one if len(computed) == 1 else call.launch_at
    ready_made = not through and len(computed) in (
        1,
        n,
    )  # the kernel's results are what is asked for, as they are

    def general(g: Value, node: Node) -> Any:
        nonlocal known
        outs, saved = saves_of(node)
        operands = (g, *outs, *saved)
        if (
            g._spec is out and known is None and node.dropped is None
        ):  # what is unpacked may have other strides
            known = grad_op.make_plan([v._spec for v in operands], ())
        return call.call_map(grad_op, operands, node.params)

    def direct(g: Any, node: Any) -> Any:
        state = get_state()
        results = None
        if known is not None and g._spec is out and not state.special and not state.grad:
            try:
                ins = [g._memory.address + g._offset]
                version = 0
                if saves_out:
                    result = node.outs[0]
                    version = result.version
                    ins.append(result.address)
                saved = node.saved  # held here until the launch is done, whatever another thread's backward gives back
                for value in saved:
                    storage = value._memory
                    version += storage.version
                    ins.append(storage.address + value._offset)
                if version == node.version:
                    results = launch(known, ins, node.params)
            except (
                TypeError,
                IndexError,
                AttributeError,
            ):  # freed or dropped: the general way tells
                results = None
        if results is None:
            results = general(g, node)
        if ready_made:
            return results
        spread: list[Value | None] = [None] * n
        for i in through:
            spread[i] = g
        for i, part in zip(computed, results if len(computed) > 1 else (results,), strict=True):
            spread[i] = part
        return spread

    return direct


def any_direct(
    plan: Plan,
    grad_op: Op | None,
    n: int,
    computed: Sequence[int],
    through: dict[int, int],
    saves_out: bool,
) -> Direct:
    places = list(through)
    return (
        pass_through(n, places)
        if grad_op is None
        else one_launch(plan, grad_op, n, computed, places, saves_out)
    )
