"""Random numbers under `vmap`: different for each example, or the same for all.

See `tape.vmap.batched.drawn_levels`. Different numbers are those of one call on the whole batch,
the same numbers those of one example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec, numel
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import views
from rushlight.ops.view.lanes import spread, top_rank
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Op, Static
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import (
    BatchPlan,
    Levels,
    drawn_levels,
    joint_levels,
    levels_of,
    wrap,
)


def drawn_lanes(op: str) -> int:
    """The number of examples with numbers of their own."""
    return numel([level.size for level in drawn_levels(op)])


def draw_batch(op: Op, inputs: Sequence[Value], static: Static, params: tuple[Any, ...]) -> Any:
    """The result of a random op inside `vmap`."""
    levels = drawn_levels(op.name)
    sizes = tuple([level.size for level in levels])
    if not inputs:
        (spec,) = static
        whole = Spec.of(spec.device, spec.dtype, (*sizes, *spec.shape))
        return wrap(call.call(op, (), (whole,), params), levels)
    (x,) = inputs
    if all(level in levels for level in levels_of(x)):
        return wrap(call.call(op, (spread(x, levels),), static, params), levels)
    mask = Needed.full(Spec.of(x._spec.device, x._spec.dtype, (*sizes, *x._spec.shape)), 1.0)
    return _masked(x, wrap(call.call(op, (mask,), static, params), levels))


def _masked(x: Value, mask: Value) -> Value:
    """x times the mask; 0 where that is 0, for every x."""
    return e.select(e.ne(mask, 0), e.mul(x, mask), 0.0)


def dropout_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Dropout, and its derivative, with numbers drawn for one example: x times a mask."""
    if len(inputs) != 1:
        raise RushlightError(
            f"{plan.op.name}: no batching rule for numbers drawn before; take the op out of vmap"
        )
    (x,) = inputs
    ones = Needed.full(Spec.of(x._spec.device, x._spec.dtype, x._spec.shape), 1.0)
    return _masked(x.physical, call.call(plan.op, (ones,), plan.static, params))  # type: ignore[attr-defined]


def draw_operands(op: str, operands: Sequence[Value]) -> tuple[list[Value], Levels, int]:
    """Physical operands of a sampler, of one rank and batched at all levels; number of lanes.

    Their first dimensions are the levels that draw the same numbers, then those that draw their
    own.
    """
    drawn = drawn_levels(op)
    joint = _joint(operands, drawn)
    alike = [level for level in joint if level not in drawn]
    rank = top_rank(operands)
    ready = [views.reshape(x, (1,) * (rank - len(x._spec.shape)) + x._spec.shape) for x in operands]
    whole = [spread(x, joint) for x in ready]
    levels = (*alike, *drawn)
    if levels != joint:
        order = [joint.index(level) for level in levels]
        whole = [views.permute(x, (*order, *range(len(joint), len(x._spec.shape)))) for x in whole]
    return whole, levels, numel([level.size for level in alike])


def _joint(operands: Sequence[Value], drawn: Levels) -> Levels:
    every = {level.depth: level for level in (*joint_levels(operands), *drawn)}
    return tuple([every[depth] for depth in sorted(every)])


def draw_result(drawn: Value, levels: Levels) -> Value:
    """The result of a sampler for `draw_operands`, as one example."""
    joint = tuple(sorted(levels, key=lambda level: level.depth))
    if joint != levels:
        order = [levels.index(level) for level in joint]
        drawn = views.permute(drawn, (*order, *range(len(joint), len(drawn._spec.shape))))
    return wrap(drawn, joint)
