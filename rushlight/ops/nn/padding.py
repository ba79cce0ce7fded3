"""Padding: by one value, or by the input's own elements (reflected, replicated or circular)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import INTEGER
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import suggests_last
from rushlight.ops.index.flip import Run, Runs, arranged
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import follows_image, in_format
from rushlight.ops.view.windows import Sides, bordered
from rushlight.tape.record.value import Value


def _sides(x: Value, pad: Sequence[int], op: str) -> Sides:
    """(before, after) for the last dimensions in their order; `pad` starts from the last one."""
    listed = [int(n) for n in pad]
    rank = len(x._spec.shape)
    if len(listed) % 2 or len(listed) > 2 * rank:
        raise ShapeError(
            f"{op}: pad {listed} must be pairs, at most one for each dimension of {x._spec!r}"
        )
    sides = tuple(zip(listed[-2::-2], listed[::-2], strict=True))
    for n, (before, after) in zip(x._spec.shape[rank - len(sides) :], sides, strict=True):
        if n + before + after < 0:
            raise ShapeError(f"{op}: pad {listed} leaves a negative size of {x._spec!r}")
    return sides


def _cut(x: Value, dim: int, before: int, after: int) -> Value:
    """The run of elements that negative padding leaves."""
    start = max(0, -before)
    return views.slice_dim(x, dim, start, x._spec.shape[dim] - start - max(0, -after))


@composite("constant_pad_nd", method=False)
@follows_image
def constant_pad_nd(input: Value, pad: Sequence[int], value: float = 0) -> Value:
    """The last dimensions padded by one value; negative padding cuts."""
    sides = _sides(input, pad, "constant_pad_nd")
    lead = len(input._spec.shape) - len(sides)
    x = input
    for i, (before, after) in enumerate(sides):
        x = _cut(x, lead + i, before, after)
    grown = tuple((max(0, before), max(0, after)) for before, after in sides)
    out = bordered(x, grown, int(value) if x._spec.dtype in INTEGER else value)
    return e.clone(out) if out is input or out is x else out


def _inner_run(n: int, before: int, after: int) -> Run:
    """The run of elements that negative padding leaves."""
    start = max(0, -before)
    return n - start - max(0, -after), start, 1


def _reflect(x: Value, dim: int, before: int, after: int) -> Runs:
    n = x._spec.shape[dim]
    if max(before, after) >= n:
        raise ShapeError(
            f"pad: a reflected border of {(before, after)} must be smaller than dimension {dim} of "
            f"{x._spec!r}"
        )
    return (max(0, before), before, -1), _inner_run(n, before, after), (max(0, after), n - 2, -1)


def _replicate(x: Value, dim: int, before: int, after: int) -> Runs:
    n = x._spec.shape[dim]
    if n == 0:
        raise ShapeError(f"pad: there is no edge to repeat in dimension {dim} of {x._spec!r}")
    return (max(0, before), 0, 0), _inner_run(n, before, after), (max(0, after), n - 1, 0)


def _wrap(x: Value, dim: int, before: int, after: int) -> Runs:
    count, start, _ = _inner_run(x._spec.shape[dim], before, after)
    if max(before, after) > count:
        raise ShapeError(
            f"pad: a circular border of {(before, after)} must not be larger than dimension {dim} "
            f"of {x._spec!r}"
        )
    return (max(0, before), start + count - before, 1), (count, start, 1), (max(0, after), start, 1)


_MODES: dict[str, Callable[[Value, int, int, int], Runs]] = {
    "reflect": _reflect,
    "replicate": _replicate,
    "circular": _wrap,
}


@composite("pad", method=False, top=False, pure=True)
def pad(
    input: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Value:
    """Padding of the last dimensions: (before, after) of the last, of the one before it, ...

    Args:
        mode: What is added: 'constant', 'reflect', 'replicate' or 'circular'.

    Example:
        >>> F.pad(torch.ones(1, 2), (1, 0), value=5)
        tensor([[5., 1., 1.]])
    """
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in _MODES:
        raise NotImplementedError(
            f"pad: mode is 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}"
        )
    if value is not None and value != 0:
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
    sides = _sides(input, pad, "pad")
    rank = len(input._spec.shape)
    if not 1 <= len(sides) <= 3 or rank not in (len(sides) + 1, len(sides) + 2):
        raise NotImplementedError(
            f"pad: mode {mode!r} pads the last 1 to 3 dimensions of (channels, ...) or (batch, "
            f"channels, ...), got {list(pad)} for {input._spec!r}"
        )
    if mode != "circular" and 0 in input._spec.shape[rank - len(sides) - 1 :]:
        raise ShapeError(
            f"pad: mode {mode!r} needs elements, the batch alone may be empty; got {input._spec!r}"
        )
    lead = rank - len(sides)
    every = [_MODES[mode](input, lead + i, *side) for i, side in enumerate(sides)]
    grown = (sum(count for count, _, _ in runs) for runs in every)
    if 0 in input._spec.shape or 0 in grown or not any(map(any, sides)):
        out = constant_pad_nd(input, pad)
    else:
        out = arranged(input, every)
    return in_format(out, mode != "circular" and suggests_last(input._spec))
