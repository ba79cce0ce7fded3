"""Coordinates as linear indices, and lookups and sums by them: functions of dense tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import bool_, int64
from rushlight.core.errors import ShapeError
from rushlight.ops.create import creation
from rushlight.ops.registry import REGISTRY
from rushlight.ops.view import views

_MOST = 2**63 - 1  # linear indices that int64 can hold


def linear_index(rows: Any, sizes: Sequence[int]) -> Any:
    """The row-major linear index of each element, from a table or a list of coordinates."""
    if math.prod(sizes) > _MOST:
        raise ShapeError(f"sparse: a shape {list(sizes)} has more places than int64 can number")
    line = rows[0]
    for k, size in enumerate(sizes[1:], 1):
        line = line * size + rows[k]
    return line


def coordinates(line: Any, sizes: Sequence[int]) -> Any:
    """The coordinates of elements from their linear indices."""
    if not line.shape[0]:
        return line.new_zeros((len(sizes), 0))
    rows = []
    for size in reversed(sizes[1:]):
        rows.append(line % size)
        line = line // size
    return views.stack([line, *reversed(rows)])


def added_up(values: Any, index: Any, room: int) -> Any:
    """A table of zeros into which values are added, in their order; bools are combined by or."""
    if values.dtype is bool_:
        return added_up(values.to(int64), index, room).to(bool_)
    return values.new_zeros((room, *values.shape[1:])).index_add(0, index, values)


def joined(wanted: Any, keys: Any) -> tuple[Any, Any]:
    """All pairs of equal elements of two vectors, as positions, in the order of the first."""
    order = keys.argsort(stable=True)
    ranked = keys.index_select(0, order)
    first = REGISTRY["searchsorted"].function(ranked, wanted)
    count = REGISTRY["searchsorted"].function(ranked, wanted, right=True) - first
    number = creation.arange(wanted.shape[0], device=wanted.device)
    left = number.repeat_interleave(count)
    before = (first - (count.cumsum(0) - count)).index_select(0, left)
    return left, order.index_select(
        0, before + creation.arange(left.shape[0], device=wanted.device)
    )
