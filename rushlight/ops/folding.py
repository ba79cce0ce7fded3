"""The largest, smallest or product of what is put in each place: the part of scatter_reduce that is not a sum.

# Note [Folding]
1. Where places times elements are few, each place looks at each element: one comparison and one reduction.
2. Else the elements are sorted by their places, neighbours of one place are joined at distances 1, 2, 4, ..., and the last of
   each place holds the result: memory for the elements alone, a logarithm of rounds.
3. Equal extremes share the gradient evenly, as PyTorch has it. The second way finds the extreme without a record and
   gives it the gradient of the mean of all that equal it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.shapes import Shape, Spec, numel
from rushlight.ops import creation, elementwise as e, indexing, reductions, views
from rushlight.ops.creation import full_spec
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.sorting import ordered
from rushlight.tape import call
from rushlight.tape.op import Op, Plan, Static
from rushlight.tape.value import Value

FEW = 1 << 22
LOWEST = {"amax": True, "amin": False}


def filled(like: Value, dtype: DType, shape: Shape, value: float) -> Value:
    return full_spec(Spec.of(like.spec.device, dtype, tuple(shape)), value)


def extreme(dtype: DType, lowest: bool) -> float:
    """What no element is beyond."""
    if dtype.kind == "f":
        return -math.inf if lowest else math.inf
    bits = 8 * dtype.itemsize - 1
    return -(1 << bits) if lowest else (1 << bits) - 1


def _counting(n: int, like: Value) -> Value:
    return creation.arange(n, device=like.spec.device.device.name)


def folded(x: Value, dim: int, index: Value, src: Value, kind: str) -> Value:
    """amax, amin or prod of x and what index puts there along a dimension. See Note [Folding]."""
    rank = len(x.spec.shape)
    order = (*(i for i in range(rank) if i != dim), dim)
    x, index, src = (views.permute(v, order) for v in (x, index, src))
    few = index.spec.numel * x.spec.shape[-1] <= FEW
    out = (_dense if few else _in_order)(x, index, src, kind)
    return views.permute(out, tuple(order.index(i) for i in range(rank)))


def _dense(x: Value, index: Value, src: Value, kind: str) -> Value:
    size, dtype = x.spec.shape[-1], x.spec.dtype
    mine = e.eq(views.unsqueeze(index, -2), views.reshape(_counting(size, x), (size, 1)))
    none = 1 if kind == "prod" else extreme(dtype, LOWEST[kind])
    spread = e.select(mine, views.unsqueeze(src, -2), filled(x, dtype, (), none))
    whole = views.cat([views.unsqueeze(x, -1), spread], -1)
    return e.cast(getattr(reductions, kind)(whole, -1), dtype)


# ---- in the order of places ----


def _joined(kind: str, a: Value, b: Value) -> Value:
    return {"prod": e.mul, "amax": e.maximum, "amin": e.minimum}[kind](a, b)


def _at_places(x: Value, places: Value, src: Value, kind: str, most: int) -> Value:
    """x joined with all of src at their places, of which each gets at most `most`; all are vectors."""
    n, limit = places.spec.numel, x.spec.numel
    order = ordered(places, 0)[1]
    at, value = indexing.gather(places, 0, order), indexing.gather(src, 0, order)
    step = 1
    while step < most:
        head, tail = views.slice_dim(value, 0, 0, step), views.slice_dim(value, 0, step, n - step)
        same = e.eq(views.slice_dim(at, 0, step, n - step), views.slice_dim(at, 0, 0, n - step))
        both = _joined(kind, tail, views.slice_dim(value, 0, 0, n - step))
        value = views.cat([head, e.select(same, both, tail)])
        step *= 2
    after = views.cat([views.slice_dim(at, 0, 1, n - 1), filled(at, at.spec.dtype, (1,), -1)])
    target = e.select(e.ne(at, after), at, limit)  # all but the last of a place go to one that is cut off
    number = indexing.scatter_add(filled(at, int64, (limit + 1,), 0), 0, target, e.add(_counting(n, at), 1))
    number = views.slice_dim(number, 0, 0, limit)
    new = indexing.gather(value, 0, e.maximum(e.sub(number, 1), 0))
    return e.select(e.gt(number, 0), _joined(kind, x, new), x)


def _in_order(x: Value, index: Value, src: Value, kind: str) -> Value:
    shape = x.spec.shape
    rows, size, count = numel(shape[:-1]), shape[-1], index.spec.shape[-1]
    start = views.reshape(e.mul(_counting(rows, x), size), (rows, 1))
    places = views.reshape(e.add(views.reshape(index, (rows, count)), start), (rows * count,))
    flat, given = views.reshape(x, (rows * size,)), views.reshape(src, (rows * count,))
    if kind == "prod":
        return views.reshape(_at_places(flat, places, given, kind, count), shape)
    best = _at_places(call.detached(flat), places, call.detached(given), kind, count)
    if flat.spec.dtype.kind != "f":
        return views.reshape(best, shape)
    here, there = e.eq(flat, best), e.eq(given, indexing.gather(best, 0, places))
    dtype = flat.spec.dtype
    zero = filled(flat, dtype, (), 0)
    equal = indexing.scatter_add(e.cast(here, dtype), 0, places, e.cast(there, dtype))
    total = indexing.scatter_add(e.select(here, flat, zero), 0, places, e.select(there, given, zero))
    mean = e.div(total, e.maximum(equal, 1.0))
    return views.reshape(standing_for(best, mean), shape)


def _plan_stand(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    value = ins[0]
    out = Spec.of(value.device, value.dtype, value.shape)
    copy, tail = views.copy_into(value.device, value.dtype, value.shape, out.strides, value.strides)

    def launch(target: int, source: int, other: int) -> None:
        copy(target, source, *tail)

    return Plan(op, ins, [out], launch, static)


def _pass_on(g: Value, *_: Any) -> Value:
    return g


_stands_for = KernelOp(
    "stands_for", _plan_stand, [None, _pass_on], [(), ()], "The first value, with the gradient of the second."
)


def standing_for(value: Value, other: Value) -> Value:
    """The elements of `value`, which has no record, with the gradient of `other`."""
    return call.call(_stands_for, (value, other))
