"""Contractions and convolutions: the batch becomes a batch of matrices, more images or more groups.

An operand that all examples share is not repeated where possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import Shape, Spec, numel
from rushlight.ops.create.creation import full_spec
from rushlight.ops.linalg.matmul import _product, added_product, is_half, matmul_plain
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import views
from rushlight.ops.view.lanes import flat, lined, top_rank, unflat
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import BatchPlan


def matmul_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    a, b = inputs
    rank = top_rank(inputs)
    if not b._spec.hidden and len(b._spec.shape) == 2:
        return matmul_plain(lined(plan, a), b)  # all examples' rows times one matrix
    return _product(*[lined(plan, v, rank) if v._spec.hidden else v for v in (a, b)])


def added_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    rank = top_rank(inputs)
    c, a, b = (lined(plan, v, rank) if v._spec.hidden else v for v in inputs)
    return added_product(c, a, b, *plan.static)


def linear_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    x, w, *bias = inputs
    if not w._spec.hidden and not any(b._spec.hidden for b in bias):
        return call.call(plan.op, (views.contiguous(lined(plan, x)), w, *bias))
    shape = x._spec.shape
    lead = len(plan.sizes)
    if bias and is_half(x._spec.dtype):
        rows = lined(plan, x)
        rows = views.reshape(rows, (*rows._spec.shape[:lead], numel(shape[:-1]), shape[-1]))
        turned = views.transpose(lined(plan, w) if w._spec.hidden else w, -1, -2)
        (b,) = bias
        b = views.unsqueeze(lined(plan, b), -2) if b._spec.hidden else b
        out = added_product(b, rows, turned, 1.0, 1.0)
        return views.reshape(out, (*out._spec.shape[:lead], *shape[:-1], w._spec.shape[-2]))
    if not w._spec.hidden:
        out = matmul_plain(lined(plan, x), views.transpose(w, 0, 1))
    else:
        rows = lined(plan, x)
        rows = views.reshape(rows, (*rows._spec.shape[:lead], numel(shape[:-1]), shape[-1]))
        out = _product(rows, views.transpose(lined(plan, w), -1, -2))
        out = views.reshape(out, (*out._spec.shape[:lead], *shape[:-1], w._spec.shape[0]))
    for b in bias:
        out = e.add(out, lined(plan, b, len(shape)) if b._spec.hidden else b)
    return out


# ---- convolution: x (n, channels, ...), w (outs, channels / groups, ...), g (n, outs, ...) ----


def _more_images(plan: BatchPlan, x: Value) -> Value:
    """(examples * n, channels, ...)."""
    whole = flat(plan, x)
    n, *rest = x._spec.shape
    return views.reshape(whole, (whole._spec.shape[0] * n, *rest))


def _more_channels(plan: BatchPlan, x: Value) -> Value:
    """(n, examples * channels, ...)."""
    whole = views.transpose(flat(plan, x), 0, 1)
    n, channels, *rest = x._spec.shape
    return views.reshape(whole, (n, whole._spec.shape[1] * channels, *rest))


def _grouped(plan: BatchPlan, shared: bool) -> tuple[Any, ...]:
    """The geometry with a group per example, unless one operand is shared."""
    static = list(plan.static)
    static[3] *= 1 if shared else numel(plan.sizes)
    return tuple(static)


def convolution_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """The convolution, and its transpose in x: of an image and weights."""
    x, w = inputs
    if not numel(plan.sizes):
        forward = plan.op.name == "convolution"
        channels = w._spec.shape[0] if forward else w._spec.shape[1] * plan.static[3]
        return _empty_result(
            plan, x, (x._spec.shape[0], channels, *plan.static[6 if forward else 4])
        )
    if not w._spec.hidden:
        made = call.call(plan.op, (views.contiguous(_more_images(plan, x)), w), plan.static)
        return views.reshape(made, (*plan.sizes, x._spec.shape[0], *made._spec.shape[1:]))
    one = not x._spec.hidden and plan.static[3] == 1 and plan.op.name == "convolution"
    image = x if one else _more_channels(plan, x)
    made = call.call(
        plan.op,
        (views.contiguous(image), views.contiguous(_more_images(plan, w))),
        _grouped(plan, one),
    )
    return _split_examples(plan, made)


def _empty_result(plan: BatchPlan, like: Value, shape: Shape) -> Value:
    """The result for a batch without examples, which has no groups."""
    return full_spec(Spec.of(like._spec.device, like._spec.dtype, (*plan.sizes, *shape)), 0.0)


def _split_examples(plan: BatchPlan, made: Value) -> Value:
    """(n, examples * channels, ...) as (examples, n, channels, ...)."""
    n, channels, *rest = made._spec.shape
    lanes = numel(plan.sizes)
    whole = views.transpose(views.reshape(made, (n, lanes, channels // lanes, *rest)), 0, 1)
    return unflat(plan, whole)


def weights_rule(plan: BatchPlan, inputs: Sequence[Value], params: tuple[Any, ...]) -> Any:
    """The transpose in w: of a gradient and an image, a sum over the images of one example."""
    g, x = inputs
    if not numel(plan.sizes):
        return _empty_result(
            plan, g, (g._spec.shape[1], x._spec.shape[1] // plan.static[3], *plan.static[5])
        )
    one = not x._spec.hidden and plan.static[3] == 1
    image = x if one else _more_channels(plan, x)
    ready = (views.contiguous(_more_channels(plan, g)), views.contiguous(image))
    made = call.call(plan.op, ready, _grouped(plan, one))
    outs, *rest = made._spec.shape
    lanes = numel(plan.sizes)
    return views.reshape(made, (*plan.sizes, outs // lanes, *rest))
