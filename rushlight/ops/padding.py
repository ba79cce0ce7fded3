"""Borders: of one value, or of the input's own elements (reflected, repeated at the edge, or wrapped around)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import INTEGER
from rushlight.core.errors import ShapeError
from rushlight.ops import creation, elementwise as e, views
from rushlight.ops.indexing import gather
from rushlight.ops.registry import composite
from rushlight.ops.windows import Sides, bordered
from rushlight.tape.value import Value


def _pairs(x: Value, pad: Sequence[int], op: str) -> Sides:
    """(before, after) for the last dimensions in their order; `pad` starts from the last one."""
    listed = [int(n) for n in pad]
    rank = len(x.spec.shape)
    if len(listed) % 2 or len(listed) > 2 * rank:
        raise ShapeError(f"{op}: pad {listed} must be pairs, at most one for each dimension of {x.spec!r}")
    sides = tuple(zip(listed[-2::-2], listed[::-2], strict=True))
    for n, (before, after) in zip(x.spec.shape[rank - len(sides) :], sides, strict=True):
        if n + before + after < 0:
            raise ShapeError(f"{op}: pad {listed} leaves a negative size of {x.spec!r}")
    return sides


def _cut(x: Value, dim: int, before: int, after: int) -> Value:
    """Without what negative sides take away."""
    start = max(0, -before)
    return views.slice_dim(x, dim, start, x.spec.shape[dim] - start - max(0, -after))


@composite("constant_pad_nd", method=False)
def constant_pad_nd(input: Value, pad: Sequence[int], value: float = 0) -> Value:
    """The last dimensions with a border of one value; a negative border cuts."""
    sides = _pairs(input, pad, "constant_pad_nd")
    lead = len(input.spec.shape) - len(sides)
    x = input
    for i, (before, after) in enumerate(sides):
        x = _cut(x, lead + i, before, after)
    grown = tuple((max(0, before), max(0, after)) for before, after in sides)
    out = bordered(x, grown, int(value) if x.spec.dtype in INTEGER else value)
    return e.clone(out) if out is input or out is x else out


def _reversed(x: Value, dim: int, start: int, count: int) -> Value:
    """`count` elements from `start` downwards."""
    index = creation.arange(start, start - count, -1, device=x.spec.device.device.name)
    shape = x.spec.shape
    column = views.reshape(index, (count,) + (1,) * (len(shape) - dim - 1))
    return gather(x, dim, views.expand(column, (*shape[:dim], count, *shape[dim + 1 :])))


def _reflect(x: Value, dim: int, before: int, after: int) -> Value:
    n = x.spec.shape[dim]
    if max(before, after) >= n:
        raise ShapeError(
            f"pad: a reflected border of {(before, after)} must be smaller than dimension {dim} of {x.spec!r}"
        )
    parts = [_cut(x, dim, before, after)]
    if before > 0:
        parts.insert(0, _reversed(x, dim, before, before))
    if after > 0:
        parts.append(_reversed(x, dim, n - 2, after))
    return views.cat(parts, dim)


def _replicate(x: Value, dim: int, before: int, after: int) -> Value:
    n = x.spec.shape[dim]
    if n == 0:
        raise ShapeError(f"pad: there is no edge to repeat in dimension {dim} of {x.spec!r}")
    shape = x.spec.shape
    parts = [_cut(x, dim, before, after)]
    if before > 0:
        parts.insert(0, views.expand(views.slice_dim(x, dim, 0, 1), (*shape[:dim], before, *shape[dim + 1 :])))
    if after > 0:
        parts.append(views.expand(views.slice_dim(x, dim, n - 1, 1), (*shape[:dim], after, *shape[dim + 1 :])))
    return views.cat(parts, dim)


def _wrap(x: Value, dim: int, before: int, after: int) -> Value:
    if max(before, after) > x.spec.shape[dim]:
        raise ShapeError(
            f"pad: a circular border of {(before, after)} must not be larger than dimension {dim} of {x.spec!r}"
        )
    x = _cut(x, dim, before, after)
    n = x.spec.shape[dim]
    parts = [x]
    if before > 0:
        parts.insert(0, views.slice_dim(x, dim, n - before, before))
    if after > 0:
        parts.append(views.slice_dim(x, dim, 0, after))
    return views.cat(parts, dim)


_MODES: dict[str, Callable[[Value, int, int, int], Value]] = {
    "reflect": _reflect,
    "replicate": _replicate,
    "circular": _wrap,
}


@composite("pad", method=False, top=False)
def pad(input: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    """A border around the last dimensions: (before, after) of the last, of the one before it, and so on."""
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in _MODES:
        raise NotImplementedError(f"pad: mode is 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    if value is not None and value != 0:
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
    sides = _pairs(input, pad, "pad")
    rank = len(input.spec.shape)
    if not 1 <= len(sides) <= 3 or rank not in (len(sides) + 1, len(sides) + 2):
        raise NotImplementedError(
            f"pad: mode {mode!r} pads the last 1 to 3 dimensions of (channels, ...) or (batch, channels, ...), "
            f"got {list(pad)} for {input.spec!r}"
        )
    if mode != "circular" and 0 in input.spec.shape[rank - len(sides) - 1 :]:
        raise ShapeError(f"pad: mode {mode!r} needs elements, the batch alone may be empty; got {input.spec!r}")
    x = input
    for i, (before, after) in enumerate(sides):
        if before or after:
            x = _MODES[mode](x, rank - len(sides) + i, before, after)
    return e.clone(x) if x is input else x
