"""Views of a batch: the same view of every example; the batch's dimensions stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec, contiguous_strides, order_of, strides_in_order
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import complex_parts, views
from rushlight.ops.view.laid import laid
from rushlight.ops.view.lanes import full, lined
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan


def view_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    (x,) = inputs
    shift = plan.op.shift  # type: ignore[attr-defined]
    static = shift(len(plan.sizes), plan.sizes, plan.static)
    return call.call(plan.op, (lined(plan, x),), static, params)


def expand_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    (target,) = plan.static
    return call.call(plan.op, (lined(plan, inputs[0], len(target)),), ((*plan.sizes, *target),))


def complex_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    return complex_parts.joined(lined(plan, inputs[0]))


complex_rule.looks = True  # type: ignore[attr-defined]  # at where the memory starts


def retyped_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """Where elements grow, the batch's strides must be multiples of the new size."""
    old, new = plan.static
    x = lined(plan, inputs[0])
    if new > old and any(st * old % new for st in x._spec.strides[: len(plan.sizes)]):
        x = e.clone(x)
    return call.call(plan.op, (x,), plan.static)


def _with_examples(whole: Value, example: Spec, lead: int) -> Value:
    """A dense batch whose examples have the strides of `example`, which views of it refer to."""
    spec = whole._spec
    if spec.dense and spec.strides[lead:] == example.strides:
        return whole
    order = [lead + d for d in order_of(example.shape, [example.strides])]
    return laid(whole, strides_in_order(spec.shape, (*range(lead), *order)))


def strided_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """By strides: those of the batch are its own.

    An example's strides refer to the memory, so no copy is possible.
    """
    x = lined(plan, inputs[0])
    lead = len(plan.sizes)
    if any(st == 0 and n > 1 for n, st in zip(x._spec.shape[:lead], x._spec.strides, strict=False)):
        spec = inputs[0]._spec
        if spec.strides != contiguous_strides(spec.shape):
            raise RushlightError(
                f"as_strided: {spec!r} is one tensor for the whole batch and its examples are not "
                "contiguous; call .contiguous() on it first"
            )
        x = e.clone(x)
    shape, strides, skip, *old = plan.static
    if not old:
        x = _with_examples(x, inputs[0]._spec, lead)
    seen = ((*plan.sizes, *shape), (*x._spec.strides[:lead], *strides), skip)
    return call.call(plan.op, (x,), (*seen, x._spec.strides) if old else seen)


# ---- adjoints of views, and writes to views ----


def place_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    shape, (seen_shape, seen_strides, skip) = plan.static
    whole = (*plan.sizes, *shape)
    steps = contiguous_strides(whole)[: len(plan.sizes)]
    g = lined(plan, inputs[0], len(seen_shape))
    return views.place_view(g, whole, ((*plan.sizes, *seen_shape), (*steps, *seen_strides), skip))


def part_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    shape, view, key = plan.static
    rank = len(view.rule(shape, contiguous_strides(shape), *key)[0])
    shifted = view.shift(len(plan.sizes), plan.sizes, key)
    g = lined(plan, inputs[0], rank)
    return call.call(plan.op, (g,), ((*plan.sizes, *shape), view, shifted), params)


def write_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    base, value = inputs
    seen_shape, seen_strides, skip = plan.static
    lead = len(plan.sizes)
    whole = _with_examples(full(plan, base), base._spec, lead)
    seen = ((*plan.sizes, *seen_shape), (*whole._spec.strides[:lead], *seen_strides), skip)
    return call.call(plan.op, (whole, lined(plan, value, len(seen_shape))), seen)


def cat_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    dim, shape = plan.static
    return call.call(
        plan.op, [full(plan, v) for v in inputs], (dim + len(plan.sizes), (*plan.sizes, *shape))
    )


def same_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """A view of the last dimensions only, whose arguments do not name the others."""
    return call.call(plan.op, (lined(plan, inputs[0]),), plan.static)


def fold_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    shape, *rest = plan.static
    return call.call(plan.op, (lined(plan, inputs[0]),), ((*plan.sizes, *shape), *rest))
