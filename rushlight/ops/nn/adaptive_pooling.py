"""Pooling of n elements to m: window i goes from i * n // m to ceil((i + 1) * n / m)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, compute_type, int64
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import numel
from rushlight.ops.create import creation
from rushlight.ops.index.gather import gather
from rushlight.ops.nn.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lowest,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    picked,
)
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image
from rushlight.ops.view.windows import Sizes
from rushlight.tape.record.op import check_dtypes
from rushlight.tape.record.value import Value

Wanted = int | None | Sequence[int | None]

_AVG = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}
_MAX = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}


def take(x: Value, dim: int, index: Value) -> Value:
    """x at a vector of indices along a dimension, without moving the dimension to the front."""
    shape = x._spec.shape
    count = index._spec.numel
    column = views.reshape(index, (count,) + (1,) * (len(shape) - dim - 1))
    return gather(x, dim, views.expand(column, (*shape[:dim], count, *shape[dim + 1 :])))


def _wanted(op: str, x: Value, output_size: Wanted) -> Sizes:
    """The result's sizes; None keeps the input's."""
    rank = int(op[-2])
    shape = x._spec.shape
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: input must have {rank + 1} or {rank + 2} dimensions, got {x._spec!r}"
        )
    listed = (
        [output_size] * rank
        if output_size is None or isinstance(output_size, int)
        else list(output_size)
    )
    listed = listed * rank if len(listed) == 1 else listed
    if len(listed) != rank:
        raise ShapeError(f"{op}: output_size must be one number or {rank}, got {listed}")
    sizes = tuple(n if m is None else m for m, n in zip(listed, shape[-rank:], strict=True))
    if min(sizes) < 0 or 0 in shape[len(shape) - rank :]:
        raise ShapeError(
            f"{op}: sizes must be positive, got input {x._spec!r} and output_size {listed}"
        )
    return sizes


def _spans(x: Value, n: int, m: int) -> tuple[Value, Value, int]:
    """First elements and lengths of m windows over n elements, and the longest."""
    device = x._spec.device.device.name
    step = creation.arange(m, device=device)
    first = e.floor_divide(e.mul(step, n), m)
    past = e.floor_divide(e.add(e.mul(e.add(step, 1), n), m - 1), m)
    # Window i starts at i * n / m rounded down; rounding loses at most 1 - gcd / m, in some window
    # exactly that.
    longest = -(-(n + m - math.gcd(n, m)) // m) if m else 0
    return first, e.sub(past, first), longest


def _windows(x: Value, dim: int, m: int) -> tuple[Value, Value, Value, Value]:
    """Dimension `dim` as (m, longest): elements, positions, validity, window length."""
    n = x._spec.shape[dim]
    first, length, longest = _spans(x, n, m)
    inside = creation.arange(longest, device=x._spec.device.device.name)
    place = e.add(views.unsqueeze(first, 1), inside)
    belongs = e.lt(inside, views.unsqueeze(length, 1))
    place = e.select(belongs, place, 0)
    shape = x._spec.shape
    seen = take(x, dim, views.reshape(place, (m * longest,)))
    return (
        views.reshape(seen, (*shape[:dim], m, longest, *shape[dim + 1 :])),
        place,
        belongs,
        length,
    )


def _column(v: Value, behind: int) -> Value:
    return views.reshape(v, (*v._spec.shape, *(1,) * behind))


def _no_elements(x: Value, sizes: Sizes) -> Value:
    shape = (*x._spec.shape[: len(x._spec.shape) - len(sizes)], *sizes)
    empty = creation.full(shape, 0, dtype=x._spec.dtype, device=x._spec.device.device.name)
    return e.add(empty, reductions.sum(x))  # a function of the input, which has a gradient of zeros


def _adaptive_avg(op: str, x: Value, output_size: Wanted) -> Value:
    sizes = _wanted(op, x, output_size)
    check_dtypes(op, [x._spec], FLOAT)
    rank = len(sizes)
    given = x._spec.shape[-rank:]
    if x._spec.numel == 0 or 0 in sizes:
        return _no_elements(x, sizes)
    if not any(n % m for n, m in zip(given, sizes, strict=True)):
        return _AVG[rank](x, tuple(n // m for n, m in zip(given, sizes, strict=True)))
    kept = x._spec.dtype
    x = e.cast(x, compute_type(kept))  # sums of halves overflow early
    zero = creation.full((), 0, dtype=x._spec.dtype, device=x._spec.device.device.name)
    for i, m in enumerate(sizes):
        dim = len(x._spec.shape) - rank + i
        behind = rank - 1 - i
        seen, _, belongs, length = _windows(x, dim, m)
        total = reductions.sum(e.select(_column(belongs, behind), seen, zero), dim + 1)
        x = e.div(total, _column(e.cast(length, x._spec.dtype), behind))
    return e.cast(x, kept)


@composite("adaptive_avg_pool1d", method=False, pure=True)
def adaptive_avg_pool1d(input: Value, output_size: Wanted) -> Value:
    """Means of windows of a length; the number of windows is given."""
    return _adaptive_avg("adaptive_avg_pool1d", input, output_size)


@composite("adaptive_avg_pool2d", method=False, top=False, pure=True)
@follows_image
def adaptive_avg_pool2d(input: Value, output_size: Wanted) -> Value:
    """Means of windows of height and width; the number of windows is given.

    Example:
        >>> F.adaptive_avg_pool2d(torch.ones(1, 3, 5, 7), (2, 2)).shape
        rushlight.Size([1, 3, 2, 2])
    """
    return _adaptive_avg("adaptive_avg_pool2d", input, output_size)


@composite("adaptive_avg_pool3d", method=False, top=False, pure=True, autocast={"cpu": "float32"})
def adaptive_avg_pool3d(input: Value, output_size: Wanted) -> Value:
    """Means of windows of depth, height and width; the number of windows is given."""
    return _adaptive_avg("adaptive_avg_pool3d", input, output_size)


def _argmax(x: Value, sizes: Sizes) -> Value:
    """For each window the index of its largest element into the flattened spatial dimensions."""
    rank = len(sizes)
    lead = len(x._spec.shape) - rank
    low = creation.full(
        (), lowest(x._spec.dtype), dtype=x._spec.dtype, device=x._spec.device.device.name
    )
    seen: Value = x
    place: Value | None = None
    for i, (n, m) in enumerate(zip(x._spec.shape[lead:], sizes, strict=True)):
        # So far i dimensions are (m, longest) each; those after them are unchanged.
        seen, at, belongs, _ = _windows(seen, lead + 2 * i, m)
        seen = e.select(_column(belongs, rank - 1 - i), seen, low)
        at = _column(at, 2 * (rank - 1 - i))
        place = at if place is None else e.add(e.mul(place, n), at)
    assert place is not None
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    rows = views.permute(seen, (*range(lead), *(lead + i for i in order)))
    longest = numel(rows._spec.shape[lead + rank :])
    best = reductions.argmax(
        views.reshape(rows, (*rows._spec.shape[: lead + rank], longest)), -1, True
    )
    table = views.reshape(views.permute(place, order), (*sizes, longest))
    shape = best._spec.shape
    return views.squeeze(gather(views.expand(table, (*shape[:-1], longest)), -1, best), -1)


def _adaptive_max(op: str, x: Value, output_size: Wanted, return_indices: bool) -> Any:
    sizes = _wanted(op, x, output_size)
    rank = len(sizes)
    given = x._spec.shape[-rank:]
    if 0 in x._spec.shape[-rank - 1 :]:
        raise ShapeError(f"{op}: only the batch of the input may be empty, got {x._spec!r}")
    if x._spec.numel == 0 or 0 in sizes:
        empty = _no_elements(x, sizes)
        return (empty, e.cast(empty, int64)) if return_indices else empty
    if not any(n % m for n, m in zip(given, sizes, strict=True)):
        kernel = tuple(n // m for n, m in zip(given, sizes, strict=True))
        return _MAX[rank](x, kernel, return_indices=return_indices)
    places = _argmax(x, sizes)
    largest = picked(x, places, rank)
    return (largest, places) if return_indices else largest


@composite("adaptive_max_pool1d", method=False, pure=True)
def adaptive_max_pool1d(input: Value, output_size: Wanted, return_indices: bool = False) -> Any:
    """The largest of windows of a length; the number of windows is given."""
    return _adaptive_max("adaptive_max_pool1d", input, output_size, return_indices)


@composite("adaptive_max_pool2d", method=False, top=False, pure=True)
@follows_image
def adaptive_max_pool2d(input: Value, output_size: Wanted, return_indices: bool = False) -> Any:
    """The largest of windows of height and width; the number of windows is given."""
    return _adaptive_max("adaptive_max_pool2d", input, output_size, return_indices)


@composite("adaptive_max_pool3d", method=False, top=False, pure=True, autocast={"cpu": "float32"})
def adaptive_max_pool3d(input: Value, output_size: Wanted, return_indices: bool = False) -> Any:
    """The largest of windows of depth, height and width; the number of windows is given."""
    return _adaptive_max("adaptive_max_pool3d", input, output_size, return_indices)
