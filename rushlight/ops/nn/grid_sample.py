"""grid_sample: an image interpolated at given points, also beyond its edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, INDEX, DType, bool_, float32, int32, int64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Spec, numel
from rushlight.ops.create.creation import arange, full_spec
from rushlight.ops.family.declare import elementwise
from rushlight.ops.index.gather import gather
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.nn.interpolate import cubic_weights
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import packed
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.op import check_devices
from rushlight.tape.record.value import Value

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")

# A tap along one dimension: its index, whether it is inside (the index is 0 if not), and its
# weight.
Tap = tuple[Value, Value, Value]


def _clipped(place: Value, n: int) -> Value:
    """Clamped between the first and the last element.

    The gradient is zero outside and on the edge.
    """
    place = e.select(e.gt(place, 0), place, 0.0)
    return e.select(e.lt(place, n - 1), place, float(n - 1))


def _reflected(place: Value, n: int, align: bool) -> Value:
    """Mirrored at the first and last element, or at the outer edges of both."""
    low, span = (0.0, float(n - 1)) if align else (-0.5, float(n))
    if span == 0:
        return e.mul(place, 0)
    away = e.abs(e.sub(place, low))
    times = e.floor(e.div(away, span))
    rest = e.sub(away, e.mul(times, span))
    odd = e.ne(e.remainder(times, 2), 0)
    return e.add(e.select(odd, e.sub(span, rest), rest), low)


def _inside(place: Value, n: int, padding: str, align: bool) -> Value:
    if padding == "border":
        return _clipped(place, n)
    return _clipped(_reflected(place, n, align), n) if padding == "reflection" else place


def _taps(point: Value, n: int, mode: str, padding: str, align: bool) -> list[tuple[Value, Value]]:
    """The integer positions that coordinates in [-1, 1] read along n elements, and weights."""
    place = e.mul(e.add(point, 1), (n - 1) / 2) if align else _centred(point, float(n))
    if mode == "bicubic":
        low = e.floor(place)
        weights = cubic_weights(e.sub(place, low))
        return [(_inside(e.add(low, i - 1), n, padding, align), w) for i, w in enumerate(weights)]
    place = _inside(place, n, padding, align)
    if mode == "nearest":
        # A weight of one that depends on the point: so its gradient is zero, not absent.
        return [(e.round(place), e.select(e.lt(point, -math.inf), point, 1.0))]
    low = e.floor(place)
    share = e.sub(place, low)
    return [(low, e.sub(1, share)), (e.add(low, 1), share)]


def _is_inside(place: Expr, n: Expr) -> Expr:
    return (place >= 0) & (place < n)


def _index_of(whole: DType) -> Callable[..., Any]:
    return elementwise(
        "index",
        lambda place, n: s.cast(s.where(_is_inside(place, n), place, const(0, place.dtype)), whole),
        "The index of a tap; 0 where it lies outside.",
        accepts=FLOAT,
        result=whole,
        listed=False,
    )


_INDEX = {whole: _index_of(whole) for whole in (int32, int64)}
_here = elementwise(
    "here", _is_inside, "Whether a tap lies inside.", accepts=FLOAT, result=bool_, listed=False
)
_joined = elementwise(
    "joined",
    lambda rows, n, index: rows * n + index,
    "An index into flattened rows.",
    accepts=INDEX,
    listed=False,
)
_centred = elementwise(
    "centred",
    lambda point, n: ((point + 1) * n - 1) / 2,
    "A place among n elements.",
    accepts=FLOAT,
    listed=False,
)


def _looked_up(place: Value, share: Value, n: int, whole: DType) -> Tap:
    return _INDEX[whole](place, float(n)), _here(place, float(n)), share


_tap = elementwise(
    "tap",
    lambda x, inside, share: s.where(inside, x, 0.0) * share,
    "An element times its weight; zero outside.",
    accepts=FLOAT,
    conditions=(1,),
    listed=False,
)
_add_tap = elementwise(
    "add_tap",
    lambda total, x, inside, share: total + s.where(inside, x, 0.0) * share,
    "The sum so far and an element times its weight; zero outside.",
    accepts=FLOAT,
    conditions=(2,),
    listed=False,
)


def _with_tap(
    total: Value | None, table: Value, sizes: Sequence[int], taps: Sequence[Tap]
) -> Value:
    """One tap along each dimension, added: the elements there (0 outside) times the weights.

    A row of the table is one channel of all images: every channel is read at the same positions of
    it.
    """
    flat: Value | None = None
    inside: Value | None = None
    weight: Value | None = None
    for n, (index, here, share) in zip(sizes, taps, strict=True):
        flat = index if flat is None else _joined(flat, n, index)
        inside = here if inside is None else e.logical_and(inside, here)
        weight = share if weight is None else e.mul(weight, share)
    assert flat is not None and inside is not None and weight is not None
    channels = table._spec.shape[0]
    wide = views.expand(views.reshape(flat, (1, flat._spec.numel)), (channels, flat._spec.numel))
    seen = views.transpose(
        views.reshape(gather(table, 1, wide), (channels, *flat._spec.shape)), 0, 1
    )
    found = (seen, views.unsqueeze(inside, 1), views.unsqueeze(weight, 1))
    result: Value = _tap(*found) if total is None else _add_tap(total, *found)
    return result


def _check_operands(x: Value, grid: Value, mode: str, padding: str) -> None:
    check_devices("grid_sample", [x._spec, grid._spec])
    if x._spec.dtype is not grid._spec.dtype or x._spec.dtype.kind != "f":
        raise DTypeError(
            f"grid_sample: input {x._spec!r} and grid {grid._spec!r} must have one floating-point "
            "type"
        )
    rank = len(x._spec.shape) - 2
    fits = rank in (2, 3) and len(grid._spec.shape) == rank + 2 and grid._spec.shape[-1] == rank
    if not fits or x._spec.shape[0] != grid._spec.shape[0] or 0 in x._spec.shape[2:]:
        raise ShapeError(
            f"grid_sample: input {x._spec!r} (batch, channel, 2 or 3 sizes) and grid "
            f"{grid._spec!r} (batch, as many sizes, coordinates) do not fit"
        )
    if mode not in _MODES:
        raise ValueError(
            f"grid_sample: mode is bilinear, nearest or, of images, bicubic, got {mode!r}"
        )
    if mode == "bicubic" and rank == 3:
        raise ShapeError(
            "grid_sample: mode bicubic goes with images (batch, channel, height, width), got "
            f"{x._spec!r}"
        )
    if padding not in _PADDINGS:
        raise ValueError(f"grid_sample: padding_mode is one of {_PADDINGS}, got {padding!r}")


@composite(
    "grid_sample", method=False, top=False, pure=True, autocast={"cpu": "float32", "gpu": "widest"}
)
@packed
def grid_sample(
    input: Value,
    grid: Value,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Value:
    """The image at points with coordinates from -1 to 1, the last dimension's first.

    Args:
        mode: 'bilinear', 'nearest' or 'bicubic'.

    Example:
        >>> theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> grid = F.affine_grid(theta, (1, 1, 2, 2), align_corners=False)
        >>> F.grid_sample(torch.ones(1, 1, 2, 2), grid, align_corners=False)
        tensor([[[[1., 1.],
                  [1., 1.]]]])
    """
    _check_operands(input, grid, mode, padding_mode)
    if input._spec.dtype.itemsize == 2:  # positions and weights of halves would be too coarse
        wide = grid_sample(
            e.cast(input, float32), e.cast(grid, float32), mode, padding_mode, align_corners
        )
        return e.cast(wide, input._spec.dtype)
    sizes = input._spec.shape[2:]
    rank = len(sizes)
    if not grid._spec.numel or not input._spec.numel:
        shape = (*input._spec.shape[:2], *grid._spec.shape[1:-1])
        empty = _empty_result(input, shape)
        return e.add(empty, _empty_result(grid, shape)) if 0 in shape else empty
    along = []
    count, channels = input._spec.shape[:2]
    whole = int32 if count * numel(sizes) < 2**31 else int64
    for i, n in enumerate(sizes):
        point = views.select(grid, rank + 1, rank - 1 - i)
        taps = _taps(point, n, mode, padding_mode, bool(align_corners))
        along.append([_looked_up(place, share, n, whole) for place, share in taps])
    if count > 1:  # the start of each image
        starts = arange(
            0, count * sizes[0], sizes[0], dtype=whole, device=grid._spec.device.device.name
        )
        starts = views.reshape(starts, (count,) + (1,) * rank)
        along[0] = [(e.add(index, starts), here, share) for index, here, share in along[0]]
    table = views.reshape(views.transpose(input, 0, 1), (channels, count * numel(sizes)))
    total: Value | None = None
    for chosen in itertools.product(*along):
        total = _with_tap(total, table, sizes, chosen)
    assert total is not None
    return total


def _empty_result(x: Value, shape: Sequence[int]) -> Value:
    return views.reshape(
        e.mul(views.slice_dim(views.reshape(x, (x._spec.numel,)), 0, 0, 0), 0), tuple(shape)
    )


def _by_number(
    op: str, rank: int, input: Value, grid: Value, mode: int, padding: int, align_corners: bool
) -> Value:
    if len(input._spec.shape) != rank + 2:
        raise ShapeError(f"{op}: input must have {rank + 2} dimensions, got {input._spec!r}")
    return grid_sample(input, grid, _MODES[mode], _PADDINGS[padding], align_corners)


@composite("grid_sampler_2d", method=False, autocast={"cpu": "float32", "gpu": "widest"})
def grid_sampler_2d(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """grid_sample of images, the modes by number."""
    return _by_number(
        "grid_sampler_2d", 2, input, grid, interpolation_mode, padding_mode, align_corners
    )


@composite("grid_sampler_3d", method=False, autocast={"cpu": "float32", "gpu": "widest"})
def grid_sampler_3d(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """grid_sample of volumes, the modes by number."""
    return _by_number(
        "grid_sampler_3d", 3, input, grid, interpolation_mode, padding_mode, align_corners
    )


def _centres(theta: Value, n: int, align: bool) -> Value:
    """The coordinates, in [-1, 1], of n elements: of their centres, or with aligned corners."""
    if n == 1:
        return full_spec(Spec.of(theta._spec.device, theta._spec.dtype, (1,)), 0.0)
    steps = arange(n, dtype=theta._spec.dtype, device=theta._spec.device.device.name)
    return e.sub(e.mul(steps, 2 / (n - 1)), 1) if align else e.div(e.sub(e.mul(steps, 2), n - 1), n)


@composite("affine_grid", method=False, top=False, pure=True)
def affine_grid(theta: Value, size: Sequence[int], align_corners: bool | None = None) -> Value:
    """The points of an image of a size transformed by matrices, for grid_sample."""
    if theta._spec.dtype.kind != "f":
        raise DTypeError(
            f"affine_grid: theta must be floating point, got {theta._spec!r}; cast with .float()"
        )
    count, _, *sizes = (int(n) for n in size) if len(size) in (4, 5) else (0, 0)
    rank = len(sizes)
    if rank not in (2, 3) or theta._spec.shape != (count, rank, rank + 1) or min(size) < 1:
        raise ShapeError(
            "affine_grid: a size (batch, channel, 2 or 3 positive sizes) needs matrices (batch, 2, "
            f"3) or (batch, 3, 4), got theta {theta._spec!r} and size {list(size)}"
        )
    ones = full_spec(Spec.of(theta._spec.device, theta._spec.dtype, tuple(sizes)), 1.0)
    points = [ones]  # the last dimension's coordinate comes first
    for i, n in enumerate(sizes):
        line = views.reshape(_centres(theta, n, bool(align_corners)), (n,) + (1,) * (rank - 1 - i))
        points.insert(0, views.expand(line, tuple(sizes)))
    base = views.reshape(views.stack(points, rank), (-1, rank + 1))
    moved = matmul(base, views.transpose(theta, 1, 2))
    return views.reshape(moved, (count, *sizes, rank))
