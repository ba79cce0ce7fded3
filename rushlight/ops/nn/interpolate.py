"""Images in another size: the nearest element, or weighted neighbours along each dimension."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, DType, float32, int64, integer_range
from rushlight.core.errors import ShapeError
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.nn.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    take,
)
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import clamp
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image
from rushlight.tape.record.value import Value

_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_CUBIC = -0.75  # PyTorch's and OpenCV's parameter of cubic convolution

# Two neighbours at once: one pass over the elements, and few enough operands for every device.
_first_two = elementwise(
    "first_two",
    lambda x, u, y, v: x * u + y * v,
    "Sum of two weighted neighbours.",
    accepts=FLOAT,
    listed=False,
)
_two_more = elementwise(
    "two_more",
    lambda total, x, u, y, v: total + x * u + y * v,
    "The sum so far and two more weighted neighbours.",
    accepts=FLOAT,
    listed=False,
)

# Source positions of one dimension: input size, output size, input elements per output element.
Along = tuple[int, int, float]


# The input position of an output element's middle.
_middle = elementwise(
    "source_position",
    lambda i, scale: (i + 0.5) * scale - 0.5,
    "(i + 0.5) * scale - 0.5.",
    accepts=FLOAT,
    listed=False,
)


def _limited(index: Value, n: int) -> Value:
    return clamp(index, 0, n - 1)


def _steps(x: Value, count: int, dtype: DType) -> Value:
    return creation.arange(count, dtype=dtype, device=x._spec.device.device.name)


def _nearest(x: Value, dim: int, along: Along, exact: bool) -> Value:
    n, m, scale = along
    if n == m and scale == 1:
        return x
    place = _steps(x, m, float32)
    place = e.mul(e.add(place, 0.5) if exact else place, scale)
    return take(x, dim, _limited(e.cast(e.floor(place), int64), n))


def _source(x: Value, along: Along, align: bool) -> Value:
    """The input position of each output element."""
    n, m, scale = along
    steps = _steps(x, m, x._spec.dtype)
    if align:
        return e.mul(steps, (n - 1) / (m - 1) if m > 1 else 0.0)
    return _middle(steps, float(scale))


def _weighted(x: Value, dim: int, n: int, parts: Sequence[tuple[Value, Value]]) -> Value:
    """Sum of weight * x[index] along a dimension."""
    behind = (1,) * (len(x._spec.shape) - dim - 1)
    operands = []
    for index, weight in parts:
        operands += [take(x, dim, _limited(index, n)), views.reshape(weight, (-1, *behind))]
    total: Value = _first_two(*operands[:4])
    return _two_more(total, *operands[4:]) if operands[4:] else total


def _linear(x: Value, dim: int, along: Along, align: bool) -> Value:
    place = _source(x, along, align)
    place = clamp(place, 0.0)
    low = e.floor(place)
    share = e.sub(place, low)
    first = e.cast(low, int64)
    return _weighted(x, dim, along[0], [(first, e.sub(1, share)), (e.add(first, 1), share)])


def cubic_weights(t: Value) -> tuple[Value, Value, Value, Value]:
    """Weights of the elements at -1, 0, 1 and 2 for a point at t between 0 and 1."""

    def near(d: Value) -> Value:  # distance up to 1
        return e.add(e.mul(e.mul(e.sub(e.mul(d, _CUBIC + 2), _CUBIC + 3), d), d), 1)

    def far(d: Value) -> Value:  # distance from 1 to 2
        inner = e.add(e.mul(e.sub(e.mul(d, _CUBIC), 5 * _CUBIC), d), 8 * _CUBIC)
        return e.sub(e.mul(inner, d), 4 * _CUBIC)

    return far(e.add(t, 1)), near(t), near(e.sub(1, t)), far(e.sub(2, t))


def _cubic(x: Value, dim: int, along: Along, align: bool) -> Value:
    place = _source(x, along, align)
    low = e.floor(place)
    first = e.cast(low, int64)
    weights = cubic_weights(e.sub(place, low))
    return _weighted(x, dim, along[0], [(e.add(first, i - 1), w) for i, w in enumerate(weights)])


def _triangle(away: Value) -> Value:
    return e.select(e.lt(away, 1), e.sub(1, away), 0.0)


def _hat(away: Value) -> Value:
    """Cubic convolution of a distance, with PyTorch's and Pillow's parameter for antialiasing."""
    a = -0.5
    near = e.add(e.mul(e.mul(e.sub(e.mul(away, a + 2), a + 3), away), away), 1)
    far = e.mul(e.sub(e.mul(e.add(e.mul(e.sub(away, 5), away), 8), away), 4), a)
    return e.select(e.lt(away, 1), near, e.select(e.lt(away, 2), far, 0.0))


def _smooth(x: Value, dim: int, along: Along, align: bool, cubic: bool) -> Value:
    """A filter as wide as the input elements per output element; its weights are a matrix."""
    n, m, scale = along
    if align:
        scale = (n - 1) / (m - 1) if m > 1 else 0.0
    reach = (2.0 if cubic else 1.0) * max(scale, 1.0)
    centre = views.unsqueeze(e.mul(e.add(_steps(x, m, x._spec.dtype), 0.5), scale), 1)
    place = _steps(x, n, x._spec.dtype)
    away = e.div(e.abs(e.add(e.sub(place, centre), 0.5)), max(scale, 1.0))
    first, last = (e.trunc(e.add(e.add(centre, side), 0.5)) for side in (-reach, reach))
    seen = e.logical_and(e.ge(place, first), e.lt(place, last))
    weights = e.select(seen, (_hat if cubic else _triangle)(away), 0.0)
    weights = e.div(weights, reductions.sum(weights, 1, True))
    moved = matmul(views.transpose(x, dim, -1), views.transpose(weights, 0, 1))
    return views.transpose(moved, dim, -1)


def _sizes(
    x: Value, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The output sizes, and the scales where they are used as given."""
    given = x._spec.shape[2:]
    rank = len(given)
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: pass either size or scale_factor")
    if size is not None:
        if recompute:
            raise ValueError(
                "interpolate: recompute_scale_factor goes with scale_factor, not with size"
            )
        one = not hasattr(size, "__iter__") or (isinstance(size, Value) and not size._spec.shape)
        wanted = (operator.index(size),) * rank if one else tuple(operator.index(n) for n in size)
        if len(wanted) != rank or min(wanted) < 1:
            raise ShapeError(
                f"interpolate: size {list(wanted)} must be {rank} positive numbers for {x._spec!r}"
            )
        return wanted, None
    many = isinstance(scale_factor, (tuple, list))
    scales = tuple(float(f) for f in scale_factor) if many else (float(scale_factor),) * rank
    if len(scales) != rank:
        raise ShapeError(
            f"interpolate: scale_factor {list(scales)} must be one number or {rank} for {x._spec!r}"
        )
    wanted = tuple(int(n * f) for n, f in zip(given, scales, strict=True))
    if min(wanted) < 1:
        raise ShapeError(f"interpolate: scale_factor {list(scales)} leaves nothing of {x._spec!r}")
    return wanted, None if recompute else scales


@composite("interpolate", method=False, top=False, pure=True, autocast={"gpu": "float32"})
@follows_image
def interpolate(
    input: Value,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:
    """(batch, channel, ...) in another size.

    Modes are nearest, nearest-exact, linear, bilinear, trilinear, bicubic and area.

    Args:
        mode: 'nearest', 'nearest-exact', 'linear', 'bilinear', 'bicubic', 'trilinear' or 'area'.

    Example:
        >>> F.interpolate(torch.tensor([[[1.0, 2.0]]]), scale_factor=2, mode='nearest')
        tensor([[[1., 1., 2., 2.]]])
    """
    rank = len(input._spec.shape) - 2
    if (
        mode not in (*_RANKS, "nearest", "nearest-exact", "area")
        or not 1 <= rank <= 3
        or _RANKS.get(mode, rank) != rank
    ):
        raise NotImplementedError(f"interpolate: mode {mode!r} does not go with {input._spec!r}")
    if align_corners is not None and mode not in _RANKS:
        raise ValueError(
            "interpolate: align_corners goes with linear, bilinear, bicubic and trilinear, got "
            f"{mode!r}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: antialias goes with bilinear and bicubic, got {mode!r}")
    wanted, scales = _sizes(input, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA[rank](input, wanted)
    x = input
    # Gradients of halves are summed in float32 even where elements are only moved; weights are no
    # integers.
    wide = x._spec.dtype.itemsize == 2 if x._spec.dtype.kind == "f" else mode in _RANKS
    x = e.cast(x, float32) if wide else x
    # From the last dimension to the first, PyTorch's order of sums.
    for i in reversed(range(rank)):
        n, m = x._spec.shape[2 + i], wanted[i]
        along = (n, m, n / m if scales is None else 1 / scales[i])
        if antialias:
            x = _smooth(x, 2 + i, along, bool(align_corners), mode == "bicubic")
        else:
            x = _one_dimension(mode)(x, 2 + i, along, bool(align_corners))
        # Integers after each dimension.
        if x._spec.dtype.kind == "f" and not input._spec.differentiable:
            x = clamp(e.floor(e.add(x, 0.5)), *integer_range(input._spec.dtype))
    x = e.cast(x, input._spec.dtype)
    return e.clone(x) if x is input else x


def _one_dimension(mode: str) -> Callable[[Value, int, Along, bool], Value]:
    if mode.startswith("nearest"):
        return lambda x, dim, along, _: _nearest(x, dim, along, mode == "nearest-exact")
    return _cubic if mode == "bicubic" else _linear


@composite("upsample", method=False, top=False, autocast={"gpu": "float32"})
def upsample(
    input: Value,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Value:
    """The older name of interpolate.

    Args:
        mode: 'nearest', 'linear', 'bilinear', 'bicubic' or 'trilinear'.
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite("upsample_nearest", method=False, top=False, autocast={"gpu": "float32"})
def upsample_nearest(
    input: Value,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Value:
    """interpolate with mode nearest."""
    return interpolate(input, size, scale_factor, "nearest")


@composite("upsample_bilinear", method=False, top=False, autocast={"gpu": "float32"})
def upsample_bilinear(
    input: Value,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Value:
    """interpolate with mode bilinear and the corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)
