"""Catalog rows: reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.catalog.row import (
    ALL,
    COMPOSED,
    EXACT,
    FLOAT,
    NUMBER,
    SUMMED,
    DType,
    Make,
    Row,
    Sample,
    always,
    as_float,
    as_int64,
    at,
    bool_,
    int64,
    rough,
)


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's reduction with PyTorch's arguments; () is all dimensions, as None."""

    def reference(x, dim=None, keepdim=False, **named):
        axis = tuple(dim) if isinstance(dim, (tuple, list)) else dim
        return function(
            x, axis=None if axis == () or not x.ndim else axis, keepdims=keepdim, **named
        )

    return reference


def plain_reductions(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(3, 4), dim=-1, keepdim=True)
    yield at(make(2, 3, 4), (0, 2))
    yield at(make(2, 3, 4), dim=(1, 2), keepdim=True)
    yield at(make())
    yield at(make(2, 1037), 1)
    yield at(make(1037, 2), 0)


def sums(make: Make) -> Iterator[Sample]:
    yield from plain_reductions(make)
    yield at(make(0, 3), 0)
    yield at(make(3, 0), 0)
    yield at(make(0))


def truths(make: Make) -> Iterator[Sample]:
    """Not all zero, not all one: the rows must differ."""
    for sample in sums(make):
        x = sample.args[0]
        if x.size > 4:
            x = np.where(make.random.random(x.shape) < 0.1, x, np.zeros_like(x))
        yield rough(x, *sample.args[1:], **sample.named)
        yield rough(np.asarray(x == 0).astype(x.dtype), *sample.args[1:], **sample.named)


def extremes(make: Make) -> Iterator[Sample]:
    yield at(make.distinct(3, 4))
    yield at(make.distinct(3, 4), 0)
    yield at(make.distinct(2, 3, 4), (0, 2), True)
    yield at(make.distinct(3, 4), dim=-1, keepdim=True)
    yield at(make.distinct())
    yield rough(make.lattice(2, 1037), 1)
    yield rough(make.lattice(1037, 2), 0)
    yield rough(make(0, 3), 1)
    if make.floats:
        yield rough(np.array([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1]]), 1)


def positions(make: Make) -> Iterator[Sample]:
    for sample in extremes(make):
        dims = sample.args[1:] or (sample.named.get("dim"),)
        if dims and isinstance(dims[0], tuple):  # one dimension or all
            continue
        yield rough(*sample.args, **sample.named)


def first_position(pick: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x, dim=None, keepdim=False):
        return pick(x, axis=dim if x.ndim else None, keepdims=keepdim)

    return reference


def products(make: Make) -> Iterator[Sample]:
    low, high = (0.5, 1.5) if make.floats else (-2, 2)
    yield at(make(3, 4, low=low, high=high))
    yield at(make(3, 4, low=low, high=high), 0)
    yield at(make(3, 4, low=low, high=high), dim=-1, keepdim=True)
    yield at(make(low=low, high=high))
    yield at(make(0, 3), 0)
    yield at(make(5, 4, low=0.5, high=1.5) * (make.index(5, 4, limit=4) > 0), 1)  # with zeros


def variances(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4))
    yield at(make(3, 4), 0)
    yield at(make(2, 3, 4), (0, 2), keepdim=True)
    yield at(make(3, 4), 1, correction=0)
    yield at(make(2, 70), dim=1, unbiased=False)


def variance(x, dim=None, correction=1, unbiased=None, keepdim=False):
    ddof = correction if unbiased is None else int(unbiased)
    return np.var(x, axis=dim, ddof=ddof, keepdims=keepdim)


def exponent_sums(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0)
    yield at(make(3, 4), 1, True)
    yield at(make(2, 3, 4), (0, 2))
    yield at(make(2, 1037), -1)
    if make.floats:
        yield rough(np.array([[-np.inf, -np.inf], [0, -np.inf], [np.inf, 1]]), 1)


def logsumexp(x, dim, keepdim=False):
    x = np.asarray(x, np.float64)
    axis = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    with np.errstate(all="ignore"):
        return (
            np.logaddexp.reduce(x, axis, keepdims=keepdim)
            if isinstance(axis, int)
            else np.log(np.exp(x).sum(axis))
        )


def told(dtype: DType) -> DType:
    """PyTorch answers about uint8 in uint8."""
    return dtype if dtype.name == "uint8" else bool_


ROWS = [
    Row("sum", reduction(np.sum), sums, ALL, SUMMED, as_int64),
    Row("mean", reduction(np.mean), plain_reductions, FLOAT, SUMMED),
    Row("prod", reduction(np.prod), products, ALL, COMPOSED, as_int64),
    Row("amax", reduction(np.max), extremes, NUMBER, EXACT),
    Row("amin", reduction(np.min), extremes, NUMBER, EXACT),
    Row(
        "argmax",
        first_position(np.argmax),
        positions,
        NUMBER,
        EXACT,
        always(int64),
        differentiable=False,
    ),
    Row(
        "argmin",
        first_position(np.argmin),
        positions,
        NUMBER,
        EXACT,
        always(int64),
        differentiable=False,
    ),
    Row("any", reduction(np.any), truths, ALL, EXACT, told, differentiable=False),
    Row("all", reduction(np.all), truths, ALL, EXACT, told, differentiable=False),
    Row("var", variance, variances, FLOAT, SUMMED),
    Row("logsumexp", logsumexp, exponent_sums, NUMBER, SUMMED, as_float),
]
