"""Catalog rows: more views and copies, joining and splitting, indices and masks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import rushlight
from rushlight.core.dtypes import bool_, int64
from tests.catalog.row import (
    ALL,
    COMPOSED,
    EXACT,
    FLOAT,
    NUMBER,
    SUMMED,
    Array,
    Make,
    Row,
    Sample,
    always,
    at,
)
from tests.catalog.rows.reshaping import ROWS as RESHAPING

# ---- references ----


def places(index: Array) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, index.shape))


def put_along(x: Array, dim: int, index: Array, src, join) -> Array:
    """x with join(old, src) at the positions that index names, one after another."""
    out = np.array(x)
    for p in places(index):
        q = (*p[: dim % x.ndim], index[p], *p[dim % x.ndim + 1 :])
        out[q] = join(out[q], src[p] if isinstance(src, Array) else src)
    return out


def scatter(x, dim, index, src, reduce=None):
    joins = {None: lambda a, b: b, "add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
    return put_along(x, dim, index, src, joins[reduce])


JOINS = {
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "amax": max,
    "amin": min,
}


def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    count = put_along(np.zeros(x.shape, int), dim, index, 1, lambda a, b: a + b)
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": -99, "amin": 99}[reduce]
    base = x if include_self else np.where(count > 0, np.asarray(start, x.dtype), x)
    out = put_along(base, dim, index, src, JOINS[reduce])
    if reduce != "mean":
        return out
    parts = count + 1 if include_self else np.maximum(count, 1)
    return out / parts if x.dtype.kind == "f" else out // parts


def segment_reduce(x, reduce, lengths=None, offsets=None, axis=0, initial=None, unsafe=False):
    """By plain loops; every row of a batch on its own."""
    if axis:
        rows = zip(x, lengths if offsets is None else offsets, strict=True)
        name = "lengths" if offsets is None else "offsets"
        return np.stack(
            [segment_reduce(part, reduce, **{name: row}, initial=initial) for part, row in rows]
        )
    edges = np.concatenate([[0], np.cumsum(lengths)]) if offsets is None else offsets
    nothing = (
        {"sum": 0, "mean": 0, "prod": 1, "max": -np.inf, "min": np.inf}[reduce]
        if initial is None
        else initial
    )
    folds = {
        "sum": np.add,
        "mean": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }
    out = []
    for first, last in itertools.pairwise(edges):
        made = folds[reduce].reduce(x[first:last], 0, initial=nothing)
        if reduce == "mean":
            empty = np.full(x.shape[1:], np.nan if initial is None else initial)
            made = made / (last - first) if last > first else empty
        out.append(made)
    return np.stack(out)


def segments(make: Make) -> Iterator[Sample]:
    lengths = np.array([2, 0, 1, 4])
    for reduce in ("sum", "mean", "prod"):
        yield at(make(7, 3), reduce, lengths=lengths, initial=1.5)
    for reduce, initial in (("max", -50.0), ("min", 50.0), ("max", 0.03125), ("min", 0.03125)):
        yield Sample(
            (make.distinct(7, 3), reduce),
            {"lengths": lengths, "initial": initial},
            abs(initial) > 1,
        )
    yield at(make(2, 5), "sum", lengths=np.array([[1, 4], [5, 0]]), axis=1)
    yield at(make.distinct(6), "max", offsets=np.array([1, 3, 5]), unsafe=True)
    yield at(make(3, 4, 2), "prod", offsets=np.array([[0, 1, 4], [0, 4, 4], [0, 2, 4]]), axis=-2)
    yield at(make(4), "mean", lengths=np.array([4, 0]), initial=2.0)


def spread(x: Array, dim: int, index: Array) -> Array:
    """A 1-d index over the other dimensions of x."""
    shape = list(x.shape)
    shape[dim] = len(index)
    return np.broadcast_to(index.reshape([-1] + [1] * (x.ndim - dim % x.ndim - 1)), shape)


def index_add(x, dim, index, source, alpha=1):
    add = np.logical_or if x.dtype == bool else lambda a, b: a + alpha * b
    return put_along(x, dim, spread(x, dim, index), source, add)


def index_copy(x, dim, index, source):
    return put_along(x, dim, spread(x, dim, index), source, lambda a, b: b)


def index_fill(x, dim, index, value):
    return put_along(x, dim, spread(x, dim, index), np.asarray(value).item(), lambda a, b: b)


def index_reduce(x, dim, index, source, reduce, include_self=True):
    return scatter_reduce(x, dim, spread(x, dim, index), source, reduce, include_self)


def put(x, index, source, accumulate=False):
    out = np.array(x).ravel()
    for i, v in zip(index.ravel(), source.ravel(), strict=True):
        out[i] = out[i] + v if accumulate else v
    return out.reshape(x.shape)


def index_put(x, *rest, accumulate=False):
    *index, values = rest
    out = np.array(x)
    if accumulate:
        np.add.at(out, tuple(index), values)
    else:
        out[tuple(index)] = values
    return out


def take_along_dim(x, index, dim=None):
    if dim is None:
        return x.ravel()[index.ravel()]
    shape = list(
        np.broadcast_shapes(*((*a.shape[:dim], 1, *a.shape[dim:][1:]) for a in (x, index)))
    )
    wide = [np.broadcast_to(a, [*shape[:dim], a.shape[dim], *shape[dim + 1 :]]) for a in (x, index)]
    return np.take_along_axis(*wide, dim)


def masked_select(x, mask):
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return np.broadcast_to(x, shape)[np.broadcast_to(mask, shape)]


def masked_scatter(x, mask, source):
    out = np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape)))
    wide = np.broadcast_to(mask, out.shape)
    out[wide] = source.ravel()[: wide.sum()]
    return out


def nonzero_static(x, size, fill_value=-1):
    found = np.argwhere(x)[:size]
    return np.concatenate([found, np.full((size - len(found), x.ndim), fill_value)])


# ---- samples ----


def far(make: Make, number: int) -> float:
    """An offset that separates two sets of distinct numbers.

    small, as products are taken of them.
    """
    return 0.0625 if make.floats else number // number


def scattered(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 0, make.index(2, 4, limit=3), make(2, 4))
    yield at(make(3, 4), 1, make.index(2, 6, limit=4), make(3, 7))
    yield at(make(5), -1, make.index(9, limit=5), make(9))
    yield at(make(2, 3, 4), 1, make.index(2, 5, 3, limit=3), make(2, 5, 3))


def unsure(sample: Sample) -> Sample:
    """One that stores several elements at one place: each gets the gradient of the last."""
    return replace(sample, smooth=False)


def scatters(make: Make) -> Iterator[Sample]:
    yield from map(unsure, scattered(make))
    yield at(make(3, 4), 0, np.array([[2, 0, 1, 2], [0, 1, 2, 1]]), make(2, 4))
    yield at(make(3, 4), 1, make.index(3, 2, limit=4), 1)
    if make.dtype is not bool_:
        yield at(make(6), 0, make.index(9, limit=6), make(9), reduce="add")
        yield at(make(6), 0, make.index(4, limit=6), make(4), reduce="multiply")


def reduced(make: Make) -> Iterator[Sample]:
    for reduce in JOINS:
        for include in (True, False):
            x, src = make.distinct(3, 4), make.distinct(4, 6)
            src = src + 0.0625 if make.floats else src
            yield at(x, 0, make.index(4, 4, limit=3), src, reduce, include_self=include)
        yield at(
            make.distinct(7),
            0,
            make.index(3, limit=7),
            make.distinct(9)[:3] + far(make, 50),
            reduce,
        )


def slices(make: Make) -> Iterator[Sample]:
    yield at(make(4, 3), 0, make.index(5, limit=4), make(5, 3))
    yield at(make(2, 5), 1, make.index(3, limit=5), make(2, 3))
    yield at(make(2, 3, 4), -2, np.array([2, 0]), make(2, 2, 4))


def copies(make: Make) -> Iterator[Sample]:
    *several, last = slices(make)
    yield from map(unsure, several)
    yield last


def added(make: Make) -> Iterator[Sample]:
    yield from slices(make)
    if make.dtype is not bool_:
        yield at(make(5), 0, make.index(7, limit=5), make(7), alpha=2)


def fills(make: Make) -> Iterator[Sample]:
    yield at(make(4, 3), 0, make.index(5, limit=4), 1)
    yield at(make(2, 5), -1, np.array([1, -1]), 1)
    yield at(make(2, 5), 1, np.array([0, 3]), make())


def slice_reductions(make: Make) -> Iterator[Sample]:
    for reduce in ("prod", "mean", "amax", "amin"):
        for include in (True, False):
            x, src = make.distinct(4, 3), make.distinct(6, 3) + far(make, 100)
            yield at(x, 0, make.index(6, limit=4), src, reduce, include_self=include)


def taken(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make.index(2, 5, limit=12))
    yield at(make(7), np.array([0, -1, -7, 3]))
    yield at(make(2, 3), np.array(4))


def puts(make: Make) -> Iterator[Sample]:
    yield unsure(at(make(3, 4), make.index(2, 5, limit=12), make(2, 5)))
    yield unsure(at(make(7), np.array([0, -1, 0, 3]), make(4)))
    yield at(make(7), np.array([0, -1, 3]), make(3))
    if make.dtype is not bool_:
        yield at(make(7), np.array([0, -1, 0, 3]), make(4), accumulate=True)


def along(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make.index(3, 2, limit=4), 1)
    yield at(make(3, 4), make.index(1, 4, limit=3), 0)
    yield at(make(3, 4), make.index(5, limit=12))


def masks(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make.mask(3, 4))
    yield at(make(3, 4), make.mask(4))
    yield at(make(3, 1), make.mask(3, 5))
    yield at(make(700), make.mask(700))


def sources(make: Make) -> Iterator[Sample]:
    for sample in masks(make):
        yield at(*sample.args, make(720))


def sparse(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4), (2, 3, 2), (600,), (0, 3)):
        yield at(make(*shape) * make.mask(*shape) if make.dtype is not bool_ else make.mask(*shape))


def fixed(make: Make) -> Iterator[Sample]:
    for sample in sparse(make):
        yield at(*sample.args, size=5)
        yield at(*sample.args, size=30, fill_value=7)


def placed(make: Make) -> Iterator[Sample]:
    yield unsure(at(make(4, 3), make.index(5, limit=4), make(5, 3)))
    yield unsure(at(make(4, 3), make.index(5, limit=4), make.index(2, 1, limit=3), make(2, 5)))
    yield at(make(4, 3), np.array([1, -1]), make(3))
    yield at(make(4, 3), make.mask(4, 3), make())
    if make.dtype is not bool_:
        yield at(make(4, 3), make.index(7, limit=4), make(7, 3), accumulate=True)


def compared(make: Make) -> Iterator[Sample]:
    x = make(3, 4)
    yield at(x, np.array(x))
    yield at(x, make(3, 4))
    yield at(make(0, 2), make(0, 2))


def shaped(make: Make) -> Iterator[Sample]:
    yield from compared(make)
    yield at(make(3), make(4))


def members(make: Make) -> Iterator[Sample]:
    yield at(make.lattice(3, 4), make.lattice(5))
    yield at(make.lattice(7), make.lattice(2, 2), invert=True)
    yield at(make.lattice(2), make.lattice(0))


def is_in(x, y, invert=False):
    return np.isin(x, y, invert=invert)


def answer(op, *args, **named):
    """A Python bool as a tensor, as the catalog compares tensors."""
    return rushlight.tensor(op(*args, **named))


def call_put(op, x, *rest, accumulate=False):
    *index, values = rest
    return op(x, list(index), values, accumulate)


ROWS = [
    *RESHAPING,
    Row("scatter", scatter, scatters, ALL, COMPOSED),
    Row("scatter_reduce", scatter_reduce, reduced, (*FLOAT[-2:], int64), COMPOSED, layouts=False),
    Row("segment_reduce", segment_reduce, segments, FLOAT[-2:], COMPOSED, layouts=False),
    Row("index_add", index_add, added, ALL, SUMMED),
    Row("index_copy", index_copy, copies, ALL, EXACT),
    Row("index_fill", index_fill, fills, ALL, EXACT),
    Row(
        "index_reduce",
        index_reduce,
        slice_reductions,
        (*FLOAT[-2:], int64),
        COMPOSED,
        layouts=False,
    ),
    Row("index_put", index_put, placed, ALL, SUMMED, call=call_put),
    Row("take", lambda x, i: x.ravel()[i], taken, ALL, EXACT),
    Row("put", put, puts, ALL, COMPOSED),
    Row("take_along_dim", take_along_dim, along, ALL, EXACT),
    Row("masked_select", masked_select, masks, ALL, EXACT),
    Row("masked_scatter", masked_scatter, sources, ALL, EXACT),
    Row("nonzero", np.argwhere, sparse, ALL, EXACT, always(int64), differentiable=False),
    Row("argwhere", np.argwhere, sparse, ALL, EXACT, always(int64), differentiable=False),
    Row("nonzero_static", nonzero_static, fixed, ALL, EXACT, always(int64), differentiable=False),
    Row("isin", is_in, members, NUMBER, EXACT, always(bool_), differentiable=False),
    Row(
        "equal",
        np.array_equal,
        shaped,
        ALL,
        EXACT,
        always(bool_),
        differentiable=False,
        call=answer,
    ),
    Row(
        "allclose",
        np.allclose,
        compared,
        FLOAT,
        EXACT,
        always(bool_),
        differentiable=False,
        call=answer,
    ),
]
