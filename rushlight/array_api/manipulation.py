"""Arrays reshaped, reordered, joined, split and indexed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.array_api.array import Array, check_kind, is_array, op, promoted, unwrap, wrap
from rushlight.core.shapes import view_strides, wrap_dim
from rushlight.ops.view import views


def _axis(axis: int, rank: int, name: str) -> int:
    if not -rank <= axis < rank:
        raise IndexError(f"{name}: axis {axis} is out of range for {rank} dimensions")
    return axis % rank


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Arrays concatenated along an axis; flattened, where it is None."""
    tensors = [unwrap(a) for a in arrays]
    if not tensors:
        raise ValueError("concat: at least one array is needed")
    common = promoted(*[t.dtype for t in tensors])
    if axis is None:
        tensors, axis = [t.reshape(-1) for t in tensors], 0
    rank = tensors[0].ndim
    axis = _axis(axis, rank, "concat")
    if any(t.ndim != rank for t in tensors):
        raise ValueError("concat: all arrays must have as many dimensions")
    return wrap(op("cat")([t.to(common) for t in tensors], axis))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """Arrays stacked along a new axis."""
    tensors = [unwrap(a) for a in arrays]
    if not tensors:
        raise ValueError("stack: at least one array is needed")
    common = promoted(*[t.dtype for t in tensors])
    return wrap(
        op("stack")([t.to(common) for t in tensors], _axis(axis, tensors[0].ndim + 1, "stack"))
    )


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    tensor = unwrap(x)
    return tuple(wrap(t) for t in op("unbind")(tensor, _axis(axis, tensor.ndim, "unstack")))


def expand_dims(x: Any, /, axis: int | tuple[int, ...] = 0) -> Array:
    """A new axis of size 1, or several: their places in the result."""
    tensor = unwrap(x)
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = tensor.ndim + len(given)
    places = sorted(_axis(a, rank, "expand_dims") for a in given)
    if len(set(places)) < len(places):
        raise ValueError(f"expand_dims: the axes {given} name a place twice")
    for place in places:
        tensor = op("unsqueeze")(tensor, place)
    return wrap(tensor)


def squeeze(x: Any, /, axis: int | tuple[int, ...]) -> Array:
    """Remove axes of size 1."""
    tensor = unwrap(x)
    axes = tuple(
        _axis(a, tensor.ndim, "squeeze") for a in ((axis,) if isinstance(axis, int) else axis)
    )
    if any(tensor.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: the axes {axes} of {tensor._spec!r} must have size 1")
    return wrap(op("squeeze")(tensor, axes) if axes else tensor)


def flip(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """The elements in reverse order along axes, by default all."""
    tensor = unwrap(x)
    axes = tuple(range(tensor.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = tuple(_axis(a, tensor.ndim, "flip") for a in axes)
    return wrap(op("flip")(tensor, axes) if axes else op("clone")(tensor))


def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Array:
    """Axes moved to other positions."""
    return wrap(op("movedim")(unwrap(x), source, destination))


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Array:
    """Axes in another order."""
    tensor = unwrap(x)
    order = tuple(_axis(a, tensor.ndim, "permute_dims") for a in axes)
    if sorted(order) != list(range(tensor.ndim)):
        raise ValueError(f"permute_dims: {axes} does not name each of {tensor.ndim} axes once")
    return wrap(op("permute")(tensor, order))


def matrix_transpose(x: Any, /) -> Array:
    """The last two axes exchanged."""
    tensor = unwrap(x)
    if tensor.ndim < 2:
        raise ValueError(f"matrix_transpose: a matrix is needed, got {tensor._spec!r}")
    return wrap(op("transpose")(tensor, -1, -2))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element, or each slice along an axis, repeated."""
    tensor = unwrap(x)
    counts = unwrap(repeats) if is_array(repeats) else repeats
    if axis is None:
        tensor, axis = tensor.reshape(-1), 0
    return wrap(op("repeat_interleave")(tensor, counts, _axis(axis, tensor.ndim, "repeat")))


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The same elements in another shape; copy=False: the same memory, or an error."""
    tensor = unwrap(x)
    target = views.resolve_shape(tuple(shape), tensor._spec.numel, "reshape", tensor.shape)
    if copy is False and view_strides(tensor.shape, tensor._spec.strides, target) is None:
        raise ValueError(
            f"reshape: {tensor._spec!r} as {list(target)} needs a copy; leave copy at None"
        )
    return wrap(op("reshape")(op("clone")(tensor) if copy else tensor, target))


def roll(
    x: Any, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Array:
    """Elements shifted along axes, wrapping around at the ends."""
    tensor = unwrap(x)
    if axis is None:
        return wrap(op("roll")(tensor, shift))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    return wrap(op("roll")(tensor, shifts, tuple(wrap_dim(a, tensor.ndim, "roll") for a in axes)))


def tile(x: Any, repetitions: tuple[int, ...], /) -> Array:
    """The array repeated along each axis."""
    return wrap(op("tile")(unwrap(x), tuple(repetitions)))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
    """The slices of an axis at indices."""
    tensor, at = unwrap(x), unwrap(indices)
    check_kind("take", at.dtype, "integer")
    if axis is None:
        if tensor.ndim != 1:
            raise ValueError(f"take: an axis is needed for {tensor.ndim} dimensions")
        axis = 0
    if at.ndim != 1:
        raise ValueError(f"take: the indices must be one-dimensional, got {at._spec!r}")
    axis = _axis(axis, tensor.ndim, "take")
    return wrap(tensor[(slice(None),) * axis + (at,)])


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Array:
    """The elements of x at indices along an axis, one per position."""
    tensor, at = unwrap(x), unwrap(indices)
    check_kind("take_along_axis", at.dtype, "integer")
    axis = _axis(axis, tensor.ndim, "take_along_axis")
    negative = op("lt")(at, 0)
    wrapped = op("where")(negative, op("add")(at, tensor.shape[axis]), at)
    return wrap(op("take_along_dim")(tensor, wrapped.long(), axis))
