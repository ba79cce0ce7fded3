"""Combinations of elements and indices of triangles, made without anything larger."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import ShapeError
from rushlight.ops.create import creation
from rushlight.ops.index import gather, nonzero
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import device_of
from rushlight.tape.record.value import Value


@composite("combinations")
def combinations(input: Value, r: int = 2, with_replacement: bool = False) -> Value:
    """All combinations of r elements of a vector, as rows in the order of their positions.

    Example:
        >>> torch.combinations(torch.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    if len(input._spec.shape) != 1 or r < 0:
        raise ShapeError(
            f"combinations: takes a vector and r >= 0, got {input._spec!r} and r = {r}"
        )
    device = device_of(input)
    n = input._spec.numel
    count = (math.comb(n + r - 1, r) if n else 0) if with_replacement else math.comb(n, r)
    if r == 0 or count == 0:
        return views.reshape(views.slice_dim(input, 0, 0, 0), (0,) if r == 0 else (0, r))
    if r > _MOST_CHOSEN:
        raise ShapeError(f"combinations: r must be at most {_MOST_CHOSEN}, got {r}")
    creation.check_room("combinations", input._spec.device, input._spec.dtype, (count, r))
    # Prefixes that can be completed are no more than the results: each is extended in every way, in
    # turn.
    step = 0 if with_replacement else 1
    last = creation.arange(n if with_replacement else n - r + 1, device=device)
    columns = [last]
    for k in range(1, r):
        most = n - 1 if with_replacement else n - r + k
        choices = e.sub(most + 1 - step, last)
        total = math.comb(n + k, k + 1) if with_replacement else math.comb(most + 1, k + 1)
        which, place = nonzero.runs(choices, total)
        columns = [gather.rows(column, which) for column in columns]
        last = e.add(e.add(columns[-1], step), place)
        columns.append(last)
    return gather.rows(input, views.stack(columns, 1))


_MOST_CHOSEN = 1 << 10  # elements of one combination: each is a separate step


def _triangle_places(
    op: str, row: int, col: int, offset: int, lower: bool, dtype: DType, device: Any
) -> Value:
    """Rows that have elements, and the range of columns of each.

    Nothing larger than the result is made.
    """
    if row < 0 or col < 0:
        raise ShapeError(f"{op}: sizes must not be negative, got {row} and {col}")
    # Larger values change nothing and could overflow int64.
    offset = max(-row, min(col, offset))
    begin, end = (max(0, -offset), row) if lower else (0, min(row, col - offset))
    if begin >= end or not col:
        return creation.empty(2, 0, dtype=dtype, device=device)
    # Row i has min(col, i + offset + 1) elements in the lower triangle, col - max(0, i + offset) in
    # the upper one.
    if lower:
        full = min(end, max(begin, col - offset))  # all columns belong from this row on
        count = (begin + full - 1 + 2 * (offset + 1)) * (full - begin) // 2 + (end - full) * col
    else:
        full = min(end, max(begin, -offset + 1))  # all columns belong before this row
        count = (full - begin) * col + (2 * (col - offset) - full - end + 1) * (end - full) // 2
    creation.check_room(op, creation.resolve_pool(device), dtype, (2, count))
    rows = creation.arange(begin, end, device=device)
    edge = e.add(rows, offset)
    edge = e.maximum(e.minimum(edge, col - 1), 0) if lower else e.maximum(edge, 0)
    which, place = nonzero.runs(e.add(edge, 1) if lower else e.sub(col, edge), count)
    columns = place if lower else e.add(gather.rows(edge, which), place)
    return e.cast(views.stack([e.add(which, begin), columns], 0), dtype)


@composite("tril_indices", method=False)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    layout: Any = None,
) -> Value:
    """Rows and columns of the lower triangle, row by row."""
    creation.take("tril_indices", {"layout": layout})
    return _triangle_places("tril_indices", row, col, offset, True, dtype or int64, device)


@composite("triu_indices", method=False)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    layout: Any = None,
) -> Value:
    """Rows and columns of the upper triangle, row by row."""
    creation.take("triu_indices", {"layout": layout})
    return _triangle_places("triu_indices", row, col, offset, False, dtype or int64, device)
