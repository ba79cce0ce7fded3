"""Pooling over windows of one size at random steps: fractional max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import numel
from rushlight.ops.create import creation
from rushlight.ops.index.gather import gather
from rushlight.ops.index.scatter import filled
from rushlight.ops.nn.pooling import picked
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import drawing, rand
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.windows import Given, Sizes, each
from rushlight.tape.record.value import Value


def _wanted(op: str, x: Value, rank: int, size: Any, ratio: Any) -> Sizes:
    if (size is None) == (ratio is None):
        raise ValueError(f"{op}: pass either output_size or output_ratio")
    if ratio is None:
        return each(size, rank, op, "output_size", 0)
    ratios = tuple(ratio) if isinstance(ratio, Sequence) else (ratio,) * rank
    if len(ratios) != rank or not all(0 < r < 1 for r in ratios):
        raise ValueError(
            f"{op}: output_ratio must be one number or {rank} between 0 and 1, got {ratio!r}"
        )
    return tuple(int(n * r) for n, r in zip(x._spec.shape[-rank:], ratios, strict=True))


def _starts(x: Value, sample: Value, n: int, count: int, size: int) -> Value:
    """The starts of the windows of one dimension, (batch, channel, count), at random steps."""
    device = x._spec.device.device.name
    lead = sample._spec.shape
    last = filled(x, int64, (*lead, 1), n - size)
    if count == 1:
        return last
    pace = (n - size) / (count - 1)
    sample = views.unsqueeze(sample, -1)
    steps = e.add(creation.arange(count - 1, dtype=x._spec.dtype, device=device), sample)
    first = e.cast(e.mul(sample, pace), int64)
    return views.cat([e.sub(e.cast(e.mul(steps, pace), int64), first), last], -1)


def _samples(op: str, x: Value, rank: int, given: Value | None) -> Value:
    shape = (*x._spec.shape[:2], rank)
    if given is None:
        return rand(shape, dtype=x._spec.dtype, device=x._spec.device.device.name)
    if given._spec.shape != shape:
        raise ShapeError(
            f"{op}: _random_samples {given._spec!r} must have the shape {list(shape)} for "
            f"{x._spec!r}"
        )
    if given._spec.dtype is not x._spec.dtype:
        raise DTypeError(
            f"{op}: _random_samples {given._spec!r} must have the dtype of {x._spec!r}"
        )
    return given


def _check_windows(op: str, x: Value, rank: int, kernel: Sizes, wanted: Sizes) -> None:
    shape = x._spec.shape
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape[len(shape) - rank - 1 :]:
        raise ShapeError(
            f"{op}: input must have {rank + 1} or {rank + 2} dimensions, none but the batch empty, "
            f"got {x._spec!r}"
        )
    if x._spec.dtype.kind != "f":
        raise DTypeError(f"{op}: takes floating point, got {x._spec!r}; cast with .float()")
    for n, k, m in zip(shape[-rank:], kernel, wanted, strict=True):
        if k < 1 or m < 0 or m + k - 1 > n:
            raise ShapeError(
                f"{op}: {m} windows of {k} elements, each a step on, do not fit into {n} of "
                f"{x._spec!r}"
            )


@drawing
def _pool(
    op: str, input: Value, kernel_size: Given, size: Any, ratio: Any, samples: Value | None
) -> tuple[Value, Value]:
    rank = int(op[-2])
    kernel = each(kernel_size, rank, op, "kernel_size", 1)
    wanted = _wanted(op, input, rank, size, ratio)
    _check_windows(op, input, rank, kernel, wanted)
    if 0 in wanted:
        shape = (*input._spec.shape[:-rank], *wanted)
        empty = e.add(filled(input, input._spec.dtype, shape, 0), reductions.sum(input))
        return empty, e.cast(empty, int64)
    alone = len(input._spec.shape) == rank + 1
    x = views.unsqueeze(input, 0) if alone else input
    drawn = _samples(op, x, rank, samples)
    place: Value | None = None
    for i, (n, k, m) in enumerate(zip(x._spec.shape[2:], kernel, wanted, strict=True)):
        # PyTorch's sample has the width first for images, and the order of the dimensions for
        # volumes.
        sample = views.select(drawn, 2, 1 - i if rank == 2 else i)
        starts = _starts(x, sample, n, m, k)
        starts = views.reshape(
            starts, (*x._spec.shape[:2], *(m if j == i else 1 for j in range(rank)), *(1,) * rank)
        )
        inside = creation.arange(k, device=x._spec.device.device.name)
        at = e.add(starts, views.reshape(inside, (-1,) + (1,) * (rank - 1 - i)))
        place = at if place is None else e.add(e.mul(place, n), at)
    assert place is not None
    flat = views.reshape(place, (*x._spec.shape[:2], *wanted, numel(kernel)))
    best = reductions.argmax(picked(x, flat, rank), -1, True)
    places = views.squeeze(gather(flat, -1, best), -1)
    largest = picked(x, places, rank)
    return (views.squeeze(largest, 0), views.squeeze(places, 0)) if alone else (largest, places)


@composite("fractional_max_pool2d", method=False, top=False, autocast={"cpu": "float32"})
def fractional_max_pool2d(
    input: Value,
    kernel_size: Given,
    output_size: Given | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Value | None = None,
) -> Any:
    """The largest element of windows of height and width at random steps; their number is given."""
    both = _pool(
        "fractional_max_pool2d", input, kernel_size, output_size, output_ratio, _random_samples
    )
    return both if return_indices else both[0]


@composite("fractional_max_pool3d", method=False, top=False, autocast={"cpu": "float32"})
def fractional_max_pool3d(
    input: Value,
    kernel_size: Given,
    output_size: Given | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Value | None = None,
) -> Any:
    """The largest element of windows of a volume at random steps; their number is given."""
    both = _pool(
        "fractional_max_pool3d", input, kernel_size, output_size, output_ratio, _random_samples
    )
    return both if return_indices else both[0]
