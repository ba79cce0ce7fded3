"""Catalog rows: elements by rank, values without repetition, places in a sorted line, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rushlight.core.dtypes import float32, float64
from tests.catalog_row import ALL, COMPOSED, EXACT, Array, Make, Row, Sample, at, rough
from tests.catalog_sorting import ROWS as SORTING, argsort, different, pair

# ---- references ----


def along_rows(choose: Callable[..., int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Values and positions of ops that choose one position of each row."""

    def places(x: Array, *args: Any, dim: int = -1, keepdim: bool = False) -> Array:
        found = np.apply_along_axis(choose, dim, x, *args) if x.size else np.zeros(np.sum(x, axis=dim).shape, int)
        return np.expand_dims(found, dim) if keepdim and x.ndim else found

    def values(x: Array, *args: Any, dim: int = -1, keepdim: bool = False) -> Array:
        at_places = np.expand_dims(places(x, *args, dim=dim), dim)
        found = np.take_along_axis(x, at_places, dim)
        return found if keepdim else np.squeeze(found, dim)

    return values, places


def choose_kth(row: Array, k: int) -> int:
    return int(argsort(row)[k - 1])


def choose_median(row: Array) -> int:
    missing = np.flatnonzero(row != row)
    return int(missing[0] if len(missing) else argsort(row)[(len(row) - 1) // 2])


def choose_nanmedian(row: Array) -> int:
    return int(argsort(row)[max((row == row).sum() - 1, 0) // 2])


def choose_mode(row: Array) -> int:
    numbers, counts = np.unique(row, return_counts=True)
    return int(np.flatnonzero(row == numbers[counts.argmax()])[-1])


def of_all(choose: Callable[[Array], int]) -> Callable[..., Any]:
    return lambda x: np.asarray(x).ravel()[choose(np.asarray(x).ravel())]


def quantile_by(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Array, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear") -> Any:
        x = np.asarray(x)
        if not x.ndim:
            dim, keepdim = None, False
        return function(x, np.asarray(q), axis=dim, keepdims=keepdim, method=interpolation)

    return reference


# ---- samples ----


def with_k(make: Make) -> Iterator[Sample]:
    smooth = make.floats
    yield at(different(make, 3, 6), 2, smooth=smooth)
    yield at(different(make, 3, 7, 4), 7, dim=1, keepdim=True, smooth=smooth)
    yield at(different(make, 5, 3), 1, dim=0, smooth=smooth)
    yield rough(make(), 1)
    yield rough(make.lattice(2, 70), 33)
    yield rough(np.concatenate([make.special(), make.special()]), 12)


def middles(make: Make) -> Iterator[Sample]:
    smooth = make.floats
    yield at(different(make, 3, 6), dim=-1, smooth=smooth)
    yield at(different(make, 3, 7, 4), dim=1, keepdim=True, smooth=smooth)
    yield at(different(make, 5, 3), dim=0, smooth=smooth)
    yield rough(make(), dim=0)
    yield rough(make.lattice(2, 71), dim=1)
    if make.floats:
        x = make.distinct(4, 6)
        x[0, 3], x[1] = np.nan, np.nan
        yield rough(x, dim=1)


def wholes(make: Make) -> Iterator[Sample]:
    yield at(different(make, 3, 5), smooth=make.floats)
    yield at(different(make, 4), smooth=make.floats)
    yield rough(make())
    yield rough(make.special())


def frequent(make: Make) -> Iterator[Sample]:
    yield rough(make.lattice(3, 9))
    yield rough(make.lattice(9, 2, 3), dim=0, keepdim=True)
    yield at(different(make, 4), smooth=make.floats)
    yield rough(make(), dim=0)
    yield rough(make.lattice(0, 3), dim=1)


def shares(make: Make) -> Iterator[Sample]:
    points = np.array([0.1, 0.5, 1.0, 0.0])
    for way in ("linear", "lower", "higher", "midpoint", "nearest"):
        # Where q is a tensor its gradient would be checked at jumps: a number has none.
        yield at(make.distinct(3, 6), 0.3, interpolation=way)
        yield rough(make.distinct(3, 4, 5), points.astype(make.dtype.name), dim=1, keepdim=True, interpolation=way)
    yield rough(make.distinct(3, 4, 2), points, dim=0)
    yield rough(make.distinct(3, 4, 2), points[:1], dim=-1)
    yield at(make.distinct(3, 4, 5), 0.7, dim=1)
    yield rough(make.distinct(3, 4), 0.7, keepdim=True)
    yield rough(make(), 0.5)
    yield rough(make(), 0.5, dim=0, keepdim=True)
    x = make.distinct(4, 6)
    x[0, 3], x[1, 1:] = np.nan, np.nan
    yield rough(x, 0.4, dim=1)


FLOATS = (float32, float64)
ROWS = [
    *SORTING,
    *pair("kthvalue", *along_rows(choose_kth), with_k),
    *pair("median", *along_rows(choose_median), middles),
    *pair("nanmedian", *along_rows(choose_nanmedian), middles),
    *pair("mode", *along_rows(choose_mode), frequent),
    Row("median", of_all(choose_median), wholes, ALL, EXACT, variant="all"),
    Row("nanmedian", of_all(choose_nanmedian), wholes, ALL, EXACT, variant="all"),
    Row("quantile", quantile_by(np.quantile), shares, FLOATS, COMPOSED),
    Row("nanquantile", quantile_by(np.nanquantile), shares, FLOATS, COMPOSED),
]
