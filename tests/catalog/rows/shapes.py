"""Catalog rows: views, joining and splitting, creation, random numbers."""

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
    ROUNDED,
    Make,
    Row,
    Sample,
    at,
    bool_,
    int64,
)


def view(
    name: str,
    reference: Callable[..., Any],
    *calls: tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]],
) -> Row:
    """Samples are (shape, arguments, keywords)."""

    def samples(make: Make) -> Iterator[Sample]:
        for shape, args, named in calls:
            yield at(make(*shape), *args, **named)

    return Row(name, reference, samples, ALL, EXACT)


def case(
    shape: tuple[int, ...], *args: Any, **named: Any
) -> tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]:
    return shape, args, named


def to_shape(x, *shape):
    return np.reshape(x, shape[0] if isinstance(shape[0], tuple) else shape)


def permute(x, *dims):
    return np.transpose(x, dims[0] if isinstance(dims[0], tuple) else dims)


def expand(x, *sizes):
    wanted = sizes[0] if isinstance(sizes[0], tuple) else sizes
    lead = len(wanted) - x.ndim
    return np.broadcast_to(x, [x.shape[i - lead] if n == -1 else n for i, n in enumerate(wanted)])


def narrow(x, dim, start, length):
    start = start + x.shape[dim] if start < 0 else start
    return np.take(x, range(start, start + length), dim)


def squeeze(x, dim=None):
    dims = (
        range(x.ndim)
        if dim is None
        else [d % x.ndim for d in ([dim] if isinstance(dim, int) else dim)]
    )
    return np.reshape(x, [n for i, n in enumerate(x.shape) if i not in dims or n != 1])


def flatten(x, start_dim=0, end_dim=-1):
    if not x.ndim:
        return x.reshape(1)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


def split(x, size, dim=0):
    n = x.shape[dim]
    sizes = [min(size, n - at) for at in range(0, n, size)] if isinstance(size, int) else size
    return tuple(np.split(x, np.cumsum(sizes)[:-1], dim))


def chunk(x, chunks, dim=0):
    return split(x, -(-x.shape[dim] // chunks), dim)


def joined(make: Make) -> Iterator[Sample]:
    yield at([make(2, 3), make(4, 3)])
    yield at([make(2, 3), make(2, 1), make(2, 4)], 1)
    yield at([make(2, 3, 2), make(2, 3, 2)], dim=-1)
    yield at([make(0, 3), make(2, 3)])
    yield at([make(7)])


def stacked(make: Make) -> Iterator[Sample]:
    yield at([make(2, 3), make(2, 3)])
    yield at([make(2, 3), make(2, 3), make(2, 3)], -1)
    yield at([make(), make()])
    yield at([make(0, 2), make(0, 2)], 1)


# ---- creation ----


def creation(name: str, reference: Callable[..., Any], *calls: Sample, dtypes=ALL) -> Row:
    return Row(
        name, reference, lambda make: iter(calls), dtypes, ROUNDED, differentiable=False, makes=True
    )


def sized(size: tuple[Any, ...]) -> tuple[int, ...]:
    return size[0] if size and isinstance(size[0], tuple) else size


def filled(make: Make) -> Iterator[Sample]:
    for size in ((3, 4), (), (0, 2), (1037,)):
        yield at(size, 1)
    if make.dtype is not bool_:
        yield at((2, 2), -3)
        yield at((2,), 100)


def like(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4), (), (0, 2), (1037,)):
        yield at(make(*shape))


SIZES = (at(3, 4), at((2, 5)), at(()), at(0, 3), at(1037))


def random(name: str, dtypes=FLOAT, makes: bool = True) -> Row:
    """Tested for distribution, seeds and equality across devices in test_catalog.py."""
    return Row(
        name, None, lambda make: iter(()), dtypes, differentiable=False, random=True, makes=makes
    )


ROWS = [
    view(
        "reshape",
        to_shape,
        case((3, 4), 2, 6),
        case((3, 4), (-1,)),
        case((2, 3, 4), 4, 3, 2),
        case((), 1, 1),
        case((0, 3), 3, 0),
        case((6,), (2, -1)),
    ),
    # Strided tensors cannot be viewed in another shape; test_error_messages.py checks the error.
    Row(
        "view",
        to_shape,
        lambda make: iter([at(make(3, 4), 2, 6), at(make(6), -1, 2)]),
        ALL,
        EXACT,
        layouts=False,
    ),
    view("permute", permute, case((2, 3, 4), 2, 0, 1), case((2, 3), (1, 0)), case((0, 3), 1, 0)),
    view("transpose", np.swapaxes, case((3, 4), 0, 1), case((2, 3, 4), -1, 0), case((0, 2), 0, 1)),
    view(
        "expand",
        expand,
        case((3, 1), 3, 4),
        case((1, 4), (2, 3, 4)),
        case((), 3),
        case((3, 1), -1, 5),
        case((1,), 0),
    ),
    view(
        "narrow",
        narrow,
        case((5, 4), 0, 1, 3),
        case((3, 7), 1, -4, 2),
        case((3, 4), -1, 0, 4),
        case((3,), 0, 1, 0),
    ),
    view(
        "select",
        lambda x, dim, i: np.take(x, i, dim),
        case((3, 4), 0, 1),
        case((3, 4), 1, -1),
        case((5,), 0, 2),
    ),
    view(
        "unsqueeze", np.expand_dims, case((3, 4), 0), case((3, 4), -1), case((), 0), case((0, 2), 1)
    ),
    view(
        "squeeze",
        squeeze,
        case((1, 3, 1)),
        case((1, 3, 1), 0),
        case((1, 3, 1), (0, 2)),
        case((3, 4), 0),
        case((1,)),
    ),
    view(
        "flatten",
        flatten,
        case((2, 3, 4)),
        case((2, 3, 4), 1),
        case((2, 3, 4), 0, 1),
        case(()),
        case((0, 3)),
    ),
    view("contiguous", np.copy, case((3, 4)), case(()), case((0, 3))),
    view(
        "split", split, case((7, 2), 3), case((3, 6), [1, 2, 3], 1), case((4,), 4), case((3, 0), 1)
    ),
    view("chunk", chunk, case((7, 2), 3), case((2, 6), 4, 1), case((3,), 5)),
    Row("cat", lambda xs, dim=0: np.concatenate(xs, dim), joined, ALL, EXACT),
    Row("stack", lambda xs, dim=0: np.stack(xs, dim), stacked, ALL, EXACT),
    creation("zeros", lambda *size: np.zeros(sized(size)), *SIZES),
    creation("ones", lambda *size: np.ones(sized(size)), *SIZES),
    creation("empty", None, *SIZES),
    Row("full", np.full, filled, ALL, EXACT, differentiable=False, makes=True),
    creation(
        "arange",
        np.arange,
        at(7),
        at(2, 9),
        at(1, 12, 3),
        at(9, 1, -2),
        at(0),
        at(200),
        dtypes=NUMBER,
    ),
    creation("eye", lambda n, m=None: np.eye(n, m), at(3), at(3, 5), at(5, 2), at(0), at(40)),
    Row("zeros_like", np.zeros_like, like, ALL, EXACT, differentiable=False),
    Row("ones_like", np.ones_like, like, ALL, EXACT, differentiable=False),
    random("rand"),
    random("randn"),
    random("randint", (int64,)),
    random("dropout", makes=False),
    random("bernoulli", makes=False),
]
