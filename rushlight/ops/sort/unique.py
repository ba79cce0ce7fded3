"""Values without repetition.

# Note [Ranks of rows]
Slices along a dimension are ordered lexicographically. Each column's elements get their rank in the
column; two neighbouring columns become one of rank pairs, ranked again, until one column is left.
So a table of n rows and m columns takes log2(m) + 1 sorts, of half as many columns each time.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import numel, wrap_dim
from rushlight.ops.family.no_derivative import without_derivative
from rushlight.ops.index import gather, nonzero
from rushlight.ops.index.scatter import filled, scattered
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.registry import composite
from rushlight.ops.sort.sort import ordered
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import ravel
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


def _changes(x: Value) -> Value:
    """Whether each element of a vector, or row of a table, differs from the one before.

    The first does.
    """
    n = x._spec.shape[0]
    other = e.ne(views.slice_dim(x, 0, 1, n - 1), views.slice_dim(x, 0, 0, n - 1))
    if len(other._spec.shape) > 1:
        other = reductions.any_(other, 1)
    return views.cat([filled(x, other._spec.dtype, (1,), 1), other])


def _answer(values: Value, inverse: Value | None, counts: Value | None) -> Any:
    parts = [values, *(part for part in (inverse, counts) if part is not None)]
    return tuple(parts) if len(parts) > 1 else values


def _lengths(starts: Value, n: int) -> Value:
    """The distance of each start to the next, of the last to n."""
    return e.sub(
        views.cat(
            [views.slice_dim(starts, 0, 1, starts._spec.numel - 1), filled(starts, int64, (1,), n)]
        ),
        starts,
    )


def _runs(new: Value) -> Value:
    """The index of each element's run, from the starts of runs."""
    return e.sub(nonzero.running(new), 1)


def _empty_result(
    x: Value, return_inverse: bool, return_counts: bool, dim: int | None = None
) -> Any:
    none = filled(x, int64, (0,), 0)
    values = filled(x, x._spec.dtype, x._spec.shape if dim is not None else (0,), 0)
    inverse = none if dim is not None else filled(x, int64, x._spec.shape, 0)
    return _answer(values, inverse if return_inverse else None, none if return_counts else None)


def _rank_columns(x: Value) -> Value:
    """For each column of a table (n, m) the elements' ranks; equal ones have equal ranks."""
    n = x._spec.shape[0]
    values, places = ordered(x, 0)
    other = e.ne(views.slice_dim(values, 0, 1, n - 1), views.slice_dim(values, 0, 0, n - 1))
    zeros = filled(x, int64, (1, x._spec.shape[1]), 0)
    steps = views.cat([zeros, e.cast(other, int64)], 0)
    ranks = (
        cumsum(steps, 0)
        if x._spec.shape[1] > 1
        else views.reshape(nonzero.running(ravel(steps)), (n, 1))
    )
    return scattered("set", filled(x, int64, x._spec.shape, 0), 0, places, ranks)


def _rank_rows(x: Value) -> Value:
    """The ranks of a table's rows; see Note [Ranks of rows]."""
    n, m = x._spec.shape
    ranks = _rank_columns(x)
    while m > 1:
        if m % 2:
            ranks = views.cat([ranks, filled(x, int64, (n, 1), 0)], 1)
        m = (m + 1) // 2
        first, second = (views.slice_dim(ranks, 1, k, m, 2) for k in (0, 1))
        ranks = _rank_columns(e.add(e.mul(first, n), second))
    return ravel(ranks)


def _table(op: str, x: Value, dim: int) -> Value:
    """The slices along a dimension as rows."""
    shape = x._spec.shape
    rest = numel((*shape[:dim], *shape[dim + 1 :]))
    if not rest:
        raise ShapeError(
            f"{op}: {x._spec!r} has other dimensions of size 0 than {dim}, so its slices cannot be "
            "told apart"
        )
    return views.reshape(views.transpose(x, 0, dim), (shape[dim], rest))


def _unique_along(x: Value, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    if not x._spec.shape[dim]:
        return _empty_result(x, return_inverse, return_counts, dim)
    # Rows with only columns before `dim` moved are compared in the dimensions' own order.
    order = [dim, *(i for i in range(len(x._spec.shape)) if i != dim)]
    table = _table("unique", views.permute(x, order), 0)
    ranks = _rank_rows(table)
    values, places = ordered(ranks, 0)
    starts = nonzero.chosen(_changes(values))
    found = gather.take_slices(x, dim, gather.gather(places, 0, starts))
    counts = _lengths(starts, x._spec.shape[dim]) if return_counts else None
    return _answer(found, ranks if return_inverse else None, counts)


def _check_dimensions(op: str, x: Value, dim: int) -> None:
    if not x._spec.shape:
        raise IndexError(f"{op}: dimension {dim} is given but {x._spec!r} has no dimensions")


def _with_record(name: str, input: Value, answer: Any) -> Any:
    """The result with its values recorded as functions of the input."""
    if isinstance(answer, tuple):
        return (without_derivative(name, answer[0], input), *answer[1:])
    return without_derivative(name, answer, input)


@composite("unique")
def unique(
    input: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices of a dimension) in order.

    Inverse indices and counts are returned on request.

    Example:
        >>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)
        (tensor([1, 3]), tensor([1, 2]))
    """
    return _with_record(
        "unique", input, _unique(call.detached(input), return_inverse, return_counts, dim)
    )


def _unique(x: Value, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    if dim is not None:
        _check_dimensions("unique", x, dim)
        return _unique_along(
            x, wrap_dim(dim, len(x._spec.shape), "unique"), return_inverse, return_counts
        )
    if not x._spec.numel:
        return _empty_result(x, return_inverse, return_counts)
    values, places = ordered(ravel(x), 0, op="unique")
    new = _changes(values)
    starts = nonzero.chosen(new)
    inverse = None
    if return_inverse:
        zeros = filled(x, int64, (x._spec.numel,), 0)
        inverse = views.reshape(scattered("set", zeros, 0, places, _runs(new)), x._spec.shape)
    counts = _lengths(starts, x._spec.numel) if return_counts else None
    return _answer(gather.gather(values, 0, starts), inverse, counts)


@composite("unique_consecutive")
def unique_consecutive(
    input: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices of a dimension) without those that equal the one before.

    Example:
        >>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1])
    """
    found = _unique_consecutive(call.detached(input), return_inverse, return_counts, dim)
    return _with_record("unique_consecutive", input, found)


def _unique_consecutive(
    x: Value, return_inverse: bool, return_counts: bool, dim: int | None
) -> Any:
    shape = x._spec.shape
    if dim is not None:
        _check_dimensions("unique_consecutive", x, dim)
        dim = wrap_dim(dim, len(shape), "unique_consecutive")
        if not shape[dim]:
            return _empty_result(x, return_inverse, return_counts, dim)
        lines = _table("unique_consecutive", x, dim)
    elif not x._spec.numel:
        return _empty_result(x, return_inverse, return_counts)
    else:
        lines, dim = ravel(x), None
    new = _changes(lines)
    starts = nonzero.chosen(new)
    inverse = (
        views.reshape(_runs(new), shape if dim is None else new._spec.shape)
        if return_inverse
        else None
    )
    counts = _lengths(starts, lines._spec.shape[0]) if return_counts else None
    return _answer(
        gather.gather(lines, 0, starts) if dim is None else gather.take_slices(x, dim, starts),
        inverse,
        counts,
    )
