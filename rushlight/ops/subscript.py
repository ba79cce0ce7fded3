"""Indexing with brackets, reading and writing."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import INTEGER, bool_
from rushlight.core.errors import DTypeError
from rushlight.core.shapes import numel
from rushlight.ops import elementwise as e, indexing, inplace, views
from rushlight.tape.value import Value

Key = Any


def _expanded(x: Value, key: Key) -> list[Any]:
    """The key as a list with an entry per dimension, Ellipsis filled in."""
    keys = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for k in keys if k is not None and k is not Ellipsis)
    rank = len(x.spec.shape)
    if used > rank:
        raise IndexError(f"index: {used} indices for a tensor of {rank} dimensions ({x.spec!r})")
    fill = [slice(None)] * (rank - used)
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        return keys[:at] + fill + keys[at + 1 :]
    return keys + fill


def _slice(x: Value, dim: int, key: slice) -> Value:
    size = x.spec.shape[dim]
    if key.step is not None and key.step <= 0:
        raise ValueError(f"index: slice steps must be positive, got {key.step}; use flip for reversed order")
    start, stop, step = key.indices(size)
    return views.slice_dim(x, dim, start, max(0, -(-(stop - start) // step)), step)


def basic(x: Value, keys: list[Any]) -> tuple[Value, list[tuple[int, Value]]]:
    """Apply ints, slices and None as views; what is left are tensors and their dimensions."""
    left: list[tuple[int, Value]] = []
    dim = 0
    for key in keys:
        if key is None:
            x = views.unsqueeze(x, dim)
            dim += 1
        elif isinstance(key, slice):
            x = _slice(x, dim, key)
            dim += 1
        elif isinstance(key, int) and not isinstance(key, bool):
            size = x.spec.shape[dim]
            if not -size <= key < size:
                raise IndexError(f"index: {key} is out of range for dimension {dim} of size {size} ({x.spec!r})")
            x = views.select(x, dim, key)
        elif isinstance(key, Value) and key.spec.dtype in INTEGER:
            left.append((dim, key))
            dim += 1
        elif isinstance(key, Value) and key.spec.dtype is bool_:
            raise DTypeError(
                "index: a bool mask as an index gives a result whose size depends on values; "
                "use where, masked_fill or an integer index"
            )
        else:
            raise TypeError(f"index: use ints, slices, None, ... and integer tensors, got {type(key).__name__}")
    return x, left


def get_item(x: Value, key: Key) -> Value:
    """x[key]."""
    seen, left = basic(x, _expanded(x, key))
    if not left:
        # A view even when everything is taken, so that writing to it writes to x and the handle is new.
        return seen if seen is not x else views.view(x, x.spec.shape)
    if len(left) > 1:
        return _several(seen, left)
    dim, index = left[0]
    size = seen.spec.shape[dim]
    flat = views.reshape(indexing.from_end(index, size), (-1,))
    picked = indexing.index_select(seen, dim, flat)
    shape = seen.spec.shape
    return views.reshape(picked, (*shape[:dim], *index.spec.shape, *shape[dim + 1 :]))


def _several(x: Value, left: list[tuple[int, Value]]) -> Value:
    """Index tensors on several dimensions, broadcast against each other: one index into the merged dimensions."""
    dims = [d for d, _ in left]
    rest = [d for d in range(len(x.spec.shape)) if d not in dims]
    sizes = [x.spec.shape[d] for d in dims]
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    flat: Value | None = None
    outside: Value | None = None
    for size, (_, index) in zip(sizes, left, strict=True):
        place = indexing.from_end(index, size)
        wrong = e.bitwise_or(e.lt(place, 0), e.ge(place, size))
        flat = place if flat is None else e.add(e.mul(flat, size), place)
        outside = wrong if outside is None else e.bitwise_or(outside, wrong)
    # An index beyond its own dimension may lie inside the merged one; -1 lies in none.
    flat = e.select(outside, -1, flat)
    moved = views.permute(x, (*dims, *rest))
    merged = views.reshape(moved, (numel(sizes), *(x.spec.shape[d] for d in rest)))
    picked = indexing.rows(merged, flat)
    if not together or dims[0] == 0:
        return picked
    # Adjacent indices keep their place: bring the picked dimensions behind those that stood before them.
    count = len(flat.spec.shape)
    before = dims[0]
    order = (*range(count, count + before), *range(count), *range(count + before, len(picked.spec.shape)))
    return views.permute(picked, order)


def set_item(x: Value, key: Key, value: Any) -> None:
    """x[key] = value."""
    inplace.check_writable(x, "x[...] = value")
    seen, left = basic(x, _expanded(x, key))
    if left:
        raise TypeError(
            "x[...] = value: with an index tensor use scatter_add or where; ints and slices can be assigned"
        )
    inplace.copy_(seen, value)
