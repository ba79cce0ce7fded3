"""Elements stored, or combined, at an index: the base of scatter, index_put and others.

# Note [Scattering]
1. One kernel does it, in the order of the index (`Scatter`): where several elements go to one
   position, the last stays.
2. Of several elements stored at one position each gets that position's gradient, as in PyTorch.
   (The derivative is that of the last; PyTorch's is a gather, which costs less.)
3. Equal extremes share the gradient evenly, as in PyTorch.
4. The gradient of a product is the product of the others, computed without a division: zeros are no
   special case, and it can be differentiated again. The elements are sorted by position and
   multiplied up from both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight.core.dtypes import DType, int32
from rushlight.core.shapes import Shape, Spec, contiguous_strides, numel
from rushlight.ops.create import creation
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.index import gather, scatter_onto
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.sort.sort import ordered
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static
from rushlight.tape.record.value import Value

LOWEST = {"amax": True, "amin": False}


def filled(like: Value, dtype: DType, shape: Shape, value: float) -> Value:
    return full_spec(Spec.of(like._spec.device, dtype, tuple(shape)), value)


def spread(like: Value, dtype: DType, shape: Shape, value: float) -> Value:
    """One number, expanded to a shape."""
    return views.expand(filled(like, dtype, (), value), shape)


def extreme(dtype: DType, lowest: bool) -> float:
    """The largest or smallest value of the dtype."""
    if dtype.kind == "f":
        return -math.inf if lowest else math.inf
    if dtype.kind == "u":
        return 0 if lowest else (1 << 8 * dtype.itemsize) - 1
    bits = 8 * dtype.itemsize - 1
    return -(1 << bits) if lowest else (1 << bits) - 1


def scattered(kind: str, x: Value, dim: int, index: Value, src: Value) -> Value:
    """x with src stored (`set`, `unpool`) or combined (prod, amax, amin) at index.

    The shapes of index and src are the same and may be smaller than x's in every other dimension.
    """
    part = x
    for i, n in enumerate(index._spec.shape):
        if i != dim:
            part = views.slice_dim(part, i, 0, n)
    new = scatter_onto.scatter(
        _OPS[kind], part, gather.merges(index, dim), gather.merges(src, dim), dim
    )
    if new._spec.shape == x._spec.shape:
        return new
    if new._memory is x._memory:
        return x
    seen = (new._spec.shape, contiguous_strides(x._spec.shape), 0)
    return call.call(views.write_view, (views.contiguous(x), new), seen)


# ---- store: the last one stays ----


def _uncovered(g: Value, out: Value, x: Value, index: Value, src: Value, dim: int) -> Value:
    return scattered("set", g, dim, index, spread(g, g._spec.dtype, index._spec.shape, 0))


def _at_index(g: Value, out: Value, x: Value, index: Value, src: Value, dim: int) -> Value:
    return gather.gather(g, dim, index)


# ---- extremes ----


def _same(a: Value, b: Value) -> Value:
    """Where two are equal; a NaN extreme equals the NaN elements."""
    equal = e.eq(a, b)
    return (
        e.bitwise_or(equal, e.bitwise_and(e.ne(a, a), e.ne(b, b)))
        if a._spec.dtype.kind == "f"
        else equal
    )


def _shared(
    g: Value, out: Value, x: Value, index: Value, src: Value, dim: int
) -> tuple[Value, Value, Value]:
    """The gradient of each element that equals the extreme, and where x and src do."""
    here, there = _same(x, out), _same(src, gather.gather(out, dim, index))
    equal = gather.scatter_add(e.cast(here, int32), dim, index, e.cast(there, int32))
    return e.div(g, e.cast(e.maximum(equal, 1), g._spec.dtype)), here, there


def _extreme_here(g: Value, *rest: Any) -> Value:
    share, here, _ = _shared(g, *rest)
    return e.select(here, share, filled(g, g._spec.dtype, (), 0))


def _extreme_there(g: Value, out: Value, x: Value, index: Value, src: Value, dim: int) -> Value:
    share, _, there = _shared(g, out, x, index, src, dim)
    return e.select(there, gather.gather(share, dim, index), filled(g, g._spec.dtype, (), 0))


# ---- products ----


def _others(x: Value, dim: int, index: Value, src: Value) -> tuple[Value, Value]:
    """For each element of x, and of src, the product of all others at its position."""
    rank = len(x._spec.shape)
    order = (*(i for i in range(rank) if i != dim), dim)
    back = tuple(order.index(i) for i in range(rank))
    x, index, src = (views.permute(v, order) for v in (x, index, src))
    shape, wanted = x._spec.shape, index._spec.shape
    rows, size = numel(shape[:-1]), shape[-1]
    places = creation.arange(rows * size, device=x._spec.device.device.name)
    start = views.reshape(views.slice_dim(places, 0, 0, rows), (*shape[:-1], 1))
    places = views.cat([places, _flat(e.add(index, e.mul(start, size)))])
    spot, number = ordered(places, 0)
    line = gather.gather(views.cat([_flat(x), _flat(src)]), 0, number)
    both = e.mul(_product(line, spot, wanted[-1], False), _product(line, spot, wanted[-1], True))
    found = scattered("set", filled(x, both._spec.dtype, both._spec.shape, 0), 0, number, both)
    head, tail = (
        views.slice_dim(found, 0, a, n) for a, n in ((0, rows * size), (rows * size, numel(wanted)))
    )
    return views.permute(views.reshape(head, shape), back), views.permute(
        views.reshape(tail, wanted), back
    )


def _flat(x: Value) -> Value:
    return views.reshape(x, (x._spec.numel,))


def _product(line: Value, spot: Value, most: int, after: bool) -> Value:
    """The product of the elements before, or after, each one at the same position.

    There are at most `most` of them.
    """
    n, one = line._spec.numel, filled(line, line._spec.dtype, (), 1)

    def joined(edge: Value, rest: Value) -> Value:
        return views.cat([rest, edge] if after else [edge, rest])

    def factors(value: Value, step: int) -> tuple[Value, Value]:
        """The elements `step` before or after, or 1 if they have another position."""
        low, high = (views.slice_dim(value, 0, a, n - step) for a in (0, step))
        same = e.eq(views.slice_dim(spot, 0, step, n - step), views.slice_dim(spot, 0, 0, n - step))
        return (low, e.select(same, high, one)) if after else (high, e.select(same, low, one))

    value = joined(filled(line, line._spec.dtype, (1,), 1), factors(line, 1)[1])
    step = 1
    while step < most:
        own, other = factors(value, step)
        value = joined(views.slice_dim(value, 0, n - step if after else 0, step), e.mul(own, other))
        step *= 2
    return value


def _product_here(g: Value, out: Value, x: Value, index: Value, src: Value, dim: int) -> Value:
    return e.mul(g, _others(x, dim, index, src)[0])


def _product_there(g: Value, out: Value, x: Value, index: Value, src: Value, dim: int) -> Value:
    return e.mul(gather.gather(g, dim, index), _others(x, dim, index, src)[1])


def _fold(kind: str, here: Any, there: Any, *saves: int | str) -> KernelOp:
    plan = partial(gather.plan_scatter, kind)
    doc = f"x with src folded in, by {kind}, at index along a dimension."
    return KernelOp(
        "scatter_reduce",
        plan,
        [here, None, there],
        [saves, (), saves],
        doc,
        batching="index.scatter",
        operand_names=("self", "index", "src"),
    )


def _put(name: str, *names: str) -> KernelOp:
    doc = "x with src at index along a dimension; the last of several at one place stays."
    return KernelOp(
        name,
        partial(gather.plan_scatter, "set"),
        [_uncovered, None, _at_index],
        [(1,), (), (1,)],
        doc,
        batching="index.scatter",
        operand_names=names,
    )


_OPS = {
    "set": _put("scatter", "self", "index", "src"),
    "unpool": _put("max_unpool", "self", "indices"),
    "amax": _fold("max", _extreme_here, _extreme_there, 0, 1, 2, "out"),
    "amin": _fold("min", _extreme_here, _extreme_there, 0, 1, 2, "out"),
    "prod": _fold("prod", _product_here, _product_there, 0, 1, 2),
}


# ---- a value with another's gradient ----


def _plan_stand(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    value = ins[0]
    out = Spec.of(value.device, value.dtype, value.shape)
    copy, tail = copy_into(value.device, value.dtype, value.shape, out.strides, value.strides)

    def launch(target: int, source: int, other: int) -> None:
        copy(target, source, *tail)

    return Plan(op, ins, [out], launch, static)


def _pass_on(g: Value, *_: Any) -> Value:
    return g


_stands_for = KernelOp(
    "stands_for",
    _plan_stand,
    [None, _pass_on],
    [(), ()],
    "The first value, with the gradient of the second.",
    batching="index.stand",
)


def standing_for(value: Value, other: Value) -> Value:
    """The elements of `value`, which has no record, with the gradient of `other`."""
    return call.call(_stands_for, (value, other))
