"""Indexed reads and writes: the batch is a dimension around the indexed one.

Bounds stay checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Shape, Spec, numel
from rushlight.ops.create.creation import full_spec
from rushlight.ops.index.gather import gather, merges, rows, scatter_add
from rushlight.ops.view import views
from rushlight.ops.view.lanes import flat, full, lined, unflat
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan


def gather_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    x, index = inputs
    dim = plan.static[0] + len(plan.sizes)
    return call.call(plan.op, (merges(full(plan, x), dim), merges(full(plan, index), dim)), (dim,))


def scatter_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    x, index, src = inputs
    dim = plan.static[0] + len(plan.sizes)
    ready = (full(plan, x), merges(full(plan, index), dim), merges(full(plan, src), dim))
    return call.call(plan.op, ready, (dim,))


def scatter_zero_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    dim, shape = plan.static
    dim += len(plan.sizes)
    ready = [merges(full(plan, v), dim) for v in inputs]
    return call.call(plan.op, ready, (dim, (*plan.sizes, *shape)))


def rows_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Rows of one table, or each example's rows of its own table."""
    table, index = inputs
    if not table._spec.hidden:
        return rows(table, lined(plan, index))
    count, *rest = table._spec.shape
    row = numel(rest)
    tables = views.reshape(flat(plan, table), (numel(plan.sizes), count, row))
    found = gather(tables, 1, _per_element(plan, index, row))
    return views.reshape(found, (*plan.sizes, *index._spec.shape, *rest))


def _per_element(plan: BatchPlan, index: Value, row: int) -> Value:
    """(examples, positions, row): the index of a row for each of its elements.

    Nothing is copied.
    """
    line = views.reshape(flat(plan, index), (numel(plan.sizes), index._spec.numel, 1))
    return views.expand(line, (*line._spec.shape[:2], row))


def rows_grad_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    g, index = inputs
    shape: Shape = plan.static[0]
    count, *rest = shape
    row = numel(rest)
    lanes = numel(plan.sizes)
    table = full_spec(Spec.of(g._spec.device, g._spec.dtype, (lanes, count, row)), 0.0)
    given = views.reshape(flat(plan, g), (lanes, index._spec.numel, row))
    summed = scatter_add(table, 1, _per_element(plan, index, row), given)
    return views.reshape(summed, (*plan.sizes, *shape))


def search_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Sorted rows (rows, n), or one row for all, and the searched values (rows, m)."""
    line, wanted = inputs
    many, count = wanted._spec.shape
    sought = views.reshape(flat(plan, wanted), (-1, count))
    if line._spec.hidden or line._spec.shape[0] > 1:
        line = views.reshape(flat(plan, line), (-1, line._spec.shape[1]))
    found = call.call(plan.op, (line, sought), plan.static)
    return unflat(plan, views.reshape(found, (numel(plan.sizes), many, count)))


def stand_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Ops of operands of one shape that are no maps."""
    return call.call(plan.op, [full(plan, v) for v in inputs], plan.static, params)
