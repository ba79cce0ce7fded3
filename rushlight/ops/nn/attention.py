"""scaled_dot_product_attention: one op that stores no matrix of all scores, forward or backward.

It is an Attend kernel where the device builds one (attend.py), else tiles of contractions (Note
[Attention tiles]). It saves query, key, value, mask, its output and a number per row. With
`create_graph` its derivative is made of ordinary ops instead, which have derivatives of every
order; those do store the scores. Where these are many, the derivative stays one op, whose own
derivative goes over blocks of rows, each made of ordinary ops and differentiated by itself
(`_second_order`). Third derivatives store the scores, and so does dropout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, bool_, compute_type, float32
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, Spec, broadcast_shapes, numel
from rushlight.ops.batching.random import draw_operands, draw_result
from rushlight.ops.create import creation
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.family.saved_names import name_operands
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.nn import attend
from rushlight.ops.nn.attention_gradient import Backward
from rushlight.ops.nn.attention_tiles import Forward, Shapes, widened
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import tril, where
from rushlight.ops.random.random import default_generator, drop_again, dropout
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.softmax import softmax
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices, check_dtypes
from rushlight.tape.record.state import STATE, Changed, impure
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.walk import roots

NAME = "scaled_dot_product_attention"
_BLOCK = 1 << 20  # scores that a second derivative stores at a time
_COST_OF_SCORE = 0.04  # per multiplication in it; see matmul


def _shapes(q: Spec, k: Spec, v: Spec, static: Static) -> Shapes:
    causal, dropout = static[:2]
    return Shapes(q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], causal, dropout)


def _cost(shapes: Shapes, products: int) -> float:
    scores = numel(shapes.batch) * shapes.rows * shapes.keys
    return scores * (products + _COST_OF_SCORE * products * max(shapes.width, shapes.depth))


def _products(shapes: Shapes, widths: int, depths: int) -> int:
    """Multiplications of so many products as wide as the keys, and as the values."""
    scores = numel(shapes.batch) * shapes.rows * shapes.keys
    return scores * (widths * shapes.width + depths * shapes.depth)


class Attention(Op):
    """Output and row logsumexp of query, key, value and an optional mask, of equal rank.

    The rank is at least 4. `static` is (causal, dropout); the launch's numbers are the scale and,
    with dropout, its seed, position, probability and factor.
    """

    __slots__ = ()

    batching = "library.attention"

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool = check_devices(NAME, ins)
        q, k, v = ins[:3]
        check_device_dtype(NAME, pool, q.dtype)
        level = Spec.of(pool, compute_type(q.dtype), (*q.shape[:-1], 1))
        shapes = _shapes(q, k, v, static)
        if attend.takes(shapes, q, k, v):
            outs = [attend.laid_like(q, v.shape[-1]), level]
            run, tail = attend.forward(pool, shapes, outs, ins)
            cost, products = _cost(shapes, 2), _products(shapes, 1, 1)
            return Plan(self, ins, outs, run, static, tail=tail, cost=cost, products=products)
        out = Spec.of(pool, q.dtype, (*q.shape[:-1], v.shape[-1]))

        def make(outs: Sequence[Spec], ins: Sequence[Spec]) -> Any:
            return Forward(pool, shapes, outs, ins)

        launch = (
            widened(pool, (out, level), ins, make)
            if q.dtype.itemsize == 2
            else make((out, level), ins)
        )
        cost, products = _cost(shapes, 2), _products(shapes, 1, 1)
        return Plan(self, ins, [out, level], launch, static, cost=cost, products=products)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        n, static = len(plan.ins), plan.static
        q, k, v = plan.ins[:3]
        is_kernel = attend.takes(_shapes(q, k, v, static), q, k, v, back=True)
        laid = attend.readable if is_kernel else views.contiguous

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            g, operands = grads[0], values[:n]
            if STATE.get().grad and (static[1] or not _many_scores(operands)):
                return _recorded_gradients(g, operands, static, params, needs)
            given = (laid(g), laid(values[n]), views.contiguous(values[n + 1]), *operands)
            made = call.call(_attention_grad, given, (*static, needs), params)
            parts = iter(made if isinstance(made, tuple) else (made,))
            return [next(parts) if needs >> i & 1 else None for i in range(n)]

        return Grad(needs, tuple(range(n)), (0, 1), rule, hands_on=True)


class AttentionGrad(Op):
    """The gradients selected by `needs`, from g, output, logsumexp and operands.

    `needs` is the last of `static`. Its own derivative treats output and logsumexp as functions of
    the operands, so none goes to them.
    """

    __slots__ = ()

    batching = "library.attention"

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        needs = static[2]
        pool: Any = ins[0].device
        operands = ins[3:]
        q, k, v = operands[:3]
        shapes = _shapes(q, k, v, static)
        asked = [i for i in range(len(operands)) if needs >> i & 1]
        if attend.takes(shapes, q, k, v, back=True):
            laid = [
                attend.laid_like(spec, spec.shape[-1]) if needs >> i & 1 else None
                for i, spec in enumerate(operands)
            ]
            if needs >> 3 & 1:
                laid[3] = attend.slope_of_mask(shapes, operands[3], ins)
            run, tail = attend.backward(pool, shapes, (*laid, None)[:4], ins)
            outs = [spec for spec in laid if spec is not None]
            cost, products = _cost(shapes, 5), _products(shapes, 3, 2)
            return Plan(self, ins, outs, run, static, tail=tail, cost=cost, products=products)
        outs = [Spec.of(pool, operands[i].dtype, operands[i].shape) for i in asked]

        def make(outs: Sequence[Spec], ins: Sequence[Spec]) -> Any:
            found = dict(zip(asked, outs, strict=True))
            return Backward(pool, shapes, [found.get(i) for i in range(4)], ins)

        half = operands[0].dtype.itemsize == 2
        launch = widened(pool, outs, ins, make) if half else make(outs, ins)
        cost, products = _cost(shapes, 5), _products(shapes, 3, 2)
        return Plan(self, ins, outs, launch, static, cost=cost, products=products)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        n = len(plan.ins)
        static, asked = plan.static[:2], plan.static[2]

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            given = iter(grads)
            turned = [next(given) if asked >> i & 1 else None for i in range(n - 3)]
            found = _second_order(values[0], values[3:n], turned, static, params)
            return [found[0], None, None, *found[1:]]

        return Grad(needs, (0, *range(3, n)), (), rule)


_attention = Attention(NAME, "softmax(q k^T scale + mask) v, and the logsumexp of its rows.")
name_operands(NAME, "query", "key", "value", "attn_bias")
_attention_grad = AttentionGrad(NAME + "_grad", "Derivative of attention.")


# ---- the same in ordinary ops ----


def masked_scores(
    query: Value, key: Value, mask: Value | None, causal: bool, scale: float, start: int = 0
) -> Value:
    scores = e.mul(matmul(query, views.transpose(key, -1, -2)), scale)
    if causal:
        n, m = scores._spec.shape[-2:]
        mask = tril(creation.ones(n, m, dtype=bool_, device=scores._spec.device.device.name), start)
    if mask is None:
        return scores
    return where(mask, scores, -math.inf) if mask._spec.dtype is bool_ else e.add(scores, mask)


def safe_softmax(scores: Value) -> Value:
    """Softmax along the last dimension; rows of -inf only give zeros."""
    if not scores._spec.numel:
        return scores
    empty = e.eq(reductions.amax(scores, -1, keepdim=True), -math.inf)
    zero = creation.full((), 0.0, dtype=scores._spec.dtype, device=scores._spec.device.device.name)
    return e.select(empty, zero, softmax(e.select(empty, zero, scores), -1))


def _recorded_gradients(
    g: Value,
    operands: list[Value],
    static: Static,
    params: tuple[Any, ...],
    needs: int,
    start: int = 0,
) -> list[Any]:
    """The gradients in ordinary ops; the query's rows are those from `start` on."""
    query, key, value, *rest = operands
    causal, dropout = static
    scale, drawn = params[0], params[1:]
    p = safe_softmax(masked_scores(query, key, rest[0] if rest else None, causal, scale, start))
    used = drop_again(p, drawn) if dropout else p
    slope = matmul(g, views.transpose(value, -1, -2))
    slope = drop_again(slope, drawn) if dropout else slope
    slope = e.mul(p, e.sub(slope, reductions.sum(e.mul(p, slope), -1, keepdim=True)))
    parts = [
        lambda: e.mul(matmul(slope, key), scale),
        lambda: e.mul(matmul(views.transpose(slope, -1, -2), query), scale),
        lambda: matmul(views.transpose(used, -1, -2), g),
        lambda: slope,
    ]
    return [part() if needs >> i & 1 else None for i, part in enumerate(parts[: len(operands)])]


# ---- the derivative of the derivative, in blocks of rows ----


def _many_scores(operands: Sequence[Value]) -> bool:
    return numel(operands[0]._spec.shape[:-1]) * operands[1]._spec.shape[-2] > _BLOCK


def _second_order(
    g: Value, operands: list[Value], turned: list[Any], static: Static, params: tuple[Any, ...]
) -> list[Any]:
    """The gradients of g and the operands, from those of the operands' gradients (`turned`)."""
    whole = STATE.get().grad  # differentiated once more
    rows = operands[0]._spec.shape[-2]
    each = numel(operands[0]._spec.shape[:-2]) * operands[1]._spec.shape[-2]
    step = rows if whole else max(16, _BLOCK // max(each, 1))
    inputs = [g, *operands]
    cut = [i < 2 or (i == 4 and v._spec.shape[-2] == rows > 1) for i, v in enumerate(inputs)]
    found: list[list[Value]] = [[] for _ in inputs]
    for start in range(0, rows, step):
        count = min(step, rows - start)
        here = [_rows_of(v, start, count) if c else v for v, c in zip(inputs, cut, strict=True)]
        ways = [
            t if t is None or not c else _rows_of(t, start, count)
            for t, c in zip(turned, cut[1:], strict=True)
        ]
        for i, part in enumerate(_block(here, ways, static, params, start, whole)):
            if part is not None and (cut[i] or not found[i]):
                found[i].append(part)
            elif part is not None:
                found[i] = [e.add(found[i][0], part)]
    return [
        (views.cat(parts, -2) if len(parts) > 1 else parts[0]) if parts else None for parts in found
    ]


def _block(
    inputs: list[Value],
    ways: list[Any],
    static: Static,
    params: tuple[Any, ...],
    start: int,
    whole: bool,
) -> list[Any]:
    """One block: its gradients are recorded in ordinary ops, and differentiated."""
    own = [_seen_again(v) if whole else _leaf(v) for v in inputs]
    needs = sum(1 << i for i, way in enumerate(ways) if way is not None)
    with Changed(grad=True):
        made = _recorded_gradients(own[0], own[1:], static, params, needs, start)
        pairs = [
            (Needed.sum_to(m, w._spec.shape), w)
            for m, w in zip(made, ways, strict=True)
            if w is not None
        ]
    sought = [v for v in own if v._node is not None]
    results = [m for m, _ in pairs if m._node is not None]
    if not (sought and results):
        return [None] * len(own)
    given = [w for m, w in pairs if m._node is not None]
    parts = iter(roots.grad(results, sought, given, create_graph=whole, allow_unused=True))
    return [next(parts) if v._node is not None else None for v in own]


def _rows_of(x: Value, start: int, count: int) -> Value:
    return views.slice_dim(x, len(x._spec.shape) - 2, start, count)


def _leaf(x: Value) -> Value:
    made = call.detached(x)
    made._node = Leaf(made) if x._spec.differentiable else None
    return made


def _seen_again(x: Value) -> Value:
    """A view of all of x, as a separate root."""
    return call.call(views.same_view, (x,), (x._spec.shape,))


# ---- the public function ----


def _check_operands(
    q: Value, k: Value, v: Value, mask: Value | None, causal: bool, p: float, gqa: bool
) -> None:
    specs = [q._spec, k._spec, v._spec]
    shown = (
        f"query {q._spec!r} (..., L, E), key {k._spec!r} (..., S, E) and value {v._spec!r} (..., "
        "S, V)"
    )
    check_devices(NAME, specs if mask is None else [*specs, mask._spec])
    check_dtypes(NAME, specs, FLOAT)
    if any(spec.dtype is not q._spec.dtype for spec in specs):
        raise DTypeError(f"{NAME}: {shown} must have one dtype; cast with .to(dtype)")
    shapes = [spec.shape for spec in specs]
    if (
        min(map(len, shapes)) < 2
        or shapes[0][-1] != shapes[1][-1]
        or shapes[1][-2] != shapes[2][-2]
    ):
        raise ShapeError(f"{NAME}: {shown} do not fit")
    if mask is not None:
        if causal:
            raise ShapeError(f"{NAME}: pass attn_mask {mask._spec!r} or is_causal, not both")
        if mask._spec.dtype not in (bool_, float32, q._spec.dtype):
            raise DTypeError(
                f"{NAME}: attn_mask {mask._spec!r} must be bool (true: look) or of the query's "
                f"type, which is added; cast with .bool() or .to({q._spec.dtype.name})"
            )
    if not 0 <= p <= 1:
        raise ValueError(f"{NAME}: dropout_p must lie in [0, 1], got {p}")
    if gqa and (
        min(map(len, shapes)) < 3
        or any(not s[-3] for s in shapes)
        or shapes[0][-3] % shapes[1][-3]
        or shapes[0][-3] % shapes[2][-3]
    ):
        raise ShapeError(
            f"{NAME}: with enable_gqa the heads (third dimension from the end) of {shown} must "
            "divide"
        )


def _grouped(x: Value, heads: int) -> Value:
    """A dimension after the heads, along which each key head serves several query heads."""
    *lead, own, n, m = x._spec.shape
    return views.expand(views.reshape(x, (*lead, own, 1, n, m)), (*lead, own, heads // own, n, m))


def _split_heads(query: Value, key: Value, value: Value, mask: Value | None) -> list[Value | None]:
    """Grouped heads as two dimensions, (groups, heads per group), without copies."""
    heads, groups = query._spec.shape[-3], key._spec.shape[-3]
    # Keys and values differ in heads: give each query head its own.
    if value._spec.shape[-3] != groups:
        key, value = (
            views.reshape(_grouped(x, heads), (*x._spec.shape[:-3], heads, *x._spec.shape[-2:]))
            for x in (key, value)
        )
        return [query, key, value, mask]
    *lead, _, n, m = query._spec.shape
    split = views.reshape(query, (*lead, groups, heads // groups, n, m))
    if mask is not None and len(mask._spec.shape) > 2:
        *before, own, rows, keys = mask._spec.shape
        pair = (1, 1) if own == 1 else (groups, heads // groups)
        mask = views.reshape(mask, (*before, *pair, rows, keys))
    return [split, _grouped(key, heads), _grouped(value, heads), mask]


def _batched(x: Value, batch: Shape, inner: Shape) -> Value:
    shape = (*batch, *inner)
    return x if x._spec.shape == shape else views.expand(x, shape)


def _mask_for(mask: Value, batch: Shape, rows: int, keys: int) -> Value:
    """The mask with as many dimensions as the scores; broadcast batch dimensions stay 1."""
    shape = mask._spec.shape
    broadcast_shapes([shape, (*batch, rows, keys)], NAME, [mask._spec])
    lead = (1,) * (len(batch) - len(shape[:-2])) + shape[:-2]
    return views.expand(
        views.reshape(mask, (*lead, *((1,) * (2 - len(shape)) + shape[-2:])[-2:])),
        (*lead, rows, keys),
    )


def _attended(operands: list[Value], causal: bool, scale: float, dropout_p: float) -> Value:
    params: tuple[Any, ...] = (scale,)
    drawn = numel(operands[0]._spec.shape[:-1]) * operands[1]._spec.shape[-2]
    if dropout_p:
        impure()  # other numbers in every call: see Note [Traces] 2
        kept = 0.0 if dropout_p == 1 else 1 / (1 - dropout_p)
        words = default_generator.take(drawn)
        params += (*words, float(dropout_p), kept)
    try:
        return call.call(_attention, operands, (causal, bool(dropout_p)), params)[0]
    except BaseException:
        if dropout_p:
            default_generator.give_back(words, drawn)
        raise


def _attended_in_vmap(operands: list[Value], causal: bool, scale: float, dropout_p: float) -> Value:
    impure()  # other numbers in every call: see Note [Traces] 2
    whole, levels, lanes = draw_operands(NAME, operands)
    if lanes == 1:
        return draw_result(_attended(whole, causal, scale, dropout_p), levels)
    # The same numbers for several examples: tiles do not support that, so the scores are stored.
    query, key, value, *rest = operands
    p = safe_softmax(masked_scores(query, key, rest[0] if rest else None, causal, scale, 0))
    return matmul(dropout(p, dropout_p), value)


@composite(NAME, method=False, top=False, pure=True, autocast="lower")
def scaled_dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(query @ key.T * scale + mask) @ value over the last two dimensions, in tiles.

    Args:
        value: The values.

    Example:
        >>> q = k = v = torch.ones(2, 8, 16, 32)  # batch, heads, length, features
        >>> F.scaled_dot_product_attention(q, k, v, is_causal=True).shape
        rushlight.Size([2, 8, 16, 32])
    """
    _check_operands(query, key, value, attn_mask, is_causal, dropout_p, enable_gqa)
    heads = query._spec.shape
    grouped = enable_gqa and not heads[-3] == key._spec.shape[-3] == value._spec.shape[-3]
    if grouped:
        query, key, value, attn_mask = _split_heads(query, key, value, attn_mask)  # type: ignore[assignment]
    specs = [query._spec, key._spec, value._spec]
    batch = broadcast_shapes([spec.shape[:-2] for spec in specs], NAME, specs)
    if attn_mask is not None:
        batch = broadcast_shapes(
            [batch, attn_mask._spec.shape[:-2]], NAME, [*specs, attn_mask._spec]
        )
    padded = (1,) * (2 - len(batch)) + batch
    rows, width = specs[0].shape[-2:]
    keys, depth = specs[2].shape[-2:]
    operands = [
        _batched(x, padded, inner)
        for x, inner in ((query, (rows, width)), (key, (keys, width)), (value, (keys, depth)))
    ]
    if attn_mask is not None:
        operands.append(_mask_for(attn_mask, padded, rows, keys))
    factor = (1 / math.sqrt(width) if width else 1.0) if scale is None else float(scale)
    # Scores are masked, and their maximum is taken, before scaling: the scale is positive.
    if not factor > 0:
        operands[0], factor = e.mul(operands[0], factor), 1.0
    if dropout_p and STATE.get().batch:
        out = _attended_in_vmap(operands, bool(is_causal), factor, dropout_p)
    else:
        out = _attended(operands, bool(is_causal), factor, dropout_p)
    if len(query._spec.shape) > len(heads):
        return views.reshape(out, (*batch[: len(batch) - 2], heads[-3], rows, depth))
    return out if padded == batch else views.reshape(out, (*batch, rows, depth))
