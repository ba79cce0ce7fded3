"""Maps, rows, scans and sorts: the batch is an additional dimension; axes shift by the levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import broadcast_shapes
from rushlight.ops.batching import random
from rushlight.ops.family.declare import promoted
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.family.row_layout import axis_strides
from rushlight.ops.family.rowwise import call_rows
from rushlight.ops.index.gather import merges
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce.cumulative import run_fold
from rushlight.ops.view import views
from rushlight.ops.view.lanes import full, lined, top_rank
from rushlight.scalar.ir import topological
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan


def map_operands(plan: BatchPlan, inputs: Sequence[Value]) -> list[Value]:
    """Operands that broadcast as the examples do; the batch's dimensions come first."""
    rank = top_rank(inputs)
    return [lined(plan, v, rank) if v._spec.hidden else v for v in inputs]


def map_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    assert isinstance(plan.op, MapOp)
    if reads_index(plan.op.formula([v._spec for v in inputs], plan.static)):
        return random.dropout_rule(plan, inputs, params)
    return call.call(plan.op, map_operands(plan, inputs), plan.static, params)


def reads_index(formula: Formula) -> bool:
    """Whether an element depends on its position, which differs in a batch."""
    return any(x.op == "index" for x in topological(list(formula.body)))


def elementwise_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    ready = map_operands(plan, promoted(plan.op, inputs, plan.static))
    return call.call(plan.op, ready, plan.static, params)


def row_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    dim, keepdim = plan.static
    rank = top_rank(inputs)
    lead = len(plan.sizes)
    ready = [lined(plan, v, max(rank, 1)) if v._spec.hidden or not rank else v for v in inputs]
    made = call_rows(plan.op, _merging(ready, dim + lead), dim + lead, keepdim)  # type: ignore[arg-type]
    if rank:
        return made
    # A 0-dim operand is a row of one element.
    kinds = [len(v._spec.shape) > lead and not keepdim for v in _several(made)]
    parts = [
        views.reshape(v, plan.sizes) if more else v
        for v, more in zip(_several(made), kinds, strict=True)
    ]
    return tuple(parts) if isinstance(made, tuple) else parts[0]


def _merging(operands: Sequence[Value], dim: int) -> list[Value]:
    """Operands with the dimensions before the axis merged, and those after it.

    Copied where necessary.
    """
    shape = broadcast_shapes([v._spec.shape for v in operands], "vmap")
    ready = []
    for v in operands:
        if axis_strides(v._spec, shape, dim) is None:
            at = dim - len(shape)
            kept = v._spec.shape[at] if len(v._spec.shape) >= -at else 1
            v = e.clone(views.expand(v, (*shape[:dim], kept, *shape[dim + 1 :])))
        ready.append(v)
    return ready


def _several(made: Any) -> tuple[Value, ...]:
    return made if isinstance(made, tuple) else (made,)


def classes_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Cross entropy of (rows, classes): the rows of all examples are rows."""
    dim, keepdim = plan.static
    assert dim == 1 and all(len(v._spec.shape) == 2 for v in inputs)
    ready = []
    for v in inputs:
        whole = full(plan, v)
        ready.append(views.reshape(whole, (-1 if v._spec.numel else 0, v._spec.shape[1])))
    made = call_rows(plan.op, ready, dim, keepdim)  # type: ignore[arg-type]
    rows = inputs[0]._spec.shape[0]
    return tuple([views.reshape(v, (*plan.sizes, rows, *v._spec.shape[1:])) for v in made])


def scan_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    dim, reverse, dtype = plan.static
    return run_fold(plan.op, [full(plan, v) for v in inputs], dim + len(plan.sizes), reverse, dtype)  # type: ignore[arg-type]


def sort_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    dim, *rest = plan.static
    dim += len(plan.sizes)
    return call.call(plan.op, (merges(lined(plan, inputs[0]), dim),), (dim, *rest))
