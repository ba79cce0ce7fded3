"""Views by sizes and strides, and windows: elements may overlap, so the gradient is a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape, contiguous_strides, numel, reach, wrap_dim
from rushlight.devices.shared.allocator import room_for
from rushlight.ops.create import creation
from rushlight.ops.family.view import View, shift_first
from rushlight.ops.index import gather
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.joining import replaced
from rushlight.ops.view.reshaping import device_of, ravel
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


def _windows(shape: Shape, strides: Shape, dim: int, size: int, step: int) -> views.View3:
    count = (shape[dim] - size) // step + 1
    step = step if count > 1 or step < views.FAR else 1
    return (
        (*shape[:dim], count, *shape[dim + 1 :], size),
        (*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim]),
        0,
    )


def _windows_grad(g: Value, x: Any, dim: int, size: int, step: int) -> Value:
    """Windows may overlap, so their gradients are added."""
    shape, strides, _ = _windows(x.shape, contiguous_strides(x.shape), dim, size, step)
    return strided_grad(
        g, numel(x.shape), x.shape, contiguous_strides(x.shape), 0, (shape, strides, 0)
    )


_unfold = View("unfold", _windows, _windows_grad, "Windows along a dimension.", shift=shift_first)


@composite("unfold", top=False, pure=True)
def unfold(input: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of `size` elements along a dimension, one every `step`, as a new last dimension.

    a view.

    Example:
        >>> torch.arange(5).unfold(0, 3, 1)
        tensor([[0, 1, 2],
                [1, 2, 3],
                [2, 3, 4]])
    """
    shape = input._spec.shape
    dim = wrap_dim(dimension, len(shape), "unfold")
    limit = shape[dim] if shape else 1
    if size < 0 or step <= 0 or size > limit:
        raise ShapeError(
            f"unfold: size {size} must fit into dimension {dim} of size {limit}, and step {step} "
            "be positive"
        )
    if not shape:
        wide = views.reshape(input, (1,))
        return views.slice_dim(wide, 0, 0, size)
    return call.call(_unfold, (input,), (dim, size, step))


def places_of(shape: Shape, strides: Shape, skip: int, device: str) -> Value:
    """The offset of each element of a layout, in elements: an int64 tensor of the shape."""
    total = creation.full((), skip, dtype=int64, device=device)
    for i, (n, step) in enumerate(zip(shape, strides, strict=True)):
        line = e.mul(creation.arange(n, device=device), step)
        total = e.add(total, views.reshape(line, (n,) + (1,) * (len(shape) - i - 1)))
    return total


def strided_grad(
    g: Value, room: int, shape: Shape, strides: Shape, skip: int, seen: views.View3
) -> Value:
    """The gradient of a layout viewed as `seen`: added up in linear memory, then read."""
    device = device_of(g)
    line = creation.full((room,), 0, dtype=g._spec.dtype, device=device)
    places = places_of(*seen, device)
    summed = gather.scatter_add(line, 0, views.reshape(places, (places._spec.numel,)), ravel(g))
    if strides == contiguous_strides(shape) and skip == 0 and numel(shape) == room:
        return views.reshape(summed, shape)
    places = views.reshape(places_of(shape, strides, skip, device), (numel(shape),))
    if _overlaps(shape, strides):  # elements in the same memory share its gradient
        ones = creation.full((numel(shape),), 1, dtype=g._spec.dtype, device=device)
        shares = gather.scatter_add(
            creation.full((room,), 0, dtype=g._spec.dtype, device=device), 0, places, ones
        )
        summed = e.div(summed, e.maximum(shares, 1))
    return views.reshape(gather.gather(summed, 0, places), shape)


def _overlaps(shape: Shape, strides: Shape) -> bool:
    """Whether a layout may have several elements in the same memory."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _reach(shape: Shape, strides: Shape, skip: int) -> int:
    return (
        skip + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if numel(shape)
        else 0
    )


def _strided_grad(g: Value, x: Any, size: Shape, stride: Shape, skip: int, old: Shape) -> Value:
    low = min(0, skip)
    seen = (size, stride, skip - low)
    room = max(_reach(x.shape, old, -low), _reach(*seen))
    return strided_grad(g, room, x.shape, old, -low, seen)


_strided_inside, _strided_beyond = (
    View(
        "as_strided",
        lambda shape, strides, size, stride, skip, old: (size, stride, skip),
        _strided_grad,
        "A view by sizes, strides and offset.",
        beyond=beyond,
        batching="view.strided",
    )
    for beyond in (False, True)
)


def strided_view(x: Value, size: Shape, stride: Shape, skip: int) -> Value:
    """x's memory by sizes and strides, `skip` elements after x's own start.

    Elements may overlap.
    """
    low, high = reach(size, stride, x._spec.dtype.itemsize)
    start = skip * x._spec.dtype.itemsize
    inside = low == high or (start + low >= x._spec.low and start + high <= x._spec.high)
    return call.call(
        _strided_inside if inside else _strided_beyond, (x,), (size, stride, skip, x._spec.strides)
    )


def layout_of(
    op: str, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[Shape, Shape, int]:
    """(sizes, strides, offset from x's own start), checked against the memory."""
    sizes, strides = tuple(int(n) for n in size), tuple(int(n) for n in stride)
    if len(sizes) != len(strides) or any(n < 0 for n in (*sizes, *strides)):
        raise ShapeError(
            f"{op}: sizes {list(sizes)} and strides {list(strides)} must be as many and not "
            "negative"
        )
    itemsize = x._spec.dtype.itemsize
    start = x._offset // itemsize
    first = start if storage_offset is None else storage_offset
    room = x._memory.room
    owner = x if x._base is None else x._base
    if not owner._offset and room == room_for(owner._spec.high):
        # The block may be larger than requested; the rest is uninitialised.
        room = owner._spec.high
    if first < 0 or _reach(sizes, strides, first) * itemsize > room:
        raise ShapeError(
            f"{op}: sizes {list(sizes)}, strides {list(strides)}, offset {first} reach beyond the "
            "storage"
        )
    return sizes, strides, first - start


@composite("as_strided", inplace="view", inplace_top=True, pure=True)
def as_strided(
    input: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """The input's memory by sizes, strides and offset; a view.

    Example:
        >>> torch.as_strided(torch.arange(6), (2, 2), (1, 2))
        tensor([[0, 2],
                [1, 3]])
    """
    seen = layout_of("as_strided", input, size, stride, storage_offset)
    return strided_view(input, *seen)


@composite("as_strided_scatter")
def as_strided_scatter(
    input: Value,
    src: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """The input with the elements of its as_strided view replaced."""
    whole = e.clone(input)
    seen = layout_of("as_strided_scatter", whole, size, stride, storage_offset)
    return replaced("as_strided_scatter", whole, src, lambda shape, strides: seen)
