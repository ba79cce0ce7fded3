"""Contractions: the batch is a batch of matrices; an operand that every example shares stays one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import numel
from rushlight.ops import elementwise as e, views
from rushlight.ops.batching.lanes import lined, top_rank
from rushlight.ops.matmul import _product, matmul_plain
from rushlight.tape import call
from rushlight.tape.batching import BatchPlan
from rushlight.tape.value import Value


def matmul_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    a, b = inputs
    rank = top_rank(inputs)
    if not b.spec.hidden and len(b.spec.shape) == 2:
        return matmul_plain(lined(plan, a), b)  # all examples' rows times one matrix
    return _product(*[lined(plan, v, rank) if v.spec.hidden else v for v in (a, b)])


def linear_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    x, w, *bias = inputs
    if not w.spec.hidden and not any(b.spec.hidden for b in bias):
        return call.call(plan.op, (views.contiguous(lined(plan, x)), w, *bias))
    shape = x.spec.shape
    lead = len(plan.sizes)
    if not w.spec.hidden:
        out = matmul_plain(lined(plan, x), views.transpose(w, 0, 1))
    else:
        rows = lined(plan, x)
        rows = views.reshape(rows, (*rows.spec.shape[:lead], numel(shape[:-1]), shape[-1]))
        out = _product(rows, views.transpose(lined(plan, w), -1, -2))
        out = views.reshape(out, (*out.spec.shape[:lead], *shape[:-1], w.spec.shape[0]))
    for b in bias:
        out = e.add(out, lined(plan, b, len(shape)) if b.spec.hidden else b)
    return out
