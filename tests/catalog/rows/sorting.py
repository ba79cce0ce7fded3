"""Catalog rows: sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.catalog.row import ALL, EXACT, Array, Make, Row, Sample, always, at, int64, rough


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function along an axis, for 0-dim arrays too."""

    def reference(x: Any, *args: Any, **named: Any) -> Any:
        x = np.asarray(x)
        return (
            function(x, *args, **named)
            if x.ndim
            else np.squeeze(function(x.reshape(1), *args, **named))
        )

    return reference


# ---- references ----


def argsort(x: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """NumPy puts NaN last; a descending stable order reverses the input and the result."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    turned = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(turned, dim)


def sort(x: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    return np.take_along_axis(x, argsort(x, dim, descending), dim)


def topk_places(
    x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Array:
    return np.take(argsort(x, dim, largest), np.arange(k), axis=dim)


def topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Array:
    return np.take_along_axis(x, topk_places(x, k, dim, largest), dim)


# ---- samples ----


def different(make: Make, *shape: int) -> Array:
    return make(*shape) if make.dtype.kind == "b" else make.distinct(*shape)


def along(make: Make) -> Iterator[Sample]:
    smooth = make.dtype.kind == "f"
    yield at(different(make, 3, 4), smooth=smooth)
    yield at(different(make, 3, 5, 4), 1, True, smooth=smooth)
    yield at(different(make, 9, 3), dim=0, smooth=smooth)
    yield rough(make(), -1)
    yield rough(make(0, 3), 0)
    yield rough(make(3, 0), 0)
    yield rough(make.lattice(3, 60), descending=True, stable=True)
    yield rough(make.lattice(200, 2), 0)
    yield rough(np.concatenate([make.special(), make.special()]), descending=True)
    yield rough(np.concatenate([make.special(), make.special()]))


def first(make: Make) -> Iterator[Sample]:
    smooth = make.dtype.kind == "f"
    yield at(different(make, 3, 6), 2, smooth=smooth)
    yield at(different(make, 3, 7, 4), 3, 1, False, smooth=smooth)
    yield at(different(make, 5), 5, largest=False, sorted=False, smooth=smooth)
    yield rough(make(3, 4), 0)
    yield rough(make(), 1)
    yield rough(make.lattice(2, 700), 5)  # few of many
    yield rough(make.lattice(600, 3), 140, 0, False)
    yield rough(np.concatenate([make.special(), make.special()]), 7)


def plain(make: Make) -> Iterator[Sample]:
    smooth = make.dtype.kind == "f"
    yield at(different(make, 5, 4), smooth=smooth)
    yield at(different(make, 7), smooth=smooth)
    yield rough(make(0, 2))


def pair(
    name: str, values: Callable[..., Any], places: Callable[..., Any], samples: Any
) -> list[Row]:
    """Rows of an op that gives values and indices."""
    row = Row(
        name, lifted(values), samples, ALL, EXACT, call=lambda op, *a, **n: op(*a, **n).values
    )
    indices = replace(
        row,
        reference=lifted(places),
        result=always(int64),
        differentiable=False,
        call=lambda op, *a, **n: op(*a, **n).indices,
        variant="indices",
    )
    return [row, indices]


ROWS = [
    *pair("sort", sort, argsort, along),
    Row("argsort", lifted(argsort), along, ALL, EXACT, always(int64), differentiable=False),
    Row("msort", lambda x: np.sort(x, 0), plain, ALL, EXACT),
    *pair("topk", topk, topk_places, first),
]
