"""Catalog rows: gathering and scattering by index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.catalog.row import (
    ALL,
    EXACT,
    FLOAT,
    NUMBER,
    SUMMED,
    Make,
    Row,
    Sample,
    at,
    int64,
)


def gathers(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0, make.index(2, 4, limit=3))
    yield at(make(3, 4), 1, make.index(3, 6, limit=4))
    yield at(make(2, 3, 4), -2, make.index(2, 5, 3, limit=3))
    yield at(make(7), 0, make.index(4, limit=7).astype(np.int32))
    yield at(make(3, 4), 1, make.index(3, 0, limit=4))


def gather(x, dim, index):
    cut = tuple(slice(None) if i == dim % x.ndim else slice(n) for i, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index, dim)


def scatters(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0, make.index(5, 4, limit=3), make(5, 4))
    yield at(make(3, 4), 1, make.index(3, 2, limit=4), make(3, 2))
    yield at(make(3, 4), 1, make.index(2, 2, limit=4), make(3, 5))
    yield at(make(2, 3, 4), 1, make.index(2, 5, 4, limit=3), make(2, 5, 4))
    yield at(make(5), 0, make.index(70, limit=5).astype(np.int32), make(70))


def scatter_add(x, dim, index, src):
    out = x.copy()
    places = list(np.indices(index.shape))
    places[dim] = index
    np.add.at(out, tuple(places), src[tuple(map(slice, index.shape))])
    return out


def tables(make: Make) -> Iterator[Sample]:
    yield at(make.index(5, limit=7), make(7, 3))
    yield at(make.index(2, 4, limit=7), make(7, 3))
    yield at(make.index(limit=7), make(7, 3))
    yield at(make.index(0, limit=7), make(7, 3))
    yield at(make.index(70, limit=7).astype(np.int32), make(7, 20))


def choices(make: Make) -> Iterator[Sample]:
    yield at(make(5, 3), 0, make.index(4, limit=5))
    yield at(make(3, 5, 2), 1, make.index(4, limit=5))
    yield at(make(5), -1, make.index(9, limit=5).astype(np.int32))
    yield at(make(5, 3), 0, make.index(0, limit=5))


def hot(make: Make) -> Iterator[Sample]:
    yield at(make.index(5, limit=4), 4)
    yield at(make.index(2, 3, limit=4), num_classes=6)
    yield at(make.index(limit=4), 4)


ROWS = [
    Row("gather", gather, gathers, ALL, EXACT),
    Row("scatter_add", scatter_add, scatters, NUMBER, SUMMED),
    Row("embedding", lambda i, w: w[i], tables, FLOAT, EXACT),
    Row("index_select", lambda x, dim, i: np.take(x, i, dim), choices, ALL, EXACT),
    Row(
        "one_hot",
        lambda i, num_classes: np.eye(num_classes)[i].astype(np.int64),
        hot,
        (int64,),
        EXACT,
        differentiable=False,
    ),
]
