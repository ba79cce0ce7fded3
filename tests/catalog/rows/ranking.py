"""Catalog rows: elements by rank, unique values, positions in a sorted line, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rushlight.core.dtypes import float32, float64
from tests.catalog.row import (
    ALL,
    COMPOSED,
    EXACT,
    MIXED,
    NUMBER,
    SUMMED,
    Array,
    Make,
    Row,
    Sample,
    always,
    at,
    int32,
    int64,
    rough,
)
from tests.catalog.rows.sorting import ROWS as SORTING, argsort, different, pair

# ---- references ----


def along_rows(choose: Callable[..., int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Values and positions of ops that choose one position of each row."""

    def places(x: Array, *args: Any, dim: int = -1, keepdim: bool = False) -> Array:
        found = (
            np.apply_along_axis(choose, dim, x, *args)
            if x.size
            else np.zeros(np.sum(x, axis=dim).shape, int)
        )
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
    def reference(
        x: Array, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Any:
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
        yield rough(
            make.distinct(3, 4, 5),
            points.astype(make.dtype.name),
            dim=1,
            keepdim=True,
            interpolation=way,
        )
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

# ---- unique values ----


def part(number: int) -> Callable[..., Any]:
    return lambda op, *a, **n: op(*a, return_inverse=True, return_counts=True, **n)[number]


def unique_part(number: int) -> Callable[..., Any]:
    def reference(x: Array, dim: int | None = None) -> Any:
        x = np.asarray(x)
        found = np.unique(x, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)
        return found[number].reshape(x.shape) if number == 1 and dim is None else found[number]

    return reference


def consecutive_part(number: int) -> Callable[..., Any]:
    def reference(x: Array, dim: int | None = None) -> Any:
        x = np.asarray(x)
        lines = np.moveaxis(x, dim, 0) if dim is not None else x.reshape(-1)
        new = np.array(
            [i == 0 or bool((lines[i] != lines[i - 1]).any()) for i in range(len(lines))], bool
        )
        if number == 0:
            return np.moveaxis(lines[new], 0, dim) if dim is not None else lines[new]
        if number == 1:
            return (new.cumsum() - 1).reshape(x.shape if dim is None else -1)
        return np.diff([*np.flatnonzero(new), len(lines)])

    return reference


def repeated(make: Make) -> Iterator[Sample]:
    yield rough(make.lattice(4, 9))
    yield rough(make.lattice(300))
    yield rough(make.special())
    yield rough(make())
    yield rough(make(0))
    yield rough(make.mask(6, 2) * make(6, 1), dim=0)
    yield rough(make.mask(2, 7, 2) * make.lattice(2, 7, 1), dim=1)
    yield rough(make.mask(1, 9) * make(1, 1), dim=-1)


for name, parts in (("unique", unique_part), ("unique_consecutive", consecutive_part)):
    for number, variant in enumerate(("", "inverse", "counts")):
        ROWS.append(
            Row(
                name,
                parts(number),
                repeated,
                ALL,
                EXACT,
                (lambda dtype: dtype) if number == 0 else always(int64),
                differentiable=False,
                call=part(number),
                variant=variant,
            )
        )


# ---- positions and counts ----


def searched(
    line: Array, x: Any, right: bool = False, side: str | None = None, out_int32: bool = False
) -> Array:
    right = right or side == "right"
    rows = np.broadcast_to(line, (*np.shape(x)[:-1], line.shape[-1])) if np.ndim(x) else line
    out = np.zeros(np.shape(x), np.int64)
    for p in np.ndindex(np.shape(x)):
        row, value = rows[p[:-1]], np.asarray(x)[p]
        out[p] = (~(row > value) if right else ~(row >= value)).sum()
    return out


def line_of(make: Make, *shape: int) -> Array:
    return np.sort(make.lattice(*shape), -1)


def wanted(make: Make) -> Iterator[Sample]:
    for right in (False, True):
        yield rough(line_of(make, 9), make.lattice(3, 4), right=right)
        yield rough(line_of(make, 2, 16), make.lattice(2, 5), right=right)
        yield rough(line_of(make, 1), make.lattice(4), right=right)
        yield rough(line_of(make, 0), make.lattice(4), right=right)
    yield rough(line_of(make, 300), make.lattice(7), side="right")
    yield rough(line_of(make, 7), 1)
    if make.floats:
        yield rough(line_of(make, 7), make.special())


def bucketed(make: Make) -> Iterator[Sample]:
    for sample in wanted(make):
        if sample.args[0].ndim == 1 and "side" not in sample.named:
            yield rough(sample.args[1], sample.args[0], **sample.named)


def binned(make: Make) -> Iterator[Sample]:
    yield rough(make.index(40, limit=9))
    yield rough(make.index(40, limit=5), make(40))
    yield rough(make.index(3, limit=2), make(3), minlength=7)


def bins(index: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    return np.bincount(index, weights, minlength)


def heaps(make: Make) -> Iterator[Sample]:
    yield rough(make(6, 7), bins=5, min=-1, max=2)
    yield rough(make(50), bins=4)
    yield rough(np.full(3, 1.5), bins=3)
    yield rough(make.special(), bins=6, min=-3, max=3)
    yield rough(make(0), bins=2)


def heap(x: Array, bins: int, min: float = 0, max: float = 0) -> Array:
    low, high = (min, max) if min < max else (x.min(), x.max()) if x.size else (-1, 1)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    return np.histogram(x[x == x], bins, (low, high))[0]


def spans(make: Make) -> Iterator[Sample]:
    yield rough(make(6, 7), 5, range=(-1.0, 2.0))
    yield rough(make(50), 4, density=True)
    yield rough(make(50), np.array([-1.5, 0, 0.25, 2]), weight=make(50))
    yield rough(np.full(3, 1.5), 3)


def histogram(
    x: Array, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    return np.histogram(x, bins, range, density, weight)


def points(make: Make) -> Iterator[Sample]:
    yield rough(make(30, 2), [3, 4])
    yield rough(make(5, 6, 3), [2, 3, 1], range=[-1.0, 2.0, 0.0, 2.0, -2.0, 2.0], density=True)
    yield rough(make(30, 2), [np.array([-1.0, 0, 2]), np.array([0.0, 1.5])], weight=make(30))


def histogramdd(
    x: Array, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    ends = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    hist, edges = np.histogramdd(x.reshape(-1, x.shape[-1]), bins, ends, density, weight)
    return (hist, *edges)


def spread(op: Callable[..., Any], *args: Any, **named: Any) -> tuple[Any, ...]:
    out = op(*args, **named)
    return (out.hist, *out.bin_edges)


def orders(make: Make) -> Iterator[Sample]:
    for n in (0, 1, 120):  # as many as every integer type can count
        yield rough(n)


ROWS += [
    Row(
        "searchsorted",
        searched,
        wanted,
        NUMBER,
        EXACT,
        always(int64),
        differentiable=False,
        small=MIXED,
    ),
    Row(
        "bucketize",
        lambda x, line, **named: searched(line, x, **named),
        bucketed,
        NUMBER,
        EXACT,
        always(int64),
        differentiable=False,
        small=MIXED,
    ),
    Row(
        "bincount",
        bins,
        lambda make: iter([*binned(make)][:1]),
        (int64,),
        EXACT,
        differentiable=False,
    ),
    Row(
        "bincount",
        bins,
        lambda make: iter([*binned(make)][1:]),
        FLOATS,
        SUMMED,
        differentiable=False,
        variant="sums",
    ),
    Row("histc", heap, heaps, FLOATS, EXACT, differentiable=False),
    Row("histogram", histogram, spans, FLOATS, SUMMED, differentiable=False),
    Row("histogramdd", histogramdd, points, FLOATS, SUMMED, differentiable=False, call=spread),
    Row(
        "randperm",
        None,
        orders,
        (int32, int64),
        EXACT,
        random=True,
        makes=True,
        differentiable=False,
    ),
]
