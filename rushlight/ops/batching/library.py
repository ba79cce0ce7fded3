"""Host libraries: matrices and signals have any leading dimensions; the batch adds some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import numel
from rushlight.ops.family.library import LibraryOp, call_library
from rushlight.ops.view import views
from rushlight.ops.view.lanes import full, lined, top_rank
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan


def library_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    op = plan.op
    assert isinstance(op, LibraryOp)
    if op.library == "fft":
        dims, *rest = plan.static
        return call_library(
            op, (lined(plan, inputs[0]),), tuple(d + len(plan.sizes) for d in dims), *rest
        )
    # Matrices are (count, rows, columns): each example adds to the count.
    count = inputs[0]._spec.shape[0]
    made = call_library(op, [_counted(plan, v) for v in inputs], *plan.static)
    parts = made if isinstance(made, tuple) else (made,)
    found = [views.reshape(v, (*plan.sizes, count, *v._spec.shape[1:])) for v in parts]
    return tuple(found) if isinstance(made, tuple) else found[0]


def _counted(plan: BatchPlan, value: Value) -> Value:
    count, *rest = value._spec.shape
    return views.reshape(full(plan, value), (numel(plan.sizes) * count, *rest))


def move_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    return call.call(plan.op, (views.contiguous(lined(plan, inputs[0])),), plan.static)


def attention_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Query, key, value and mask have leading dimensions; the batch comes before them."""
    rank = top_rank(inputs)
    if plan.static[1]:
        raise RushlightError(
            f"{plan.op.name}: dropout with numbers drawn outside of vmap; draw inside, or "
            "differentiate without vmap"
        )
    ready = [full(plan, v, rank) for v in inputs]
    if len(plan.static) == 3:  # of the derivative: gradient, output and logsumexp are contiguous
        ready = [views.contiguous(v) if i < 3 else v for i, v in enumerate(ready)]
    return call.call(plan.op, ready, plan.static, params)
