"""Elements by rank along a dimension: k-th values, medians, quantiles, modes.

Of equal elements the one found is that of a stable sort. Ranks are positions in the sorted
dimension, where NaN is last; the gradient goes to the elements that were read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core.dtypes import float32, float64, int64
from rushlight.core.errors import DTypeError, RushlightError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import rowwise
from rushlight.ops.family.returned import returned
from rushlight.ops.family.rowwise import Rows
from rushlight.ops.index import gather
from rushlight.ops.index.scatter import filled, standing_for
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.numbers import lerp
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import Running, run_fold
from rushlight.ops.registry import composite
from rushlight.ops.sort.sort import ordered
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import device_of, ravel
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr
from rushlight.tape.record import call
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_ROUNDING = {"lower": e.floor, "higher": e.ceil, "nearest": e.round}
_WAYS = ("linear", "lower", "higher", "midpoint", "nearest")


@returned("kthvalue")
class KthValue(NamedTuple):
    """The result of kthvalue."""

    values: Any
    indices: Any


@returned("median")
class Median(NamedTuple):
    """The result of median along a dimension."""

    values: Any
    indices: Any


@returned("nanmedian")
class NanMedian(NamedTuple):
    """The result of nanmedian along a dimension."""

    values: Any
    indices: Any


@returned("mode")
class Mode(NamedTuple):
    """The result of mode."""

    values: Any
    indices: Any


def _at_least_1d(op: str, x: Value, dim: int) -> tuple[Value, int]:
    """x with at least one dimension, and the dimension, which must have elements."""
    dim = wrap_dim(dim, len(x._spec.shape), op)
    x = x if x._spec.shape else views.reshape(x, (1,))
    if not x._spec.shape[dim]:
        raise IndexError(
            f"{op}: dimension {dim} of {x._spec!r} has no elements; choose one that has"
        )
    return x, dim


def _result(kind: Any, input: Value, dim: int, keepdim: bool, values: Value, places: Value) -> Any:
    """A pair with its dimension of 1 kept if `keepdim`; of a 0-dim tensor both are 0-dim."""
    if not input._spec.shape:
        return kind(views.reshape(values, ()), views.reshape(places, ()))
    return (
        kind(values, places)
        if keepdim
        else kind(views.squeeze(values, dim), views.squeeze(places, dim))
    )


@composite("kthvalue", out="exact", pure=True)
def kthvalue(input: Value, k: int, dim: int = -1, keepdim: bool = False) -> KthValue:
    """The k-th smallest element along a dimension, and its position; NaN is largest.

    Args:
        k: Which: 1 is the smallest.

    Example:
        >>> torch.kthvalue(torch.tensor([3, 1, 2]), 2)
        rushlight.return_types.kthvalue(
        values=tensor(2),
        indices=tensor(2))
    """
    x, dim = _at_least_1d("kthvalue", input, dim)
    if not 1 <= k <= x._spec.shape[dim]:
        raise RushlightError(
            f"kthvalue: k must lie in 1 to {x._spec.shape[dim]} for {input._spec!r}, got {k}"
        )
    values, places = (
        views.contiguous(views.slice_dim(v, dim, k - 1, 1))
        for v in ordered(x, dim, keep=k, op="kthvalue")
    )
    return _result(KthValue, input, dim, keepdim, values, places)


# ---- medians ----


def _missing(r: Rows, x: Expr) -> Expr:
    return r.sum(s.cast(s.isnan(x), int64))


def _median_rank(r: Rows, x: Expr) -> Expr:
    """The position of the first NaN, where there is one."""
    size, missing = r.extent(int64), _missing(r, x)
    return s.where(missing.eq(0), (size - 1) >> 1, size - missing)


_ranks = {
    "median": rowwise(
        "median", _median_rank, "The median's rank.", kinds=("row",), results=(int64,)
    ),
    "nanmedian": rowwise(
        "nanmedian",
        lambda r, x: s.maximum(r.extent(int64) - _missing(r, x) - 1, 0) >> 1,
        "The rank of the median of what is not NaN.",
        kinds=("row",),
        results=(int64,),
    ),
}
_count_missing = rowwise("missing", _missing, "How many are NaN.", kinds=("row",), results=(int64,))


def _middle(op: str, input: Value, dim: int, keepdim: bool, kind: Any) -> Any:
    """The lower median.

    Of a row with NaN the first NaN, or (nanmedian) the median of the others.
    """
    x, dim = _at_least_1d(op, input, dim)
    size = x._spec.shape[dim]
    if x._spec.dtype.kind != "f":
        half = (size + 1) // 2
        values, places = (
            views.contiguous(views.slice_dim(v, dim, half - 1, 1))
            for v in ordered(x, dim, keep=half, op=op)
        )
        return _result(kind, input, dim, keepdim, values, places)
    values, places = ordered(x, dim, op=op)
    rank = _ranks[op](call.detached(x), dim=dim, keepdim=True)
    values, places = (gather.gather(v, dim, rank) for v in (values, places))
    return _result(kind, input, dim, keepdim, values, places)


def _middle_of_all(op: str, input: Value, kind: Any) -> Value:
    """The median of all elements; equal elements share the gradient."""
    if not input._spec.numel:
        return filled(
            input, input._spec.dtype, (), float("nan") if input._spec.dtype.kind == "f" else 0
        )
    flat = ravel(input)
    value = _middle(op, call.detached(flat), 0, False, kind).values
    if not is_followed(input):
        return value
    equal = e.logical_or(e.eq(flat, value), e.logical_and(e.isnan(flat), e.isnan(value)))
    equal = call.detached(equal)
    count = e.cast(reductions.sum(equal), flat._spec.dtype)
    zero = filled(flat, flat._spec.dtype, (), 0)
    return standing_for(value, e.div(reductions.sum(e.select(equal, flat, zero)), count))


@composite("median", out="cast")
def median(input: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all, or (values, indices) along a dimension; NaN where there is one.

    Example:
        >>> torch.median(torch.tensor([4, 1, 3, 2]))
        tensor(2)
    """
    return (
        _middle_of_all("median", input, Median)
        if dim is None
        else _middle("median", input, dim, keepdim, Median)
    )


@composite("nanmedian", out="cast")
def nanmedian(input: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of elements but NaN, of all or (values, indices) along a dimension."""
    if dim is None:
        return _middle_of_all("nanmedian", input, NanMedian)
    return _middle("nanmedian", input, dim, keepdim, NanMedian)


# ---- quantiles ----


def _check_quantile(op: str, input: Value, q: Any, interpolation: str) -> Value:
    """q as a tensor of the input's dtype."""
    if interpolation not in _WAYS:
        raise RushlightError(
            f"{op}: interpolation is one of {', '.join(_WAYS)}, got {interpolation!r}"
        )
    if not input._spec.numel:
        raise RushlightError(f"{op}: {input._spec!r} has no elements")
    if input._spec.dtype not in (float32, float64):
        raise DTypeError(
            f"{op}: takes float32 and float64, got {input._spec!r}; cast with .float()"
        )
    if not isinstance(q, Value):
        if not 0 <= q <= 1:
            raise RushlightError(f"{op}: q must lie in [0, 1], got {q}")
        return creation.full((), float(q), dtype=input._spec.dtype, device=device_of(input))
    if len(q._spec.shape) > 1:
        raise RushlightError(f"{op}: q must be a number or a vector, got {q._spec!r}")
    if q._spec.dtype is not input._spec.dtype:
        raise DTypeError(
            f"{op}: q {q._spec!r} must have the type of {input._spec!r}; cast with .to(dtype)"
        )
    if q._spec.device.device.limits.host_memory:  # on asynchronous devices the check would wait
        outside = [v for v in read_back.read(ravel(physical_of(q))) if not 0 <= v <= 1]
        if outside:
            raise RushlightError(f"{op}: q must lie in [0, 1], got {outside[0]}")
    return q


def _quantile(
    op: str, input: Value, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Value:
    points = _check_quantile(op, input, q, interpolation)
    rank = len(input._spec.shape)
    if dim is None:
        rows, kept = ravel(input), (1,) * rank if keepdim else ()
    else:
        dim = wrap_dim(dim, rank, op)
        rows = views.transpose(input, dim, -1) if rank else ravel(input)
        shape = input._spec.shape
        kept = (*shape[:dim], *([1] if keepdim else []), *shape[dim + 1 :]) if rank else ()
    out = _at_quantiles(op, rows, ravel(points), interpolation)
    lead = points._spec.shape
    if dim is not None and rank and keepdim:  # the dimension's place was the last one's
        out = views.transpose(views.unsqueeze(out, -1), 1 + dim, -1)
    elif dim is not None and rank > 1 and dim < rank - 1:
        # Transposing moved the last dimension to `dim`; it goes back to the end.
        order = [0, *(1 + i for i in range(rank - 1) if i != dim), 1 + dim]
        out = views.permute(out, order)
    return views.reshape(out, (*lead, *kept))


def _at_quantiles(op: str, rows: Value, points: Value, interpolation: str) -> Value:
    """(points, ...) of rows (..., n)."""
    ranked = ordered(rows, -1, op=op)[0]
    lead, size = ranked._spec.shape[:-1], ranked._spec.shape[-1]
    bad = _count_missing(call.detached(rows), dim=-1, keepdim=True)
    if op == "quantile":
        rank = e.select(e.gt(bad, 0), float(size - 1), e.mul(points, float(size - 1)))
    else:
        last = e.cast(e.maximum(e.sub(size - 1, bad), 0), points._spec.dtype)
        rank = e.mul(points, last)
    rank = _ROUNDING[interpolation](rank) if interpolation in _ROUNDING else rank
    rank = views.expand(rank, (*lead, points._spec.numel))
    place = call.detached(rank)
    below = gather.gather(ranked, -1, e.cast(place, int64))
    if interpolation in ("linear", "midpoint"):
        above = gather.gather(ranked, -1, e.cast(e.ceil(place), int64))
        weight = (
            e.sub(rank, e.floor(place))
            if interpolation == "linear"
            else filled(rank, rank._spec.dtype, (), 0.5)
        )
        below = lerp(below, above, weight)
    count = len(lead)
    return views.permute(below, [count, *range(count)])


@composite("quantile", out="exact", autocast={"cpu": "float32"})
def quantile(
    input: Value,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Value:
    """Values below which the share q of the elements is; NaN where there is one.

    Example:
        >>> torch.quantile(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.25)
        tensor(0.7500)
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@composite("nanquantile", out="exact", autocast={"cpu": "float32"})
def nanquantile(
    input: Value,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Value:
    """Values below which the share q of the elements but NaN is."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


# ---- mode ----


_again = Running(
    "again",
    0,
    lambda state, x, before: s.where(x.eq(before), state + 1, 0),
    "How often an element came before without a break.",
)


@composite("mode", out="exact")
def mode(input: Value, dim: int = -1, keepdim: bool = False) -> Mode:
    """The most frequent element along a dimension (the smallest of several), its last position.

    Example:
        >>> torch.mode(torch.tensor([1, 2, 2, 3])).values
        tensor(2)
    """
    if (
        input._spec.shape
        and not input._spec.numel
        and input._spec.shape[wrap_dim(dim, len(input._spec.shape), "mode")]
    ):
        dim = wrap_dim(dim, len(input._spec.shape), "mode")
        shape = (*input._spec.shape[:dim], *([1] if keepdim else []), *input._spec.shape[dim + 1 :])
        return Mode(filled(input, input._spec.dtype, shape, 0), filled(input, int64, shape, 0))
    x, dim = _at_least_1d("mode", input, dim)
    size = x._spec.shape[dim]
    values, places = ordered(x, dim, op="mode")
    seen = call.detached(values)
    first = filled(x, int64, (*x._spec.shape[:dim], 1, *x._spec.shape[dim + 1 :]), 0)
    before, after = views.slice_dim(seen, dim, 0, size - 1), views.slice_dim(seen, dim, 1, size - 1)
    again = views.cat([first, run_fold(_again, (after, before), dim, False, int64)], dim)
    # The first position with the highest count is the last of its run.
    best = reductions.argmax(again, dim, True)
    values, places = (gather.gather(v, dim, best) for v in (values, places))
    return _result(Mode, input, dim, keepdim, values, places)
