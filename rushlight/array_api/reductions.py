"""Sums, means, extremes, searches, sorting and sets."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.array_api.array import Array, check_kind, op, operands, unwrap, wrap
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.tensor import Tensor

Axis = int | tuple[int, ...] | None


def _axes(tensor: Tensor, axis: Axis) -> tuple[int, ...]:
    given = (
        tuple(range(tensor.ndim))
        if axis is None
        else (axis,)
        if isinstance(axis, int)
        else tuple(axis)
    )
    for a in given:
        if not -tensor.ndim <= a < tensor.ndim:
            raise IndexError(f"axis {a} is out of range for {tensor.ndim} dimensions")
    return tuple(a % tensor.ndim for a in given)


def _summed_type(dtype: DType, wanted: DType | None) -> DType:
    if wanted is not None:
        return wanted
    if dtype.kind not in "iu" or dtype.itemsize == 8:
        return dtype
    return dtypes.int64 if dtype.kind == "i" else dtypes.uint64


def sum(
    x: Any, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The sum over axes."""
    tensor = unwrap(x)
    check_kind("sum", tensor.dtype, "numeric")
    tensor = tensor.to(_summed_type(tensor.dtype, dtype))
    axes = _axes(tensor, axis)
    return wrap(op("sum")(tensor, axes, keepdims).to(tensor.dtype) if axes else op("clone")(tensor))


def prod(
    x: Any, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The product over axes."""
    tensor = unwrap(x)
    check_kind("prod", tensor.dtype, "numeric")
    tensor = tensor.to(_summed_type(tensor.dtype, dtype))
    for a in sorted(_axes(tensor, axis), reverse=True):
        tensor = op("prod")(tensor, a, keepdims).to(tensor.dtype)
    return wrap(tensor)


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean over axes."""
    tensor = unwrap(x)
    check_kind("mean", tensor.dtype, "floating")
    axes = _axes(tensor, axis)
    return wrap(op("mean")(tensor, axes, keepdims) if axes else op("clone")(tensor))


def var(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over axes."""
    return _variance("var", x, axis, correction, keepdims)


def std(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation over axes."""
    return _variance("std", x, axis, correction, keepdims)


def _variance(name: str, x: Any, axis: Axis, correction: float, keepdims: bool) -> Array:
    tensor = unwrap(x)
    check_kind(name, tensor.dtype, "real floating")
    axes = _axes(tensor, axis)
    if not axes:
        tensor, axes = op("unsqueeze")(tensor, 0), (0,)
        return wrap(op(name)(tensor, axes, correction=correction, keepdim=False))
    return wrap(op(name)(tensor, axes, correction=correction, keepdim=keepdims))


def _extreme(name: str, inner: str, x: Any, axis: Axis, keepdims: bool) -> Array:
    tensor = unwrap(x)
    check_kind(name, tensor.dtype, "real numeric")
    axes = _axes(tensor, axis)
    if 0 in [tensor.shape[a] for a in axes]:
        raise ValueError(f"{name}: {tensor._spec!r} has no elements along {axes}")
    return wrap(op(inner)(tensor, axes, keepdims) if axes else op("clone")(tensor))


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element over axes."""
    return _extreme("max", "amax", x, axis, keepdims)


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element over axes."""
    return _extreme("min", "amin", x, axis, keepdims)


def _truth(inner: str, x: Any, axis: Axis, keepdims: bool) -> Array:
    tensor = unwrap(x)
    truth = tensor if tensor.dtype is dtypes.bool_ else op("ne")(tensor, 0)
    axes = _axes(truth, axis)
    for a in sorted(axes, reverse=True):
        truth = op(inner)(truth, a, keepdims)
    return wrap(truth)


def all(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether all elements over axes are true."""
    return _truth("all", x, axis, keepdims)


def any(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether any element over axes is true."""
    return _truth("any", x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of nonzero elements over axes."""
    tensor = unwrap(x)
    truth = op("ne")(tensor, 0) if tensor.dtype is not dtypes.bool_ else tensor
    axes = _axes(truth, axis)
    counted = truth.to(dtypes.int64)
    return wrap(op("sum")(counted, axes, keepdims) if axes else counted)


def _running(
    inner: str, x: Any, axis: int | None, dtype: DType | None, include_initial: bool
) -> Array:
    tensor = unwrap(x)
    check_kind(f"cumulative_{'sum' if inner == 'cumsum' else 'prod'}", tensor.dtype, "numeric")
    if axis is None:
        if tensor.ndim != 1:
            raise ValueError(f"an axis is needed for {tensor.ndim} dimensions")
        axis = 0
    (along,) = _axes(tensor, axis)
    tensor = tensor.to(_summed_type(tensor.dtype, dtype))
    result = op(inner)(tensor, along).to(tensor.dtype)
    if include_initial:
        shape = (*tensor.shape[:along], 1, *tensor.shape[along + 1 :])
        start = op("full")(shape, int(inner == "cumprod"), dtype=tensor.dtype, device=tensor.device)
        result = op("cat")([start, result], along)
    return wrap(result)


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """The running sum along an axis."""
    return _running("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """The running product along an axis."""
    return _running("cumprod", x, axis, dtype, include_initial)


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Array:
    """Differences of neighbours along an axis, n times."""
    tensor = unwrap(x)
    check_kind("diff", tensor.dtype, "numeric")
    ends = {
        name: unwrap(v) for name, v in (("prepend", prepend), ("append", append)) if v is not None
    }
    return wrap(op("diff")(tensor, n, axis, **ends))


# ---- searches ----


def _arg_extreme(name: str, x: Any, axis: int | None, keepdims: bool) -> Array:
    tensor = unwrap(x)
    check_kind(name, tensor.dtype, "real numeric")
    if axis is not None:
        return wrap(op(name)(tensor, *_axes(tensor, axis), keepdims))
    found = op(name)(tensor.reshape(-1), 0)
    return wrap(found.reshape((1,) * tensor.ndim) if keepdims else found)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the largest element; the first of equal ones."""
    return _arg_extreme("argmax", x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the smallest element; the first of equal ones."""
    return _arg_extreme("argmin", x, axis, keepdims)


def nonzero(x: Any, /) -> tuple[Array, ...]:
    """The indices of nonzero elements, an array per axis."""
    tensor = unwrap(x)
    if not tensor.ndim:
        raise ValueError("nonzero: an array of at least one dimension is needed")
    return tuple(wrap(t) for t in op("nonzero")(tensor, as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Array:
    """The insertion positions of x2's elements in the sorted x1."""
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', got {side!r}")
    row, sought = operands("searchsorted", "real numeric", x1, x2)
    if row.ndim != 1:
        raise ValueError(f"searchsorted: x1 must have one dimension, got {row._spec!r}")
    order = {} if sorter is None else {"sorter": unwrap(sorter).long()}
    return wrap(op("searchsorted")(row, sought, right=side == "right", **order))


def where(condition: Any, x1: Any, x2: Any, /) -> Array:
    """x1 where the condition holds, else x2."""
    chosen = unwrap(condition)
    check_kind("where", chosen.dtype, "bool")
    return wrap(op("where")(chosen, *operands("where", "all", x1, x2)))


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is in x2, or, inverted, is not."""
    first, second = operands("isin", "all", x1, x2)
    return wrap(op("isin")(first, second, invert=invert))


# ---- sorting and sets ----


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort the elements."""
    tensor = unwrap(x)
    check_kind("argsort", tensor.dtype, "real numeric")
    return wrap(op("sort")(tensor, dim=axis, descending=descending, stable=True)[1])


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in sorted order."""
    tensor = unwrap(x)
    check_kind("sort", tensor.dtype, "real numeric")
    return wrap(op("sort")(tensor, dim=axis, descending=descending, stable=True)[0])


class UniqueAll(NamedTuple):
    """Distinct elements, their first indices, the inverse indices, and the counts."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Distinct elements and their counts."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Distinct elements and the inverse indices."""

    values: Array
    inverse_indices: Array


def _distinct(x: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensor = unwrap(x)
    flat = tensor.reshape(-1)
    if tensor.dtype.kind == "c":  # by real, then by imaginary part
        rows, inverse, counts = op("unique")(
            op("view_as_real")(flat), dim=0, return_inverse=True, return_counts=True
        )
        values = op("complex")(rows[:, 0], rows[:, 1])
    else:
        values, inverse, counts = op("unique")(flat, return_inverse=True, return_counts=True)
    count = values.shape[0]
    order = op("sort")(inverse, stable=True)[1]
    starts = op("sub")(op("cumsum")(counts, 0), counts)
    first = order[starts] if count else starts
    return values, first, inverse.reshape(tensor.shape), counts


def unique_all(x: Any, /) -> UniqueAll:
    """The distinct elements, their first indices, the inverse indices and the counts."""
    return UniqueAll(*map(wrap, _distinct(x)))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The distinct elements and their counts."""
    values, _, _, counts = _distinct(x)
    return UniqueCounts(wrap(values), wrap(counts))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The distinct elements and the inverse indices."""
    values, _, inverse, _ = _distinct(x)
    return UniqueInverse(wrap(values), wrap(inverse))


def unique_values(x: Any, /) -> Array:
    """The distinct elements."""
    return wrap(_distinct(x)[0])
