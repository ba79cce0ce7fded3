"""Covariance and correlation, differences of neighbours, areas by trapezoids."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import INTEGER, bool_, get_default, real_type
from rushlight.core.errors import BoundsError, DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.linalg.einsum import einsum
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.pointwise import arithmetic as e, complex_numbers
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.registry import composite, register, second_name
from rushlight.ops.view import complex_parts as parts, views
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of


def _checked_weights(name: str, weights: Value | None, count: int, whole: bool) -> None:
    if weights is None:
        return
    if weights._spec.shape != (count,):
        raise ShapeError(
            f"cov: {name} must have one number per observation ({count}), got {weights._spec!r}"
        )
    if (weights._spec.dtype in INTEGER) != whole:
        raise DTypeError(
            f"cov: {name} must be of {'an integer' if whole else 'a floating'} type, got "
            f"{weights._spec!r}"
        )
    # On asynchronous devices a check would wait.
    if count and not weights._spec.device.device.limits.asynchronous:
        least: Any = reductions.amin(physical_of(weights))
        if least.item() < 0:
            raise RushlightError(
                f"cov: {name} must not be negative, but {least.item()} is among them"
            )


@composite("cov", pure=True, autocast="lower")
def cov(
    input: Value,
    *,
    correction: float = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Value:
    """Covariances of variables (rows) over observations (columns).

    Observations may have counts and weights. Example:
        >>> torch.cov(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if len(input._spec.shape) > 2 or input._spec.dtype is bool_:
        raise RushlightError(f"cov: takes numbers in at most 2 dimensions, got {input._spec!r}")
    dtype = input._spec.dtype if input._spec.differentiable else get_default()
    x = e.cast(views.reshape(input, (1, -1)) if len(input._spec.shape) < 2 else input, dtype)
    count = x._spec.shape[1]
    _checked_weights("fweights", fweights, count, True)
    _checked_weights("aweights", aweights, count, False)
    weights = (
        fweights
        if aweights is None
        else aweights
        if fweights is None
        else e.mul(fweights, aweights)
    )
    if weights is None:
        total: Any = float(count)
        away = e.sub(x, e.div(reductions.sum(x, 1, True), total))
        left, rest = away, math.nan if count == 0 else max(total - correction, 0.0)
    else:
        weights = e.cast(weights, real_type(dtype))
        total = reductions.sum(weights)
        away = e.sub(x, e.div(reductions.sum(e.mul(x, weights), 1, True), total))
        left = e.mul(away, weights)
        rest = e.sub(
            total,
            correction if aweights is None else _weighted(aweights, weights, total, correction),
        )
        rest = e.relu(rest)
    out = e.div(matmul(left, complex_numbers.adjoint(away)), rest)
    return views.reshape(out, ()) if x._spec.shape[0] == 1 else out


def _weighted(a: Value, weights: Value, total: Value, correction: float) -> Value:
    """The correction for weighted observations: their mean weight times it."""
    return e.div(e.mul(reductions.sum(e.mul(weights, a)), correction), total)


@composite("corrcoef", pure=True, autocast="lower")
def corrcoef(input: Value) -> Value:
    """Correlations of variables (rows) over observations (columns), kept in [-1, 1]."""
    c = cov(input)
    if not c._spec.shape:
        return e.div(c, c)
    n = c._spec.shape[0]
    spread = e.sqrt(views.reshape(parts.real_part(_diagonal(c)), (n, 1)))
    out = e.div(e.div(c, spread), views.reshape(spread, (1, n)))
    if out._spec.dtype.kind == "c":
        return complex_numbers.complex(
            _within_one(parts.real_part(out)), _within_one(parts.imag_part(out))
        )
    return _within_one(out)


def _within_one(x: Value) -> Value:
    x = e.select(e.gt(x, 1), 1, x)
    return e.select(e.lt(x, -1), -1, x)


def _diagonal(x: Value) -> Value:
    return einsum("ii->i", x)


# ---- differences and areas ----


def _difference(x: Value, dim: int) -> Value:
    size = x._spec.shape[dim]
    after, before = views.slice_dim(x, dim, 1, size - 1), views.slice_dim(x, dim, 0, size - 1)
    return e.logical_xor(after, before) if x._spec.dtype is bool_ else e.sub(after, before)


@composite("diff", out="cast", pure=True)
def diff(
    input: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Differences of neighbours along a dimension, n times.

    Args:
        n: How many times.

    Example:
        >>> torch.diff(torch.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    if not input._spec.shape:
        raise RushlightError("diff: at least one dimension is needed, got a 0-dim tensor")
    if n < 0:
        raise RushlightError(f"diff: the order must not be negative, got {n}")
    dim = wrap_dim(dim, len(input._spec.shape), "diff")
    if n == 0:
        return e.clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    out = views.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        if out._spec.shape[dim] == 0:
            return out
        out = _difference(out, dim)
    return out


def _areas(y: Value, x: Value | None, dx: Any, dim: int, op: str) -> tuple[Value, int]:
    """For each pair of neighbours the mean of y times the step of x."""
    if not y._spec.shape:
        raise BoundsError(f"{op}: at least one dimension is needed, got {y._spec!r}")
    if x is not None and dx is not None:
        raise TypeError(f"{op}: takes positions x or their distance dx, got both")
    dx = 1 if dx is None else dx
    if isinstance(dx, complex):
        raise RushlightError(f"{op}: dx is a real number, got {dx}; give positions as x")
    dim = wrap_dim(dim, len(y._spec.shape), op)
    size = y._spec.shape[dim]
    if size == 0:
        if x is None or x._spec.shape[-1 if len(x._spec.shape) == 1 else dim] == 0:
            return e.mul(views.slice_dim(y, dim, 0, 0), 0.5), dim
        raise ShapeError(f"{op}: {y._spec!r} has no elements along {dim}, x {x._spec!r} has")
    pairs = e.add(views.slice_dim(y, dim, 1, size - 1), views.slice_dim(y, dim, 0, size - 1))
    if x is None:
        return e.mul(pairs, dx / 2), dim
    rank = len(y._spec.shape)
    if len(x._spec.shape) == 1:
        if x._spec.shape[0] != size:
            raise ShapeError(
                f"{op}: one x value is needed for each of {size} y values, got {x._spec!r}"
            )
        steps = views.reshape(_difference(x, 0), (size - 1, *(1,) * (rank - 1 - dim)))
    else:
        back = dim - rank
        steps = _difference(x, len(x._spec.shape) + back)
    return e.div(e.mul(pairs, steps), 2), dim


def _trapezoid(y: Value, x: Value | None = None, *, dx: Any = None, dim: int = -1) -> Value:
    """Area under y by trapezoids along a dimension, at positions x or with spacing dx.

    Example:
        >>> torch.trapezoid(torch.tensor([0.0, 1.0, 4.0]))
        tensor(3.)
    """
    # Sums of halves would lose digits or overflow.
    wide = y._spec.dtype.kind == "f" and y._spec.dtype.itemsize > 2
    if x is None and wide and y._spec.shape and not isinstance(dx, complex):
        dim = wrap_dim(dim, len(y._spec.shape), "trapezoid")
        size = y._spec.shape[dim]
        if size > 2:
            ends = e.add(views.select(y, dim, 0), views.select(y, dim, size - 1))
            total = e.add(
                reductions.sum(views.slice_dim(y, dim, 1, size - 2), dim), e.mul(ends, 0.5)
            )
            return total if dx is None else e.mul(total, dx)
    areas, place = _areas(y, x, dx, dim, "trapezoid")
    return reductions.sum(areas, place - len(y._spec.shape))


trapezoid = register("trapezoid", _trapezoid, _trapezoid.__doc__ or "", method=False, pure=True)
trapz = second_name("trapz", trapezoid, method=False)


@composite("cumulative_trapezoid", method=False)
def cumulative_trapezoid(
    y: Value, x: Value | None = None, *, dx: Any = None, dim: int = -1
) -> Value:
    """Areas under y by trapezoids up to each point, at positions x or with spacing dx."""
    areas, place = _areas(y, x, dx, dim, "cumulative_trapezoid")
    return cumsum(areas, place - len(y._spec.shape))
