"""Reductions of consecutive segments of a dimension, of given lengths."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import FLOAT, INDEX, int64
from rushlight.core.errors import DTypeError, RushlightError, ShapeError, UnsupportedDType
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.index.scatter import filled
from rushlight.ops.index.select import scatter_reduce
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.registry import composite
from rushlight.ops.sort.searchsorted import search
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, is_followed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_FOLDS = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}
_NOTHING = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}


def _check_operands(data: Value, where: Value, axis: int, reduce: str) -> None:
    if reduce not in _FOLDS:
        raise RushlightError(
            f"segment_reduce: reduce is sum, mean, max, min or prod, got {reduce!r}"
        )
    if data._spec.dtype not in FLOAT:
        raise UnsupportedDType(
            f"segment_reduce: takes floating point numbers, got {data._spec!r}; cast with .float()"
        )
    if where._spec.dtype not in INDEX:
        raise DTypeError(
            f"segment_reduce: lengths and offsets are int64 or int32, got {where._spec!r}; cast "
            "with .long()"
        )
    if len(where._spec.shape) != axis + 1 or where._spec.shape[:-1] != data._spec.shape[:axis]:
        raise ShapeError(
            f"segment_reduce: lengths or offsets {where._spec!r} must have the dimensions of "
            f"{data._spec!r} before axis {axis}, and one for the segments"
        )


def _check_lengths(lengths: Value, size: int) -> None:
    """Check that the segments cover the whole axis, on synchronous devices."""
    limits = lengths._spec.device.device.limits
    if (
        lengths._spec.hidden
        or limits.asynchronous
        or not limits.computes
        or not lengths._spec.numel
    ):
        return
    lengths = physical_of(lengths)
    wrong = e.bitwise_or(
        e.lt(reductions.amin(lengths, -1), 0), e.ne(reductions.sum(lengths, -1), size)
    )
    bad: Any = reductions.any_(wrong)
    if bad.item():
        raise RushlightError(
            f"segment_reduce: lengths must not be negative, and add up to {size} along the axis; "
            "with unsafe=True what is left over is ignored"
        )


def _ids(data: Value, axis: int, starts: Value, ends: Value) -> Value:
    """The segment of each element along the axis, in the shape of data.

    The rest gets an extra last one.
    """
    count, size = ends._spec.shape[-1], data._spec.shape[axis]
    batch = ends._spec.shape[:-1]
    places = views.expand(
        creation.arange(size, device=data._spec.device.device.name), (*batch, size)
    )
    ids = search(ends, places, True)
    before = e.lt(places, views.slice_dim(starts, axis, 0, 1))
    ids = e.select(before, filled(ids, int64, (), count), ids)
    return views.expand(
        views.reshape(ids, (*batch, size, *(1,) * (len(data._spec.shape) - axis - 1))),
        data._spec.shape,
    )


def _edges(lengths: Value | None, offsets: Value | None) -> tuple[Value, Value]:
    """The starts and ends of segments."""
    if lengths is not None:
        ends = cumsum(e.cast(lengths, int64), -1)
        return e.sub(ends, e.cast(lengths, int64)), ends
    assert offsets is not None
    offsets, dim = e.cast(offsets, int64), len(offsets._spec.shape) - 1
    count = offsets._spec.shape[-1] - 1
    return views.slice_dim(offsets, dim, 0, count), views.slice_dim(offsets, dim, 1, count)


@composite("segment_reduce", method=False)
def segment_reduce(
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Value:
    """The sum, mean, max, min or prod of each segment of an axis, given lengths or offsets.

    Example:
        >>> torch.segment_reduce(torch.tensor([1.0, 2.0, 3.0]), 'sum', lengths=torch.tensor([2, 1]))
        tensor([3., 3.])
    """
    given = lengths if lengths is not None else offsets
    if given is None or indices is not None or (lengths is not None and offsets is not None):
        raise RushlightError(
            "segment_reduce: give lengths or offsets, one of them; indices are not taken"
        )
    axis = wrap_dim(axis, len(data._spec.shape), "segment_reduce")
    _check_operands(data, given, axis, reduce)
    if lengths is not None and not unsafe:
        _check_lengths(lengths, data._spec.shape[axis])
    if offsets is not None and not offsets._spec.shape[-1]:
        raise ShapeError(
            f"segment_reduce: offsets name each start and the end, got none in {offsets._spec!r}"
        )
    starts, ends = _edges(lengths, offsets)
    return _folded(data, reduce, axis, starts, ends, initial)


def _folded(data: Value, reduce: str, axis: int, starts: Value, ends: Value, initial: Any) -> Value:
    dtype, inner = data._spec.dtype, data._spec.shape[axis + 1 :]
    count = ends._spec.shape[-1]
    extreme = reduce in ("max", "min")
    first = _NOTHING[reduce] if initial is None or extreme else float(initial)
    out = filled(data, dtype, (*ends._spec.shape[:-1], count + 1, *inner), first)
    if data._spec.numel and count:
        out = scatter_reduce(out, axis, _ids(data, axis, starts, ends), data, _FOLDS[reduce])
    elif is_followed(data):
        out = Needed.constant_in(out, reductions.sum(data))
    out = views.slice_dim(out, axis, 0, count)
    if extreme and initial is not None:
        start = filled(data, dtype, (), float(initial))
        return e.select(e.lt(out, start) if reduce == "max" else e.gt(out, start), start, out)
    if reduce != "mean":
        return out
    lengths = views.reshape(
        call.detached(e.sub(ends, starts)), (*ends._spec.shape, *(1,) * len(inner))
    )
    nothing = float("nan") if initial is None else first
    empty = e.eq(lengths, 0)
    mean = e.div(out, e.cast(e.select(empty, 1, lengths), dtype))
    return e.select(empty, filled(data, dtype, (), nothing), mean)
