"""Catalog rows: extremes, deviations, norms, covariance, differences and areas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    EXACT,
    FLOAT,
    NUMBER,
    SIGNED,
    SUMMED,
    Make,
    Row,
    Sample,
    Tolerance,
    alias,
    always,
    as_float,
    as_int64,
    at,
    bool_,
    int64,
    rough,
)

ROOTED = Tolerance(
    "a sum, then a root or a quotient of sums; in halves the mean and each square round", 64, 12
)


def values_of(op: Any, *args: Any, **named: Any) -> Any:
    """The positions that come with extremes along a dimension are in test_statistics.py."""
    out = op(*args, **named)
    return out.values if isinstance(out, tuple) else out


def extreme(all_of: Callable[..., Any], of_two: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x, dim=None, keepdim=False, other=None):
        if other is not None or isinstance(dim, np.ndarray):
            return of_two(x, dim if other is None else other)
        return all_of(x, axis=dim if x.ndim else None, keepdims=keepdim and x.ndim > 0)

    return reference


def extremes(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(3, 4))
    yield at(make.distinct(3, 4), 0)
    yield at(make.distinct(2, 3, 4), dim=-1, keepdim=True)
    yield at(make.lattice(3, 4), make.lattice(4, shift=0.5))
    yield at(make.lattice(5), other=make.lattice(5, shift=0.5))
    yield at(make.distinct(), 0)
    yield rough(make(2, 1037), 1)
    if make.floats:
        yield rough(np.array([[1.0, np.nan, 2.0], [3.0, -np.inf, np.inf]]), 1)


def both(x, dim=None, keepdim=False):
    axis = dim if x.ndim else None
    return x.min(axis=axis, keepdims=keepdim), x.max(axis=axis, keepdims=keepdim)


def ranges(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(3, 4))
    yield at(make.distinct(3, 4), dim=0)
    yield at(make.distinct(2, 3, 4), dim=-1, keepdim=True)
    yield at(make.distinct())


def axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (tuple, list)) else dim


def variance(x, dim=None, unbiased=None, keepdim=False, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    return np.var(x, axis=axes(dim), ddof=correction, keepdims=keepdim)


def deviation(*args, **named):
    return np.sqrt(variance(*args, **named))


def with_mean(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x, dim=None, unbiased=None, keepdim=False, correction=1):
        over = None if isinstance(dim, bool) else axes(dim)
        return function(x, dim, unbiased, keepdim, correction), np.mean(
            x, axis=over, keepdims=keepdim
        )

    return reference


def deviations(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(3, 4), False)
    yield at(make(3, 4), 1, True, True)
    yield at(make(2, 3, 4), (0, 2), correction=0)
    yield at(make(2, 3, 4), dim=-1, keepdim=True, correction=2)
    yield at(make(2, 1037), 1)


def holes(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(2, 3, 4), (0, 2), True)
    if make.floats:
        yield rough(np.array([[1.0, np.nan, 2.0], [np.nan, 3.0, 4.0]]), 1)


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim=None, keepdim=False: function(x, axis=axes(dim), keepdims=keepdim)


def counts(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(2, 3, 4), 1)
    yield at(make(2, 3, 4), (0, 2))
    yield at(make(0))
    yield at(make(1037))


def norm(x, p="fro", dim=None, keepdim=False):
    p = 2 if p in (None, "fro") else p
    axis, size = axes(dim), np.abs(x)
    if abs(p) == math.inf:
        return (np.max if p > 0 else np.min)(size, axis=axis, keepdims=keepdim)
    if p == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdim).astype(np.float64)
    return np.sum(size**p, axis=axis, keepdims=keepdim) ** (1 / p)


def norms(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=np.abs))
    yield at(make(3, 4, kink=np.abs), 2, 0)
    yield at(make(3, 4, kink=np.abs), 1, dim=-1, keepdim=True)
    yield at(make(2, 3, 4, kink=np.abs), 3, (0, 2))
    yield at(make(3, 4, kink=np.abs), 1.5, 1)
    yield at(make(3, 4, kink=np.abs), -1, 1)
    yield at(make.distinct(3, 4) + 2, math.inf, 1)
    yield at(make.distinct(3, 4) + 2, -math.inf, 0)
    yield at(make(3, 4, kink=np.abs), 0, 1)
    yield at(make(1037, kink=np.abs))


def cov(x, correction=1, fweights=None, aweights=None):
    return np.cov(np.asarray(x, np.float64), ddof=correction, fweights=fweights, aweights=aweights)


def tables(make: Make) -> Iterator[Sample]:
    yield at(make(3, 7))
    yield at(make(9))
    yield at(make(3, 7), correction=0)
    yield at(make(3, 7), fweights=make.index(7, limit=4) + 1)


def variables(make: Make) -> Iterator[Sample]:
    yield at(make(3, 7))
    yield at(make(2, 33))


def diff(x, n=1, dim=-1, prepend=None, append=None):
    ends = {k: v for k, v in (("prepend", prepend), ("append", append)) if v is not None}
    return np.diff(x, n, dim, **ends)


def neighbours(make: Make) -> Iterator[Sample]:
    yield at(make(7))
    yield at(make(3, 4), 1, 0)
    yield at(make(3, 6), n=2)
    yield at(make(3, 4), prepend=make(3, 2), append=make(3, 1))
    yield at(make(2, 3), 5)
    yield at(make(3, 4), 0)


def trapezoid(y, x=None, dx=1, dim=-1):
    return np.trapezoid(np.asarray(y, np.float64), x, dx, dim)


def heights(make: Make) -> Iterator[Sample]:
    yield at(make(7))
    yield at(make(3, 4), dim=0)
    yield at(make(3, 4), dx=0.5)
    yield at(make(3, 4), make(4))
    yield at(make(3, 4), make(3), dim=0)
    yield at(make(3, 4), make(3, 4))
    yield at(make(2, 1))


def pairs_of_rows(make: Make) -> Iterator[Sample]:
    for p in (2.0, 1.0, 3.0):
        yield at(make.distinct(3, 4), make.distinct(2, 4) + 1.03125, p)
    yield rough(make(3, 4), make(2, 4), math.inf)
    yield at(make(2, 3, 4), make(1, 5, 4))
    yield at(make(0, 4), make(3, 4))
    yield at(make(33, 7), make(20, 7))


def cdist(x, y, p=2.0):
    return norm(x[..., :, None, :] - y[..., None, :, :], p, -1)


def differences(make: Make) -> Iterator[Sample]:
    yield at(make.lattice(3, 4), make.lattice(3, 4, shift=0.5))
    yield at(make.lattice(3, 4), make.lattice(4, shift=0.5), 1)
    yield at(make.lattice(5), make.lattice(5, shift=0.5), p=3)
    yield at(make(1037), make(1037))


def renorm(x, p, dim, maxnorm):
    others = tuple(i for i in range(x.ndim) if i != dim % x.ndim)
    length = norm(x, p, others, True)
    return x * np.where(length > maxnorm, maxnorm / (length + 1e-7), 1)


def slices(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=np.abs), 2, 0, 1.0)
    yield at(make(2, 3, 4, kink=np.abs), 1, 1, 3.0)
    yield at(make(2, 3, 4, kink=np.abs), 3, -1, 100.0)


def running_area(y, x=None, dx=1, dim=-1):
    y = np.moveaxis(np.asarray(y, np.float64), dim, -1)
    steps = dx if x is None else np.diff(x if x.ndim == 1 else np.moveaxis(x, dim, -1))
    return np.moveaxis(np.cumsum((y[..., 1:] + y[..., :-1]) / 2 * steps, -1), -1, dim)


def slopes(make: Make) -> Iterator[Sample]:
    places = np.cumsum(np.arange(1, 6) / 4)
    yield at(make(5))
    yield at(make(3, 5), dim=1)
    yield at(make(3, 4), spacing=0.5)
    yield at(make(3, 4), spacing=(0.5, 2.0), edge_order=2)
    yield at(make(5), spacing=[places])
    yield at(make(3, 5), spacing=[places], dim=(1,), edge_order=2)
    yield at(make(2, 2), dim=0)


def gradient(x, spacing=1, dim=None, edge_order=1):
    spaces = spacing if isinstance(spacing, (list, tuple)) else [spacing]
    out = np.gradient(x, *spaces, axis=dim, edge_order=edge_order)
    return tuple(out) if isinstance(out, (list, tuple)) else (out,)


def smaller(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 3, 1)
    yield at(make(3, 4), (1, 4))
    yield at(make(2, 3, 4), 3, 1)
    yield at(make(5), ())
    if make.floats:  # a sum that is none keeps the type of integers
        yield at(make(2, 3), 2, 3)


def sum_to_size(x, *size):
    shape = size[0] if size and isinstance(size[0], tuple) else size
    lead = x.ndim - len(shape)
    dims = tuple(i for i, n in enumerate(x.shape) if i < lead or (shape[i - lead] == 1 and n != 1))
    return x.sum(dims, keepdims=True).reshape(shape)


AREAS = Row("trapezoid", trapezoid, heights, NUMBER, ROOTED, as_float, small=SIGNED)

ROWS = [
    Row("max", extreme(np.max, np.maximum), extremes, NUMBER, EXACT, call=values_of),
    Row("min", extreme(np.min, np.minimum), extremes, NUMBER, EXACT, call=values_of),
    Row("aminmax", both, ranges, NUMBER, EXACT),
    Row("std", deviation, deviations, FLOAT, ROOTED),
    Row("var_mean", with_mean(variance), deviations, FLOAT, ROOTED),
    Row("std_mean", with_mean(deviation), deviations, FLOAT, ROOTED),
    Row("nansum", reduction(np.nansum), holes, ALL, SUMMED, as_int64),
    Row("nanmean", reduction(np.nanmean), holes, FLOAT, SUMMED),
    Row(
        "count_nonzero",
        lambda x, dim=None: np.count_nonzero(x, axis=axes(dim)),
        counts,
        ALL,
        EXACT,
        always(int64),
        differentiable=False,
    ),
    Row("norm", norm, norms, FLOAT, ROOTED),
    Row("cov", cov, tables, NUMBER, ROOTED, as_float),
    Row(
        "corrcoef",
        lambda x: np.corrcoef(np.asarray(x, np.float64)),
        variables,
        NUMBER,
        ROOTED,
        as_float,
    ),
    Row("diff", diff, neighbours, (bool_, *NUMBER), ROOTED),
    Row("dist", lambda x, y, p=2: norm(x - y, p), differences, FLOAT, ROOTED),
    Row("cdist", cdist, pairs_of_rows, FLOAT, ROOTED),
    Row("renorm", renorm, slices, FLOAT, ROOTED),
    AREAS,
    alias(AREAS, "trapz"),
    Row("gradient", gradient, slopes, FLOAT, ROOTED),
    Row("sum_to_size", sum_to_size, smaller, NUMBER, SUMMED, as_int64),
    Row("cumulative_trapezoid", running_area, heights, NUMBER, ROOTED, as_float, small=SIGNED),
]
