"""Catalog rows: views and copies of one tensor, joining and splitting, grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rushlight.core.dtypes import INTEGER
from tests.catalog.row import ALL, EXACT, NUMBER, SUMMED, Array, Make, Row, Sample, as_int64, at
from tests.catalog.rows.shapes import case, view

# ---- references ----


def diagonal(x, offset=0, dim1=0, dim2=1):
    return np.diagonal(x, offset, dim1, dim2)


def diag_embed(x, offset=0, dim1=-2, dim2=-1):
    side = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], side, side), x.dtype)
    rows = np.arange(x.shape[-1]) + max(0, -offset)
    out[..., rows, rows + offset] = x
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def listed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def repeat(x, *times):
    return np.tile(x, listed(times))


def repeat_interleave(x, repeats, dim=None, output_size=None):
    return np.repeat(x, repeats, dim)


def unfold(x, dim, size, step):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return windows[
        tuple(slice(None, None, step) if i == dim % x.ndim else slice(None) for i in range(x.ndim))
    ]


def as_strided(x, size, stride, storage_offset=0):
    flat = np.ascontiguousarray(x).ravel()
    index = np.full(size, storage_offset)
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        index = index + (np.arange(n) * s).reshape([-1] + [1] * (len(size) - i - 1))
    return flat[index]


def scattered(reference: Callable[..., Array]) -> Callable[..., Array]:
    """The reference of an op that replaces the elements of a view: a view of the positions."""

    def function(x: Array, src: Array, *args: Any, **named: Any) -> Array:
        seen = reference(np.arange(x.size).reshape(x.shape), *args, **named)
        out = np.array(x).ravel()
        out[seen] = src
        return out.reshape(x.shape)

    return function


def sliced(x, dim=0, start=None, end=None, step=1):
    return x[
        tuple(slice(start, end, step) if i == dim % x.ndim else slice(None) for i in range(x.ndim))
    ]


def tensor_split(x, parts, dim=0):
    return tuple(np.array_split(x, parts, dim))


def split_sizes(x, sizes, dim=0):
    return tuple(np.split(x, np.cumsum(sizes)[:-1], dim))


def unsafe_split(x, size, dim=0):
    return tuple(np.split(x, range(size, x.shape[dim], size), dim))


def unsafe_chunk(x, chunks, dim=0):
    return unsafe_split(x, -(-x.shape[dim] // chunks), dim)


def block_diag(*blocks):
    blocks = [np.atleast_2d(b) for b in blocks]
    out = np.zeros(np.sum([b.shape for b in blocks], 0), blocks[0].dtype)
    row = column = 0
    for b in blocks:
        out[row : row + b.shape[0], column : column + b.shape[1]] = b
        row, column = row + b.shape[0], column + b.shape[1]
    return out


def combinations(x, r=2, with_replacement=False):
    pick = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(pick(range(len(x)), r))
    return x[np.array(rows, int).reshape(len(rows), r)]


def squeezed(x, dim=None):
    return np.squeeze(x) if dim is None else np.squeeze(x, dim) if x.shape[dim] == 1 else x


def to_3d(x):
    return x if x.ndim > 2 else np.atleast_2d(x)[:, :, None]


# ---- samples ----


def several(
    *shapes: tuple[int, ...], more: dict[str, Any] | None = None
) -> Callable[[Make], Iterator[Sample]]:
    """One sample: several tensors, each an argument."""
    return lambda make: iter([at(*(make(*shape) for shape in shapes), **(more or {})), at(make(4))])


def lists(*groups: tuple[tuple[int, ...], ...]) -> Callable[[Make], Iterator[Sample]]:
    return lambda make: iter([at([make(*shape) for shape in group]) for group in groups])


def pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[Make], Iterator[Sample]]:
    """The second tensor gives a shape only: integers, which need no gradient."""
    return lambda make: iter([at(make(*a), np.zeros(b, int)) for a, b in shapes])


def replacing(*calls: tuple[Any, ...]) -> Callable[[Make], Iterator[Sample]]:
    """Samples are (shape, shape of the source, arguments)."""
    return lambda make: iter(
        [at(make(*shape), make(*given), *args) for shape, given, *args in calls]
    )


def grids(make: Make) -> Iterator[Sample]:
    yield at(make(3), make(4))
    yield at(make(3), make(4), make(2), indexing="ij")
    yield at(make(3), make(4), make(2), indexing="xy")


def crossed(*vectors):
    grid = np.meshgrid(*vectors, indexing="ij")
    return np.stack([g.ravel() for g in grid], 1) if len(vectors) > 1 else vectors[0]


def interleaved(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), 2, 1)
    yield at(make(3, 4), 3)
    yield at(make(3, 4), np.array([2, 0, 3]), 0)
    yield at(make(3, 4), np.array([2, 0, 3, 1]), dim=-1, output_size=6)


def corner(name: str, lower: bool) -> Row:
    def reference(row, col, offset=0):
        kept = (np.tril if lower else np.triu)(np.ones((row, col)), offset)
        return np.stack(np.nonzero(kept))

    calls = (at(3, 4), at(4, 3, 1), at(5, 5, -2), at(0, 3), at(40, 20, 3))
    return Row(
        name, reference, lambda make: iter(calls), INTEGER, EXACT, differentiable=False, makes=True
    )


def viewed(
    name: str, reference: Callable[..., Any], samples: Callable[[Make], Iterator[Sample]]
) -> Row:
    return Row(name, reference, samples, ALL, EXACT)


def rolled(x, shifts, dims=None):
    return np.roll(x, shifts, dims)


MOVES = (case((2, 3, 4), 0, 2), case((2, 3, 4), (0, 1), (-1, 0)), case((3,), 0, 0))
SWAPS = (case((3, 4), 0, 1), case((2, 3, 4), -1, 0))
MATRICES = (case((3, 4)), case((5,)), case(()))
DIAGONALS = (case((3, 4)), case((4, 3), 1), case((2, 3, 4), -1, 0, 2), case((3, 3), 5))
STRIDED = (
    case((3, 4), (2, 3), (4, 1), 1),
    case((12,), (3, 4), (2, 1)),
    case((5, 5), (2, 2), (1, 2)),
)
WINDOWS = (case((7,), 0, 3, 1), case((3, 8), 1, 2, 3), case((4, 3), 0, 4, 1))

ROWS = [
    view("movedim", np.moveaxis, *MOVES),
    view("moveaxis", np.moveaxis, *MOVES),
    view("swapaxes", np.swapaxes, *SWAPS),
    view("swapdims", np.swapaxes, *SWAPS),
    view("t", np.transpose, *MATRICES),
    view("adjoint", lambda x: np.swapaxes(x, -1, -2), case((3, 4)), case((2, 3, 4))),
    view(
        "unbind",
        lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
        case((3, 4)),
        case((3, 4), -1),
        case((2,)),
    ),
    Row(
        "unflatten",
        lambda x, dim, sizes: x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1 :])),
        lambda make: iter([at(make(3, 4), 1, (2, -1)), at(make(6, 2), 0, (3, 2))]),
        ALL,
        EXACT,
        # With two dimensions it is always a view; strided inputs are in test_subscript.py.
        layouts=False,
    ),
    view("ravel", np.ravel, case((3, 4)), case(()), case((0, 2))),
    viewed("reshape_as", lambda x, y: x.reshape(y.shape), pairs(((3, 4), (2, 6)), ((4,), (2, 2)))),
    Row(
        "view_as",
        lambda x, y: x.reshape(y.shape),
        pairs(((3, 4), (2, 6)), ((4,), (2, 2))),
        ALL,
        EXACT,
        layouts=False,
    ),
    viewed(
        "expand_as", lambda x, y: np.broadcast_to(x, y.shape), pairs(((3, 1), (3, 4)), ((), (2,)))
    ),
    view("broadcast_to", np.broadcast_to, case((3, 1), (3, 4)), case((4,), (2, 3, 4))),
    viewed("broadcast_tensors", lambda *xs: tuple(np.broadcast_arrays(*xs)), several((3, 1), (4,))),
    view("atleast_1d", np.atleast_1d, case(()), case((3,)), case((2, 3))),
    view("atleast_2d", np.atleast_2d, case(()), case((3,)), case((2, 3))),
    view("atleast_3d", to_3d, case((2, 3)), case((3,)), case(()), case((2, 3, 2))),
    view("diagonal", diagonal, *DIAGONALS),
    view(
        "diag_embed",
        diag_embed,
        case((3,)),
        case((2, 3), 1),
        case((2, 3), -2),
        case((2, 3), 0, 0, 2),
    ),
    view(
        "diag",
        lambda x, diagonal=0: np.diag(x, diagonal),
        case((3,)),
        case((3, 4), 1),
        case((4,), -2),
    ),
    view("diagflat", lambda x, offset=0: np.diagflat(x, offset), case((3,)), case((2, 2), 1)),
    Row(
        "trace",
        np.trace,
        lambda make: iter([at(make(3, 4)), at(make(5, 5))]),
        NUMBER,
        SUMMED,
        as_int64,
    ),
    view(
        "flip",
        lambda x, *d: np.flip(x, listed(d)),
        case((3, 4), 0),
        case((3, 4), (0, -1)),
        case((0, 2), 0),
    ),
    view("fliplr", np.fliplr, case((3, 4)), case((2, 3, 2))),
    view("flipud", np.flipud, case((3, 4)), case((5,))),
    view(
        "rot90",
        lambda x, k=1, dims=(0, 1): np.rot90(x, k, dims),
        case((3, 4)),
        case((3, 4), 2),
        case((3, 4), -1, (1, 0)),
        case((3, 4), 4),
    ),
    view(
        "roll",
        rolled,
        case((3, 4), 5),
        case((3, 4), (1, -2), (0, 1)),
        case((7,), 2, 0),
        case((3, 4), 3, 0),
    ),
    view(
        "repeat", repeat, case((3, 4), 2, 1), case((4,), 2, 3), case((3, 4), 1, 1), case((2,), (0,))
    ),
    view("tile", repeat, case((3, 4), 2), case((4,), (2, 3)), case((2, 3, 2), 2, 1)),
    Row("repeat_interleave", repeat_interleave, interleaved, ALL, EXACT),
    view("unfold", unfold, *WINDOWS),
    Row(
        "as_strided",
        as_strided,
        lambda make: iter([at(make(*s), *a) for s, a, _ in STRIDED]),
        ALL,
        EXACT,
        layouts=False,
    ),
    viewed("diagonal_scatter", scattered(diagonal), replacing(((3, 4), (3,)), ((4, 3), (2,), 1))),
    viewed(
        "select_scatter",
        scattered(lambda x, dim, i: np.take(x, i, dim)),
        replacing(((3, 4), (4,), 0, 1), ((3, 4), (3,), -1, -2)),
    ),
    viewed(
        "slice_scatter",
        scattered(sliced),
        replacing(((5, 4), (2, 4), 0, 1, 3), ((3, 6), (3, 3), 1, None, None, 2)),
    ),
    viewed(
        "as_strided_scatter",
        scattered(as_strided),
        replacing(((3, 4), (2, 3), (2, 3), (4, 1), 1), ((12,), (3,), (3,), (2,), 0)),
    ),
    view("tensor_split", tensor_split, case((7, 2), 3), case((3, 6), (1, 4), 1), case((3,), 5)),
    view(
        "hsplit",
        lambda x, n: tuple(np.split(x, n, 1 if x.ndim > 1 else 0)),
        case((3, 4), 2),
        case((6,), (2, 3)),
    ),
    view("vsplit", lambda x, n: tuple(np.split(x, n, 0)), case((4, 3), 2), case((6, 1), (2, 3))),
    view(
        "dsplit", lambda x, n: tuple(np.split(x, n, 2)), case((2, 3, 4), 2), case((1, 2, 6), (2, 3))
    ),
    view("split_with_sizes", split_sizes, case((7, 2), (3, 4)), case((3, 6), [1, 2, 3], 1)),
    view("unsafe_split", unsafe_split, case((7, 2), 3), case((3, 6), 4, 1)),
    view("unsafe_chunk", unsafe_chunk, case((7, 2), 3), case((3, 6), 2, 1)),
    viewed("hstack", np.hstack, lists(((3, 2), (3, 1)), ((3,), (4,)), ((), (2,)))),
    viewed("vstack", np.vstack, lists(((3, 2), (1, 2)), ((3,), (3,)))),
    viewed("row_stack", np.vstack, lists(((3, 2), (1, 2)), ((3,), (3,)))),
    viewed(
        "dstack",
        lambda xs: np.concatenate([to_3d(np.asarray(x)) for x in xs], 2),
        lists(((3, 2), (3, 2)), ((3, 2, 1), (3, 2, 4))),
    ),
    viewed("column_stack", np.column_stack, lists(((3, 2), (3, 1)), ((3,), (3,)))),
    viewed("concat", np.concatenate, lists(((3, 2), (1, 2)), ((3,), (4,)))),
    viewed("concatenate", np.concatenate, lists(((3, 2), (1, 2)), ((3,), (4,)))),
    viewed("block_diag", block_diag, several((2, 3), (1, 2), (3,), ())),
    viewed(
        "meshgrid", lambda *xs, indexing="ij": tuple(np.meshgrid(*xs, indexing=indexing)), grids
    ),
    viewed("cartesian_prod", crossed, several((2,), (3,), (4,))),
    view(
        "combinations",
        combinations,
        case((4,)),
        case((4,), 3),
        case((3,), 2, True),
        case((5,), 1),
        case((2,), 3),
    ),
    corner("tril_indices", True),
    corner("triu_indices", False),
    Row(
        "as_strided_copy",
        as_strided,
        lambda make: iter([at(make(*s), *a) for s, a, _ in STRIDED]),
        ALL,
        EXACT,
        layouts=False,
    ),
    view("diagonal_copy", diagonal, *DIAGONALS),
    view("expand_copy", np.broadcast_to, case((3, 1), (3, 4)), case((4,), (2, 4))),
    view(
        "narrow_copy",
        lambda x, d, start, n: np.take(x, range(start, start + n), d),
        case((5, 4), 0, 1, 3),
        case((3, 7), 1, 2, 2),
    ),
    view("permute_copy", np.transpose, case((2, 3, 4), (2, 0, 1)), case((2, 3), (1, 0))),
    view("split_with_sizes_copy", split_sizes, case((7, 2), (3, 4)), case((3, 6), [1, 2, 3], 1)),
    view("squeeze_copy", squeezed, case((1, 3, 1)), case((1, 3, 1), 0), case((3, 4), 0)),
    view("t_copy", np.transpose, *MATRICES),
    view("transpose_copy", np.swapaxes, *SWAPS),
    view(
        "unbind_copy",
        lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
        case((3, 4)),
        case((3, 4), -1),
        case((2,)),
    ),
    view("unfold_copy", unfold, *WINDOWS),
    view("unsqueeze_copy", np.expand_dims, case((3, 4), 0), case((3, 4), -1)),
    Row(
        "view_copy",
        lambda x, s: x.reshape(s),
        lambda make: iter([at(make(3, 4), (2, 6)), at(make(4), (2, -1))]),
        ALL,
        EXACT,
        layouts=False,
    ),
    view("alias_copy", np.copy, case((3, 4)), case(())),
]
