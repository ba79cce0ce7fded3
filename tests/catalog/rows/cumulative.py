"""Catalog rows: running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    COMPOSED,
    EXACT,
    FLOAT,
    SUMMED,
    Array,
    Make,
    Row,
    Sample,
    Tolerance,
    as_int64,
    at,
    int64,
    rough,
)

MULTIPLIED = Tolerance(
    "products of up to 12 factors, each rounded; gradients sum such products", 64, 8
)


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function along an axis, for 0-dim arrays too."""

    def reference(x: Any, dim: int) -> Any:
        x = np.asarray(x)
        return function(x, dim) if x.ndim else np.asarray(function(x.reshape(1), 0)).reshape(())

    return reference


def running(ufunc: np.ufunc) -> Callable[..., Any]:
    def fold(x: Array, dim: int) -> Array:
        return ufunc.accumulate(x.astype(np.int64) if x.dtype.kind in "bi" else x, axis=dim)

    return lifted(fold)


def log_sum(x: Array, dim: int) -> Array:
    return np.logaddexp.accumulate(x, axis=dim)


def extreme_places(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The last position of the running extreme, by a plain loop; NaN counts as the extreme."""

    def places(x: Array, dim: int) -> Array:
        rows = np.moveaxis(x, dim, -1)
        out = np.zeros(rows.shape, np.int64)
        for row in np.ndindex(rows.shape[:-1]):
            best = 0
            for a, value in enumerate(rows[row]):
                held = rows[row][best]
                if value != value or (held == held and (better(value, held) or value == held)):
                    best = a
                out[(*row, a)] = best
        return np.moveaxis(out, -1, dim)

    return lifted(places)


def largest(x: Array, dim: int) -> Array:
    return np.maximum.accumulate(x, axis=dim)


def smallest(x: Array, dim: int) -> Array:
    return np.minimum.accumulate(x, axis=dim)


def along(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0)
    yield at(make(3, 4), dim=-1)
    yield at(make(2, 5, 4), 1)
    yield at(make(), 0)
    yield at(make(0, 3), 0)
    yield at(make(3, 0), 0)


def sums(make: Make) -> Iterator[Sample]:
    yield from along(make)
    yield at(make(2, 300), 1)
    yield at(make(300, 20), 0)
    if make.floats:
        yield rough(make.special(), 0)


def products(make: Make) -> Iterator[Sample]:
    """With no zero, one, and several in a row."""
    yield from along(make)
    x = make(3, 12, low=0.5, high=1.5) if make.floats else make(3, 12)
    x[1, 4] = 0
    x[2, 2:8:3] = 0
    yield at(x, 1)
    yield at(np.ascontiguousarray(x.T), 0)


def logs(make: Make) -> Iterator[Sample]:
    yield from along(make)
    yield at(make(2, 40), 1)
    yield rough(make(6, low=-500, high=500), 0)
    yield rough(np.array([-np.inf, -np.inf, 1.0, 2.0, np.inf, 3.0]), 0)
    yield rough(np.array([1.0, np.nan, 2.0]), 0)


def ordered(make: Make) -> Iterator[Sample]:
    if make.dtype.kind != "b":
        yield at(make.distinct(3, 4), 0)
        yield at(make.distinct(2, 5, 4), dim=1)
        yield at(make.distinct(3, 0), 0)
        yield rough(make.lattice(40, 3), 0)
        yield rough(make.special(), 0)
    yield rough(make(2, 60), 1)
    yield rough(make(), -1)


ROWS = [
    Row("cumsum", running(np.add), sums, ALL, SUMMED, as_int64),
    Row("cumprod", running(np.multiply), products, ALL, MULTIPLIED, as_int64),
    Row("logcumsumexp", lifted(log_sum), logs, FLOAT, COMPOSED),
]
for name, fold, better in (("cummax", largest, np.greater), ("cummin", smallest, np.less)):
    ROWS.append(
        Row(name, lifted(fold), ordered, ALL, EXACT, call=lambda op, *a, **n: op(*a, **n).values)
    )
    ROWS.append(
        Row(
            name,
            extreme_places(better),
            ordered,
            ALL,
            EXACT,
            lambda dtype: int64,
            differentiable=False,
            call=lambda op, *a, **n: op(*a, **n).indices,
            variant="indices",
        )
    )
