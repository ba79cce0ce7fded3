"""Positions in a shape, from row-major positions."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import INTEGER, int64
from rushlight.core.shapes import contiguous_strides
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.tape.record.value import Value


@composite("unravel_index", method=False)
def unravel_index(indices: Value, shape: int | Sequence[int]) -> tuple[Value, ...]:
    """For each index into the flat elements of a shape, the index along each of its dimensions.

    Example:
        >>> torch.unravel_index(torch.tensor([5]), (2, 3))
        (tensor([1]), tensor([2]))
    """
    if indices._spec.dtype not in INTEGER:
        raise TypeError(
            f"unravel_index: indices must be integers, got {indices._spec!r}; cast with .long()"
        )
    listed = [shape] if isinstance(shape, (int, float)) else shape
    if isinstance(listed, Value) or not all(isinstance(n, int) for n in listed):
        raise TypeError(
            f"unravel_index: the shape is an integer or a sequence of them, got {shape!r}"
        )
    sizes = tuple(int(n) for n in listed)
    if any(n < 0 for n in sizes):
        raise ValueError(f"unravel_index: sizes must not be negative, got {list(sizes)}")
    indices = e.cast(indices, int64)
    steps = contiguous_strides(sizes)
    return tuple(
        e.remainder(e.floor_divide(indices, step), max(n, 1))
        for n, step in zip(sizes, steps, strict=True)
    )
