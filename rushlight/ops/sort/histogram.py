"""Histograms, by binary search in the edges of bins, and counts of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import FLOAT, bool_, float32, float64, int64
from rushlight.core.errors import DTypeError, RushlightError
from rushlight.ops.create.like import linspace
from rushlight.ops.family import read_back
from rushlight.ops.family.no_derivative import without_derivative
from rushlight.ops.family.returned import returned
from rushlight.ops.index import gather
from rushlight.ops.index.scatter import filled
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.sort.searchsorted import searchsorted
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import device_of, ravel
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


@returned("histogram")
class Histogram(NamedTuple):
    """The result of histogram."""

    hist: Any
    bin_edges: Any


@returned("histogramdd")
class HistogramDD(NamedTuple):
    """The result of histogramdd."""

    hist: Any
    bin_edges: Any


@composite("bincount")
def bincount(input: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """How often each of 0, 1, 2, ... occurs, or the sum of its weights.

    The largest is read from the device.

    Example:
        >>> torch.bincount(torch.tensor([0, 2, 2]))
        tensor([1, 0, 2])
    """
    if input._spec.dtype.kind not in "iu" or len(input._spec.shape) != 1:
        raise RushlightError(
            f"bincount: takes a vector of integers that are not negative, got {input._spec!r}"
        )
    if minlength < 0:
        raise RushlightError(f"bincount: minlength must not be negative, got {minlength}")
    if weights is not None and weights._spec.shape != input._spec.shape:
        raise RushlightError(
            f"bincount: weights {weights._spec!r} must have the shape of {input._spec!r}"
        )
    if not input._spec.numel:  # with weights too, as in PyTorch
        return filled(input, int64, (minlength,), 0)
    index = e.cast(input, int64)
    low, high = (read_back.read(f(index))[0] for f in (reductions.amin, reductions.amax))
    if low < 0:
        raise RushlightError(f"bincount: takes integers that are not negative, got {low}")
    size = max(minlength, high + 1)
    if weights is None:
        share = filled(index, int64, index._spec.shape, 1)
    else:
        share = e.cast(
            call.detached(weights), float32 if weights._spec.dtype is float32 else float64
        )
    total = gather.scatter_add(filled(index, share._spec.dtype, (size,), 0), 0, index, share)
    return without_derivative("bincount", total, weights)


def _ends(x: Value, given: Sequence[float] | None, apart: float) -> tuple[float, float]:
    """The range of a histogram: as given, or from the smallest element to the largest."""
    if given is not None:
        low, high = (float(v) for v in given)
    elif not x._spec.numel:
        low, high = 0.0, 1.0
    else:
        low, high = (float(read_back.read(f(x))[0]) for f in (reductions.amin, reductions.amax))
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise RushlightError(
            f"histogram: the range from {low} to {high} is not finite; pass one that is"
        )
    if low > high:
        raise RushlightError(f"histogram: the range from {low} to {high} goes backwards")
    return (low, high) if low < high else (low - apart, high + apart)


_MOST_BINS = 1 << 27  # half a gigabyte of float32, some seconds


def _check_bins(op: str, bins: int) -> None:
    if not isinstance(bins, int) or not 1 <= bins <= _MOST_BINS:
        raise RushlightError(f"{op}: bins is a number from 1 to {_MOST_BINS}, got {bins!r:.60}")


def _tally(x: Value, place: Value, bins: int, inside: Value, weight: Value | None) -> Value:
    """The weights (or ones) of elements inside, summed by position: a vector."""
    dtype = x._spec.dtype
    share = filled(x, dtype, x._spec.shape, 1) if weight is None else ravel(weight)
    # Elements outside go to an extra last position that is cut off.
    total = filled(x, dtype, (bins + 1,), 0)
    if x._spec.numel:
        total = gather.scatter_add(total, 0, e.select(inside, place, bins), share)
    return views.slice_dim(total, 0, 0, bins)


@composite("histc", out="exact")
def histc(input: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Counts of elements in `bins` even bins from min to max (of the elements, if both are 0).

    Example:
        >>> torch.histc(torch.tensor([0.0, 1.0, 2.0, 2.0]), bins=2, min=0, max=2)
        tensor([1., 3.])
    """
    _check_bins("histc", bins)
    if input._spec.dtype not in FLOAT:
        raise DTypeError(f"histc: takes floating point, got {input._spec!r}; cast with .float()")
    x = ravel(call.detached(input))
    low, high = _ends(x, None if min == max and x._spec.numel else (min, max), 1.0)
    if high - low == 0:  # one number, so large that adding 1 does not change it
        low, high = low - abs(low) / 2, high + abs(high) / 2
    inside = e.logical_and(e.ge(x, low), e.le(x, high))
    wide = e.cast(x, float32) if x._spec.dtype.itemsize == 2 else x
    place = e.mul(e.sub(e.select(inside, wide, low), low), bins / (high - low))
    return _tally(x, e.minimum(e.cast(place, int64), bins - 1), bins, inside, None)


def _bins(x: Value, edges: Value) -> tuple[Value, Value]:
    """The bin of each element of a vector, and whether it is in one.

    The last bin includes its end.
    """
    bins = edges._spec.numel - 1
    place = e.sub(searchsorted(edges, x, right=True), 1)
    first, last = (views.slice_dim(edges, 0, k, 1) for k in (0, bins))
    inside = e.logical_and(e.ge(x, first), e.le(x, last))
    return e.maximum(e.minimum(place, bins - 1), 0), inside


def _edges(op: str, x: Value, bins: Any, given: Sequence[float] | None) -> Value:
    if isinstance(bins, Value):
        if len(bins._spec.shape) != 1 or bins._spec.numel < 2:
            raise RushlightError(
                f"{op}: the edges of bins must be a vector of two or more, got {bins._spec!r}"
            )
        if bins._spec.dtype is not x._spec.dtype:
            raise DTypeError(
                f"{op}: edges {bins._spec!r} must have the type of {x._spec!r}; cast with "
                ".to(dtype)"
            )
        if given is not None:
            raise RushlightError(f"{op}: pass edges or a range, not both")
        return call.detached(bins)
    _check_bins(op, bins)
    low, high = _ends(x, given, 0.5)
    return linspace(low, high, bins + 1, dtype=x._spec.dtype, device=device_of(x))


def _check_input(op: str, input: Value, weight: Value | None, shape: tuple[int, ...]) -> None:
    if input._spec.dtype not in (float32, float64):
        raise DTypeError(
            f"{op}: takes float32 and float64, got {input._spec!r}; cast with .float()"
        )
    if weight is not None and (
        weight._spec.shape != shape or weight._spec.dtype is not input._spec.dtype
    ):
        raise RushlightError(
            f"{op}: the weights {weight._spec!r} must have the shape {list(shape)} and type of "
            f"{input._spec!r}"
        )


def _dense(hist: Value, edges: Sequence[Value]) -> Value:
    """Densities: shares of the total per volume."""
    out = e.div(hist, reductions.sum(hist))
    for dim, line in enumerate(edges):
        n = line._spec.numel - 1
        width = e.sub(views.slice_dim(line, 0, 1, n), views.slice_dim(line, 0, 0, n))
        out = e.div(out, views.reshape(width, (n,) + (1,) * (len(edges) - dim - 1)))
    return out


@composite("histogram", out="exact")
def histogram(
    input: Value,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Histogram:
    """Elements counted in bins (a number of even ones, or their edges), and the edges.

    Example:
        >>> torch.histogram(torch.tensor([0.5, 1.5, 1.6]), bins=2, range=(0.0, 2.0)).hist
        tensor([1., 2.])
    """
    _check_input("histogram", input, weight, input._spec.shape)
    x = ravel(call.detached(input))
    edges = _edges("histogram", x, bins, range)
    place, inside = _bins(x, edges)
    hist = _tally(
        x, place, edges._spec.numel - 1, inside, None if weight is None else call.detached(weight)
    )
    hist = _dense(hist, [edges]) if density else hist
    hist, edges = (
        without_derivative("histogram", part, input, weight, bins) for part in (hist, edges)
    )
    return Histogram(hist, edges)


@composite("histogramdd", method=False)
def histogramdd(
    input: Value,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> HistogramDD:
    """Points (..., D) counted in D-dimensional bins, and the edges along each dimension."""
    shape = input._spec.shape
    if len(shape) < 2 or not shape[-1]:
        raise RushlightError(
            f"histogramdd: points are rows of one coordinate or more, got {input._spec!r}"
        )
    _check_input("histogramdd", input, weight, shape[:-1])
    count = shape[-1]
    listed = [bins] * count if isinstance(bins, int) else list(bins)
    if len(listed) != count or (range is not None and len(range) != 2 * count):
        raise RushlightError(
            f"histogramdd: {count} coordinates need as many bins and two ends of a range each"
        )
    points = views.reshape(call.detached(input), (-1, count) if input._spec.numel else (0, count))
    n = points._spec.shape[0]
    place, inside = filled(points, int64, (n,), 0), filled(points, bool_, (n,), True)
    edges = []
    for dim, own in enumerate(listed):
        x = views.contiguous(views.select(points, 1, dim))
        line = _edges(
            "histogramdd", x, own, None if range is None else range[2 * dim : 2 * dim + 2]
        )
        at, within = _bins(x, line)
        place = e.add(e.mul(place, line._spec.numel - 1), at)
        inside = e.logical_and(inside, within)
        edges.append(line)
    sizes = tuple(line._spec.numel - 1 for line in edges)
    total = 1
    for size in sizes:
        total *= size
    _check_bins("histogramdd", total)
    flat = views.contiguous(views.select(points, 1, 0))
    hist = views.reshape(
        _tally(flat, place, total, inside, None if weight is None else call.detached(weight)), sizes
    )
    hist = _dense(hist, edges) if density else hist
    sources = (input, weight, *listed)
    hist, *edges = (without_derivative("histogramdd", part, *sources) for part in (hist, *edges))
    return HistogramDD(hist, tuple(edges))
