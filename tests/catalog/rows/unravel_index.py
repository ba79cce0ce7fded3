"""Rows for positions in shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.catalog.row import EXACT, Make, Row, Sample, at, int64


def _unravelled(make: Make) -> Iterator[Sample]:
    for shape, size in (((5,), (3, 4)), ((2, 3), (2, 3, 2)), ((), (4,)), ((0,), (2, 2))):
        flat = make.index(*shape, limit=int(np.prod(size))).astype(make.dtype.name)
        yield at(flat, size)
    yield at(make.index(3, limit=7), 7)


ROWS = [
    Row(
        "unravel_index",
        lambda indices, shape: tuple(np.asarray(part) for part in np.unravel_index(indices, shape)),
        _unravelled,
        (int64,),
        EXACT,
        differentiable=False,
    ),
]
