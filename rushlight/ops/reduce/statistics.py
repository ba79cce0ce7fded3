"""Extremes with their positions, deviations, sums that skip NaN, norms, traces."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

from rushlight.core.dtypes import FLOAT, DType, bool_, float32, int32, int64, real_type
from rushlight.core.errors import DTypeError, KindError, RushlightError, ShapeError
from rushlight.core.shapes import broadcast_shapes, wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise, rowwise
from rushlight.ops.family.returned import returned
from rushlight.ops.index import gather
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.reductions import Dims, wrap_dims
from rushlight.ops.registry import casts, composite, stores
from rushlight.ops.view import reshaping, views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value


@returned("max")
class Max(NamedTuple):
    """The result of max along a dimension."""

    values: Any
    indices: Any


@returned("min")
class Min(NamedTuple):
    """The result of min along a dimension."""

    values: Any
    indices: Any


@returned("aminmax")
class MinMax(NamedTuple):
    """The result of aminmax."""

    min: Any
    max: Any


# ---- extremes ----


def _extreme(op: str, input: Value, dim: Any, keepdim: bool, other: Value | None) -> Any:
    """The three forms of max and min: of all, along a dimension with positions, of two tensors."""
    largest = op == "max"
    if isinstance(dim, Value):
        dim, other = None, dim
    if other is not None:
        return (e.maximum if largest else e.minimum)(input, other)
    if dim is None:
        if not input._spec.numel:
            raise RushlightError(
                f"{op}: {input._spec!r} has no elements, so there is no extreme; name a dimension"
            )
        return (reductions.amax if largest else reductions.amin)(input)
    dim = wrap_dim(dim, len(input._spec.shape), op)
    numbers = e.cast(input, int32) if input._spec.dtype is bool_ else input
    find = reductions.argmax if largest else reductions.argmin
    kind: Any = Max if largest else Min
    if not input._spec.shape:
        return kind(
            e.clone(input), creation.full((), 0, dtype=int64, device=input._spec.device.device.name)
        )
    at = find(numbers, dim, True)
    values = gather.gather(input, dim, at)  # the found position gets the gradient
    return kind(values, at) if keepdim else kind(views.squeeze(values, dim), views.squeeze(at, dim))


@composite("max", out="cast", pure=True)
def max(
    input: Value,
    dim: int | Value | None = None,
    keepdim: bool = False,
    *,
    other: Value | None = None,
) -> Any:
    """Largest of all, (values, indices) along a dimension, or the larger of two tensors.

    Example:
        >>> x = torch.tensor([[1, 5], [7, 3]])
        >>> torch.max(x)
        tensor(7)
        >>> torch.max(x, dim=1)
        rushlight.return_types.max(
        values=tensor([5, 7]),
        indices=tensor([1, 0]))
    """
    return _extreme("max", input, dim, keepdim, other)


@composite("min", out="cast", pure=True)
def min(
    input: Value,
    dim: int | Value | None = None,
    keepdim: bool = False,
    *,
    other: Value | None = None,
) -> Any:
    """Smallest of all, (values, indices) along a dimension, or the smaller of two tensors.

    Example:
        >>> torch.tensor([[3, 1], [2, 4]]).min(dim=1).values
        tensor([1, 2])
    """
    return _extreme("min", input, dim, keepdim, other)


@composite("aminmax", out="exact", pure=True)
def aminmax(input: Value, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest, of all or along a dimension; ties share the gradient.

    Example:
        >>> torch.aminmax(torch.tensor([3, 1, 2]))
        rushlight.return_types.aminmax(
        min=tensor(1),
        max=tensor(3))
    """
    return MinMax(reductions.amin(input, dim, keepdim), reductions.amax(input, dim, keepdim))


# ---- deviations ----


def _slope_of_root(g: Expr, out: Expr, x: Expr) -> Expr:
    zero = const(0, x.dtype)
    return s.where(x.eq(0), zero, g / s.where(x.eq(0), const(1, x.dtype), out + out))


_root = elementwise(
    "root_of_variance",
    lambda x: s.sqrt(x),
    "The square root, whose gradient at 0 is 0.",
    FLOAT,
    _slope_of_root,
    listed=False,
)


@composite("std", out="cast", pure=True)
def std(
    input: Value,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Value:
    """Standard deviation over dimensions; divides by n - correction, 1 by default.

    Example:
        >>> torch.tensor([1.0, 2.0, 3.0]).std()
        tensor(1.)
    """
    return _deviation(input, dim, unbiased, keepdim, correction)


def _deviation(
    input: Value,
    dim: Dims | bool,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> Value:
    variance = reductions.wide_var(input, dim, unbiased, keepdim, correction)
    return e.cast(_root(variance), real_type(input._spec.dtype))


@composite("var_mean", method=False, pure=True)
def var_mean(
    input: Value,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Value, Value]:
    """Variance and mean over dimensions."""
    over = None if isinstance(dim, bool) else dim
    variance = reductions.var(input, dim, unbiased, keepdim, correction=correction)
    return variance, reductions.mean(input, over, keepdim)


@composite("std_mean", method=False, pure=True)
def std_mean(
    input: Value,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Value, Value]:
    """Standard deviation and mean over dimensions."""
    over = None if isinstance(dim, bool) else dim
    deviation = _deviation(input, dim, unbiased, keepdim, correction)
    return deviation, reductions.mean(input, over, keepdim)


# ---- sums of selected elements ----


def _numbers_only(x: Value) -> Value:
    return e.select(e.isnan(x), 0, x) if x._spec.differentiable else x


@composite("nansum", out="cast", pure=True)
def nansum(
    input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """Sum over dimensions in which NaN counts as 0."""
    return reductions.sum(_numbers_only(input), dim, keepdim, dtype=dtype)


@composite("nanmean", out="cast", pure=True)
def nanmean(
    input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """Mean over dimensions of the elements that are not NaN."""
    if not input._spec.differentiable:
        raise DTypeError(
            f"nanmean: takes floating point, got {input._spec!r}; cast with .float() first"
        )
    if dtype is not None and dtype.kind not in "fc":
        raise DTypeError(f"nanmean: dtype is a floating-point or complex type, got {dtype.name}")
    count = reductions.sum(e.logical_not(e.isnan(input)), dim, keepdim)
    total = nansum(input, dim, keepdim, dtype=dtype)
    return e.div(total, e.cast(count, total._spec.dtype))


@composite("count_nonzero", pure=True)
def count_nonzero(input: Value, dim: Dims = None) -> Value:
    """The number of nonzero elements."""
    return reductions.sum(e.ne(input, 0), dim)


@composite("sum_to_size", top=False)
def sum_to_size(input: Value, *size: Any) -> Value:
    """Summed to a shape that broadcasts to this one."""
    shape = creation.shape_of(size)
    if broadcast_shapes([shape, input._spec.shape], "sum_to_size") != input._spec.shape:
        raise RushlightError(f"sum_to_size: {list(shape)} does not broadcast to {input._spec!r}")
    if not shape:  # a sum even of one element, so integers become int64
        return reductions.sum(input)
    lead = len(input._spec.shape) - len(shape)
    dims = [
        i for i, n in enumerate(input._spec.shape) if i < lead or (shape[i - lead] == 1 and n != 1)
    ]
    total = reductions.sum(input, dims, True) if dims else input
    return views.reshape(total, shape)


# ---- norms ----

_length = rowwise(
    "vector_norm",
    lambda r, x: s.sqrt(r.sum(x * x)),
    "Square root of the sum of squares along an axis.",
    kinds=("row",),
    # At 0 the slope is 0 in both directions and, as the quotient is not replaced there, the second
    # derivative NaN, as in PyTorch.
    vjp=lambda r, g, out, x: g * s.where(out.eq(0), const(0, x.dtype), x / out),
)


def _power_sum(x: Value, p: float, dim: Dims, keepdim: bool) -> Value:
    """sum(|x|^p)^(1/p); the gradient at 0 is 0 where the slope of the power there is not finite."""
    size = e.abs(x)
    if p < 0:
        return e.pow(reductions.sum(e.pow(size, p), dim, keepdim), 1 / p)
    zero = e.eq(size, 0)
    total = reductions.sum(e.select(zero, 0, e.pow(e.select(zero, 1, size), p)), dim, keepdim)
    none = e.eq(total, 0)
    return e.select(none, 0, e.pow(e.select(none, 1, total), 1 / p))


@casts({"gpu": "dtype"})
@stores("exact")
def vector_norm(
    x: Value, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """The ord-norm of the elements over dimensions: linalg.vector_norm."""
    if not (dtype is None or isinstance(dtype, DType)):
        raise KindError(
            f"vector_norm: dtype is a type like rushlight.float32, got {type(dtype).__name__}"
        )
    if x._spec.dtype.kind not in "fc" or (dtype is not None and dtype.kind != x._spec.dtype.kind):
        what = "" if dtype is None else f" with dtype {dtype.name}"
        raise DTypeError(
            f"vector_norm: takes floating point or complex, got {x._spec!r}{what}; cast with "
            ".to(dtype)"
        )
    if isinstance(ord, Value) and not ord._spec.shape and ord._spec.dtype.kind != "c":
        ord = float(ord)  # type: ignore[arg-type]
    if not isinstance(ord, numbers.Real):
        raise RushlightError(f"vector_norm: the order is a real number, got {ord!r}")
    x = x if dtype is None else e.cast(x, dtype)
    x = e.abs(x) if x._spec.dtype.kind == "c" else x
    ord = float(ord)
    if ord < 0 and not x._spec.numel:
        return _empty_extreme(x, dim, keepdim, ord)
    if ord == 2:
        return reductions.reduce_dims(_length, x, dim, keepdim)
    kept = x._spec.dtype
    x = e.cast(x, float32) if kept.itemsize == 2 else x  # powers of halves overflow early
    if ord == math.inf:
        out = (
            reductions.amax(e.abs(x), dim, keepdim)
            if x._spec.numel
            else _empty_extreme(x, dim, keepdim)
        )
    elif ord == -math.inf:
        out = reductions.amin(e.abs(x), dim, keepdim)
    elif ord == 0:
        # On the tape, with gradient 0.
        out = reductions.sum(e.select(e.ne(x, 0), 1, e.mul(x, 0)), dim, keepdim)
    elif ord == 1:
        out = reductions.sum(e.abs(x), dim, keepdim)
    else:
        out = _power_sum(x, ord, dim, keepdim)
    return e.cast(out, kept)


def _empty_extreme(x: Value, dim: Dims, keepdim: bool, ord: float = math.inf) -> Value:
    dims = wrap_dims(dim, len(x._spec.shape), "vector_norm")
    if any(x._spec.shape[d] == 0 for d in dims):
        raise RushlightError(
            f"vector_norm: {x._spec!r} has no elements along {list(dims)}, so there is no {ord} "
            "norm"
        )
    return reductions.amax(e.abs(x), dim, keepdim)


@composite("trace", pure=True, autocast={"cpu": "float32"})
def trace(input: Value) -> Value:
    """The sum of a matrix's diagonal."""
    if len(input._spec.shape) != 2:
        raise ShapeError(f"trace: takes a matrix, got {input._spec!r}")
    return reductions.sum(reshaping.diagonal(input))
