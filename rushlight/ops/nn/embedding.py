"""Rows of a table by index: embedding; and bags of rows reduced to one: embedding_bag."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import FLOAT, int64
from rushlight.core.errors import DTypeError, RowError, RushlightError, ShapeError
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import elementwise
from rushlight.ops.index.gather import check_index, gather, rows, rows_grad, scatter_add
from rushlight.ops.index.scatter import filled
from rushlight.ops.index.select import hits, scatter_reduce
from rushlight.ops.linalg.distances import renorm
from rushlight.ops.nn.sparse_embedding import sparse_rows
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.cumulative import cumsum
from rushlight.ops.registry import composite
from rushlight.ops.view import inplace, views
from rushlight.tape.record import call
from rushlight.tape.record.op import check_devices
from rushlight.tape.record.state import no_grad
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_slowed = elementwise(
    "scale_gradient",
    lambda x, f: x,
    "x, whose gradient is multiplied by f.",
    FLOAT,
    vjp=lambda g, out, x, f: (g * f, None),
    listed=False,
)


def _check_table(op: str, index: Value, weight: Value, padding_idx: int | None) -> int | None:
    """The index of the padding row, counted from the front."""
    check_index(op, index)
    if len(weight._spec.shape) != 2:
        raise ShapeError(f"{op}: weight must have 2 dimensions, got {weight._spec!r}")
    check_devices(op, (index._spec, weight._spec))
    count = weight._spec.shape[0]
    if padding_idx is None:
        return None
    if not -count <= padding_idx < count:
        raise RowError(
            f"{op}: padding_idx {padding_idx} is outside the {count} rows of weight "
            f"{weight._spec!r}"
        )
    return padding_idx % count


def is_batched(*values: Value) -> bool:
    """Whether one of them is mapped by `vmap`: gradients are dense there."""
    return any(v._spec.hidden for v in values)


def _shorten(weight: Value, index: Value, max_norm: float, norm_type: float) -> None:
    """Scale the indexed rows, in place, to a norm of at most max_norm."""
    if not index._spec.numel:
        return
    with no_grad():
        named = e.gt(hits(views.reshape(index, (index._spec.numel,)), 0, weight._spec.shape[:1]), 0)
        short = renorm(call.detached(weight), norm_type, 0, max_norm)
        inplace.copy_(weight, e.select(views.unsqueeze(named, 1), short, weight))


def _embedded(
    op: str, weight: Value, index: Value, padding: int | None, by_frequency: bool, sparse: bool
) -> Value:
    """The rows at an index.

    Its gradient omits the padding and is divided by row counts, if requested.
    """
    if sparse and by_frequency:
        raise RushlightError(
            f"{op}: scale_grad_by_freq goes with dense gradients; pass sparse=False"
        )
    if sparse and not is_batched(weight, index):
        return sparse_rows(weight, index, padding)
    out = rows(weight, index)
    if by_frequency and index._spec.numel:
        flat = views.reshape(index, (index._spec.numel,))
        times = gather(hits(flat, 0, weight._spec.shape[:1]), 0, flat)
        share = e.reciprocal(e.cast(times, weight._spec.dtype))
        out = _slowed(out, views.reshape(share, (*index._spec.shape, 1)))
    if padding is None:
        return out
    return e.select(views.unsqueeze(e.eq(index, padding), -1), call.detached(out), out)


@composite("embedding", method=False, top=False, pure=True)
def embedding(
    input: Value,
    weight: Value,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Rows of `weight` at the indices `input`; the row `padding_idx` gets no gradient.

    Example:
        >>> F.embedding(torch.tensor([2, 0]), torch.tensor([[0.0], [1.0], [2.0]]))
        tensor([[2.],
                [0.]])
    """
    padding = _check_table("embedding", input, weight, padding_idx)
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _embedded("embedding", weight, input, padding, scale_grad_by_freq, sparse)


# ---- bags ----


def _numbered(op: str, count: int, offsets: Value, include_last: bool) -> tuple[Value, int]:
    """The bag of each of `count` elements, and the number of bags."""
    check_index(op, offsets)
    if len(offsets._spec.shape) != 1:
        raise ShapeError(f"{op}: offsets must have one dimension, got {offsets._spec!r}")
    bags = offsets._spec.shape[0] - include_last
    if include_last and bags < 0:
        raise ShapeError(
            f"{op}: with include_last_offset there must be an offset, got {offsets._spec!r}"
        )
    starts = views.slice_dim(offsets, 0, 0, bags)
    if not starts._spec.device.device.limits.asynchronous and offsets._spec.numel:
        first, last = (
            read_back.read(physical_of(views.select(offsets, 0, place)))
            for place in (0, offsets._spec.numel - 1)
        )
        if any(first) or max(last) > count:
            raise RushlightError(
                f"{op}: offsets must begin with 0 and not go beyond the {count} indices, got "
                f"{first[0]} to {max(last)}"
            )
    begun = hits(starts, 0, (count + 1,)) if bags else filled(offsets, int64, (count + 1,), 0)
    return e.sub(views.slice_dim(cumsum(begun, 0, dtype=int64), 0, 0, count), 1), bags


def _largest(parts: Value, kept: Value | None, bag: Value, bags: int) -> Value:
    """The largest of each bag, the first of equals; 0 for an empty one."""
    count, width = parts._spec.shape
    seen = call.detached(parts)
    if kept is not None:
        seen = e.select(views.unsqueeze(kept, 1), seen, -math.inf)
    where = views.expand(views.unsqueeze(bag, 1), (count, width))
    lowest = filled(parts, parts._spec.dtype, (bags, width), -math.inf)
    top = gather(scatter_reduce(lowest, 0, where, seen, "amax"), 0, where)
    best = e.logical_or(e.eq(seen, top), e.isnan(seen))
    if kept is not None:
        best = e.logical_and(best, views.unsqueeze(kept, 1))
    place = views.unsqueeze(creation.arange(count, device=parts._spec.device.device.name), 1)
    first = scatter_reduce(
        filled(bag, int64, (bags, width), count), 0, where, e.select(best, place, count), "amin"
    )
    some = e.lt(first, count)
    return e.select(some, gather(parts, 0, e.select(some, first, 0)), 0.0)


def _bagged(parts: Value, kept: Value | None, bag: Value, bags: int, mode: str) -> Value:
    """(elements, width) reduced to (bags, width)."""
    if mode == "max":
        return _largest(parts, kept, bag, bags)
    if kept is not None:
        parts = e.select(views.unsqueeze(kept, 1), parts, 0.0)
    total = rows_grad(parts, bag, (bags, parts._spec.shape[1]))
    if mode == "sum":
        return total
    ones = filled(bag, int64, bag._spec.shape, 1) if kept is None else e.cast(kept, int64)
    number = scatter_add(filled(bag, int64, (bags,), 0), 0, bag, ones)
    divisor = e.cast(e.maximum(number, filled(bag, int64, (), 1)), parts._spec.dtype)
    return e.div(total, views.unsqueeze(divisor, 1))


def _flattened(
    op: str, input: Value, offsets: Value | None, weights: Value | None
) -> tuple[Value, Value, Value | None]:
    """The flat indices, with the offset of each bag and the elements' weights."""
    shape = input._spec.shape
    if weights is not None and weights._spec.shape != shape:
        raise ValueError(
            f"{op}: per_sample_weights {weights._spec!r} must have the shape of input "
            f"{input._spec!r}"
        )
    if len(shape) == 2:
        if offsets is not None:
            raise ValueError(
                f"{op}: input {input._spec!r} has a bag in each row; offsets must be None"
            )
        device = input._spec.device.device.name
        starts = e.mul(creation.arange(shape[0], device=device), shape[1])
        flat = (input._spec.numel,)
        return (
            views.reshape(input, flat),
            starts,
            weights if weights is None else views.reshape(weights, flat),
        )
    if len(shape) != 1:
        raise ValueError(f"{op}: input must have 1 or 2 dimensions, got {input._spec!r}")
    if offsets is None:
        raise ValueError(
            f"{op}: input {input._spec!r} of one dimension needs offsets, where each bag begins"
        )
    return input, offsets, weights


@composite("embedding_bag", method=False, top=False)
def embedding_bag(
    input: Value,
    weight: Value,
    offsets: Value | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Value:
    """The sum, mean or largest of the rows of each bag of indices.

    The row `padding_idx` does not count.

    Args:
        mode: What becomes of a bag: its 'sum', 'mean' or 'max'.
    """
    op = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"{op}: mode is 'sum', 'mean' or 'max', got {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError(f"{op}: scale_grad_by_freq goes with mode 'sum' or 'mean', not with 'max'")
    if mode == "max" and sparse:
        raise ValueError(f"{op}: sparse gradients go with mode 'sum' or 'mean', not with 'max'")
    padding = _check_table(op, input, weight, padding_idx)
    index, starts, weights = _flattened(op, input, offsets, per_sample_weights)
    if weights is not None and mode != "sum":
        raise NotImplementedError(f"{op}: per_sample_weights go with mode 'sum', got mode {mode!r}")
    if weights is not None and weights._spec.dtype is not weight._spec.dtype:
        raise DTypeError(
            f"{op}: per_sample_weights {weights._spec!r} must have the dtype of weight "
            f"{weight._spec!r}"
        )
    if max_norm is not None:
        _shorten(weight, index, max_norm, norm_type)
    bag, bags = _numbered(
        op, index._spec.numel, starts, include_last_offset and offsets is not None
    )
    if not index._spec.numel or not bags:
        nothing: Any = reductions.sum(views.slice_dim(weight, 0, 0, 0), 0, True)
        if weights is not None:  # which have an empty gradient too
            nothing = e.add(nothing, reductions.sum(weights))
        return views.reshape(
            views.expand(nothing, (bags, weight._spec.shape[1])), (bags, weight._spec.shape[1])
        )
    parts = _embedded(op, weight, index, padding if sparse else None, scale_grad_by_freq, sparse)
    if weights is not None:
        parts = e.mul(parts, views.unsqueeze(weights, 1))
    kept = None if padding is None else e.ne(index, padding)
    return _bagged(parts, kept, bag, bags, mode)
