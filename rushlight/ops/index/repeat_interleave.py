"""Elements repeated in place: each as often as a number or a tensor says."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.index import gather, nonzero
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.reshaping import ravel, unshared
from rushlight.tape.record.value import Value


@composite("repeat_interleave")
def repeat_interleave(
    input: Value | None = None,
    repeats: Value | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Value:
    """Each element repeated; repeats given as a tensor need output_size, or are summed and read.

    Example:
        >>> torch.repeat_interleave(torch.tensor([1, 2]), torch.tensor([2, 1]))
        tensor([1, 1, 2])
    """
    if input is None or repeats is None:
        alone: Any = repeats if input is None else input
        return nonzero.repeated_places(alone, output_size)
    if dim is None:
        input, dim = ravel(input), 0
    if not input._spec.shape:
        input = views.reshape(input, (1,))
    dim = wrap_dim(dim, len(input._spec.shape), "repeat_interleave")
    shape = input._spec.shape
    if isinstance(repeats, int):
        if repeats < 0:
            raise ShapeError(f"repeat_interleave: repeats must not be negative, got {repeats}")
        if output_size not in (None, shape[dim] * repeats):
            raise ShapeError(
                f"repeat_interleave: output_size is {output_size}, but {repeats} repeats of "
                f"{input._spec!r} along dimension {dim} are {shape[dim] * repeats}"
            )
        wide = (*shape[: dim + 1], repeats, *shape[dim + 1 :])
        final = (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])
        return unshared(
            views.reshape(views.expand(views.unsqueeze(input, dim + 1), wide), final), input
        )
    if repeats._spec.dtype.kind != "i":
        raise DTypeError(
            f"repeat_interleave: repeats must be int64 or int32, got {repeats._spec!r}"
        )
    if len(repeats._spec.shape) > 1 or repeats._spec.numel not in (1, shape[dim]):
        raise ShapeError(
            f"repeat_interleave: repeats {repeats._spec!r} must be one number or {shape[dim]} of "
            "them"
        )
    counts = views.expand(views.reshape(repeats, (-1,)), (shape[dim],))
    return gather.take_slices(
        input, dim, e.cast(nonzero.repeated_places(counts, output_size), int64)
    )
