"""One step of a route on this rank's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import BoundsError, RushlightError
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.tensor.formulas import (
    constant_of_shard,
    cuts_of,
    map_of_shard,
    passes_of,
)
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.redistribution import Enter, Extreme, Sum, moved, redistributed
from rushlight.distributed.tensor.routes import Leg, local_static
from rushlight.ops.create.creation import Constant
from rushlight.ops.family.map import MapOp
from rushlight.ops.family.rowwise import DeclaredRow, RowOp, call_rows
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

Part = tuple[Any, Layout]  # this rank's part, and where all are


def walk(leg: Leg, operands: Sequence[Part], pool: Any) -> list[Part]:
    """Move the operands, run the step, and give the parts of its results."""
    ready = []
    for (part, layout), wanted, enters in zip(operands, leg.reads, leg.enters, strict=True):
        part = redistributed(part, layout, wanted)
        if part.requires_grad:
            for n in enters:
                part = moved(part, Enter(layout.mesh.get_group(n)))
        ready.append((part, layout.with_placements(wanted)))
    made = _run(leg, ready, pool)
    parts = made if isinstance(made, (tuple, list)) else (made,)
    return list(zip(parts, leg.gives, strict=True))


def _run(leg: Leg, operands: Sequence[Part], pool: Any) -> Any:
    special = [run for run in leg.runs if run]
    if special:
        return _SPECIAL[special[0]](leg, operands)
    op = leg.step.plan.op
    parts = [_laid(part, spec) for (part, _), spec in zip(operands, leg.step.plan.ins, strict=True)]
    static = local_static(leg, [tuple(part.shape) for part in parts], pool)
    params: Any = leg.step.params
    if isinstance(op, Constant):
        return constant(op, leg.gives[0], static, params)
    if isinstance(op, RowOp):
        return call_rows(op, parts, *static)
    if not leg.step.is_view:
        return call.call(op, parts, static, params)
    try:
        return call.call(op, parts, static, params)
    except RushlightError:  # its strides are not those of the whole
        return call.call(op, [views.contiguous(part) for part in parts], static, params)


def _laid(part: Any, spec: Any) -> Any:
    """Contiguous, where the traced operand was."""
    return views.contiguous(part) if spec.contiguous and not part._spec.contiguous else part


def constant(op: Constant, layout: Layout, static: Any, params: tuple[Any, ...]) -> Value:
    """A part of an op without operands. See Note [Formulas on shards] 2."""
    cuts = cuts_of(layout)
    if cuts:
        op = constant_of_shard(op, len(cuts))
        params = (*params, *(number for cut in cuts for number in cut))
    made: Value = call.call(op, (), static, params)
    return made


def _groups(leg: Leg, run: str) -> list[Any]:
    mesh = leg.gives[0].mesh
    return [mesh.get_group(n) for n, way in enumerate(leg.runs) if way == run]


def _index(leg: Leg, operands: Sequence[Part]) -> Any:
    """A map that reads positions in the whole."""
    op = leg.step.plan.op
    assert isinstance(op, MapOp)
    cuts = cuts_of(operands[0][1])
    params: Any = leg.step.params
    numbers = (*params, *(number for cut in cuts for number in cut))
    parts = [views.contiguous(part) for part, _ in operands]
    if not cuts:
        return call.call(op, parts, leg.step.plan.static, params)
    return call.call(map_of_shard(op), parts, (*leg.step.plan.static, len(cuts)), numbers)


def _passes(leg: Leg, operands: Sequence[Part]) -> Any:
    """A reduction along a sharded axis. See Note [Formulas on shards] 3."""
    op = leg.step.plan.op
    assert isinstance(op, DeclaredRow)
    dim, keepdim = leg.step.plan.static
    apart = passes_of(op, leg.step.plan.ins, dim)
    assert apart is not None
    parts = [part for part, _ in operands]
    groups = _groups(leg, "passes")
    rows = []
    for kind, element in zip(apart.kinds, apart.elements, strict=True):
        moving: Any = parts[element] if isinstance(element, int) else call.call(element, parts)
        if kind == "sum":
            reduced = reductions.sum(moving, dim, keepdim)
            move: Any = [Sum(group) for group in groups]
        else:
            reduced = _EXTREMES[kind](moving, dim, keepdim)
            move = [Extreme(group, ReduceOp(_NAMES.get(kind, kind))) for group in groups]
        for one in move:
            reduced = moved(reduced, one)
        rows.append(reduced)
    if apart.rest is not None:
        return call.call(apart.rest, rows, ())
    return tuple(rows) if len(rows) > 1 else rows[0]


_EXTREMES: Any = {"max": reductions.amax, "min": reductions.amin, "prod": reductions.prod}
_NAMES = {"prod": "product"}


def _here(
    op: str, index: Any, start: int, count: int, length: int, ignored: int | None = None
) -> tuple[Any, Any]:
    """Which positions are among ours, and where; 0 for the others. All must be in range."""
    outside = e.logical_or(e.lt(index, 0), e.ge(index, length))
    if ignored is not None:
        outside = e.logical_and(outside, e.ne(index, ignored))
    if bool(outside.any()):
        raise BoundsError(f"{op}: an index is out of range for {length} rows or classes")
    inside = e.logical_and(e.ge(index, start), e.lt(index, start + count))
    return inside, e.select(inside, e.sub(index, start), 0)


def _table(leg: Leg, operands: Sequence[Part]) -> Any:
    """Rows of a table whose rows lie on several ranks: zeros where another rank has them."""
    (table, layout), (index, _) = operands
    mine = layout.pieces()[0]
    inside, place = _here("embedding", index, *mine, layout.shape[0])
    if not mine.length:
        return table.new_zeros((*index.shape, *table.shape[1:]))
    found = call.call(leg.step.plan.op, (table, place), leg.step.plan.static)
    rank = len(found.shape) - len(inside.shape)
    return e.select(inside.reshape(*inside.shape, *(1,) * rank), found, 0)


def _classes(leg: Leg, operands: Sequence[Part]) -> Any:
    """Cross entropy where the classes lie on several ranks: no rank has all logits."""
    op: Any = leg.step.plan.op
    (x, layout), (target, _) = operands
    mine = layout.pieces()[1]
    groups = _groups(leg, "classes")
    wide = x.float() if x._spec.dtype.itemsize == 2 else x
    still: Any = call.detached(wide)
    top: Any = (
        still.amax(1, keepdim=True)
        if mine.length
        else still.new_full((x.shape[0], 1), float("-inf"))
    )
    for group in groups:
        top = moved(top, Extreme(group, ReduceOp.MAX))
    total: Any = reductions.sum(e.exp(e.sub(wide, top)), 1, keepdim=True)
    inside, place = _here(op.name, target, *mine, layout.shape[1], op.ignored)
    hit: Any = wide.gather(1, place.long()) if mine.length else wide.sum(1, keepdim=True)
    hit = e.select(inside, hit, 0.0)
    for group in groups:
        total, hit = moved(total, Sum(group)), moved(hit, Sum(group))
    level = e.add(e.log(total), top)
    loss = e.select(e.eq(target, op.ignored), 0.0, e.sub(level, hit))
    outs = leg.step.outs
    return tuple(
        views.reshape(e.cast(made, spec.dtype), layout.local_shape)
        for made, spec, layout in zip((loss, level), outs, leg.gives, strict=True)
    )


_SPECIAL = {"index": _index, "passes": _passes, "table": _table, "classes": _classes}
