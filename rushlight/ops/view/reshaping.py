"""More views and repetitions of one tensor; each is a view where PyTorch's is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import (
    Shape,
    broadcast_shapes,
    contiguous_strides,
    numel,
    reach,
    wrap_dim,
)
from rushlight.devices.shared.allocator import room_for
from rushlight.ops.create import creation
from rushlight.ops.family.view import View, shift_first, shift_last_two
from rushlight.ops.index import gather, nonzero
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite, register
from rushlight.ops.view import views
from rushlight.ops.view.flip import flipped
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

Dims = int | Sequence[int]


def device_of(x: Value) -> str:
    return x._spec.device.device.name


def listed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments given one by one or as one sequence."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def given(one_by_one: tuple[Any, ...], named: Any) -> tuple[Any, ...]:
    """Arguments that may also be given by name."""
    if named is None:
        return listed(one_by_one)
    return (named,) if isinstance(named, int) else tuple(named)


def pick(x: Value, dim: int, index: Value) -> Value:
    """The slices of a dimension at a 1-d index: one kernel where x merges around `dim`."""
    shape = x._spec.shape
    line = views.reshape(index, (1,) * dim + (index._spec.numel,) + (1,) * (len(shape) - dim - 1))
    return gather.gather(
        x, dim, views.expand(line, (*shape[:dim], index._spec.numel, *shape[dim + 1 :]))
    )


# ---- order of dimensions ----


@composite("movedim", pure=True)
def movedim(input: Value, source: Dims, destination: Dims) -> Value:
    """Dimensions at `source` moved to `destination`, the others in their order; a view.

    Example:
        >>> torch.movedim(torch.zeros(2, 3, 4), 0, -1).shape
        rushlight.Size([3, 4, 2])
    """
    rank = len(input._spec.shape)
    froms, tos = ([d] if isinstance(d, int) else list(d) for d in (source, destination))
    if len(froms) != len(tos):
        raise ShapeError(
            f"movedim: source {froms} and destination {tos} must have equally many dimensions"
        )
    froms = [wrap_dim(d, rank, "movedim") for d in froms]
    tos = [wrap_dim(d, rank, "movedim") for d in tos]
    if len(set(froms)) != len(froms) or len(set(tos)) != len(tos):
        raise ShapeError(
            f"movedim: a dimension is named twice in source {source} or destination {destination}"
        )
    if rank == 0:
        return views.view(input, ())
    rest = iter([d for d in range(rank) if d not in froms])
    placed = dict(zip(tos, froms, strict=True))
    return views.permute(
        input, tuple(placed[i] if i in placed else next(rest) for i in range(rank))
    )


@composite("moveaxis")
def moveaxis(input: Value, source: Dims, destination: Dims) -> Value:
    """`movedim` under NumPy's name."""
    return movedim(input, source, destination)


@composite("swapaxes", inplace="view", pure=True)
def swapaxes(input: Value, axis0: int, axis1: int) -> Value:
    """`transpose` under NumPy's name."""
    return views.transpose(input, axis0, axis1)


@composite("swapdims", inplace="view", pure=True)
def swapdims(input: Value, dim0: int, dim1: int) -> Value:
    """`transpose` under another name."""
    return views.transpose(input, dim0, dim1)


@composite("t", inplace="view", pure=True)
def t(input: Value) -> Value:
    """A matrix transposed; vectors and numbers unchanged."""
    if len(input._spec.shape) > 2:
        raise ShapeError(
            f"t: at most 2 dimensions, got {input._spec!r}; use .mT or .transpose(...)"
        )
    return (
        views.view(input, input._spec.shape)
        if len(input._spec.shape) < 2
        else views.transpose(input, 0, 1)
    )


# ---- shapes ----


@composite("unflatten", pure=True)
def unflatten(input: Value, dim: int, sizes: Sequence[int]) -> Value:
    """One dimension as several; a view.

    Example:
        >>> torch.unflatten(torch.zeros(2, 12), 1, (3, -1)).shape
        rushlight.Size([2, 3, 4])
    """
    shape = input._spec.shape
    if not shape:
        raise IndexError("unflatten: a 0-dim tensor has no dimension to unfold")
    dim = wrap_dim(dim, len(shape), "unflatten")
    if not len(sizes):
        raise ShapeError("unflatten: sizes must not be empty")
    parts = views.resolve_shape(sizes, shape[dim], "unflatten", (shape[dim],))
    return views.view(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


@composite("ravel", fresh=True)
def ravel(input: Value) -> Value:
    """One dimension, contiguous; a view where it is so already."""
    return views.contiguous(
        views.reshape(input, (-1,)) if input._spec.numel else views.reshape(input, (0,))
    )


@composite("reshape_as", top=False, pure=True, fresh=True)
def reshape_as(input: Value, other: Value) -> Value:
    """The shape of another tensor."""
    return views.reshape(input, other._spec.shape)


@composite("view_as", top=False, pure=True)
def view_as(input: Value, other: Value) -> Value:
    """The shape of another tensor, without a copy."""
    return views.view(input, other._spec.shape)


@composite("expand_as", top=False, pure=True, fresh=True)
def expand_as(input: Value, other: Value) -> Value:
    """Expanded to the shape of another tensor."""
    return views.expand(input, other._spec.shape)


@composite("broadcast_to", pure=True, fresh=True)
def broadcast_to(input: Value, size: Sequence[int]) -> Value:
    """Expanded to a shape."""
    return views.expand(input, tuple(size))


@composite("broadcast_tensors", method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Value, ...]:
    """All tensors expanded to their common shape."""
    values = listed(tensors)
    shape = broadcast_shapes(
        [v._spec.shape for v in values], "broadcast_tensors", [v._spec for v in values]
    )
    return tuple(views.expand(v, shape) for v in values)


def _at_least(name: str, rank: int, grow: Callable[[Value], Value]) -> None:
    def function(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], Value):
            return grow(tensors[0])
        return tuple(grow(v) for v in listed(tensors))

    register(
        name, function, f"At least {rank} dimensions; several tensors give a tuple.", method=False
    )


def _to_2d(x: Value) -> Value:
    return x if len(x._spec.shape) > 1 else views.reshape(x, (1, x._spec.numel))


def _to_3d(x: Value) -> Value:
    return x if len(x._spec.shape) > 2 else views.unsqueeze(_to_2d(x), -1)


def _to_1d(x: Value) -> Value:
    return x if x._spec.shape else views.reshape(x, (1,))


_at_least("atleast_1d", 1, _to_1d)
_at_least("atleast_2d", 2, _to_2d)
_at_least("atleast_3d", 3, _to_3d)


# ---- diagonals ----


def diagonal_of(shape: Shape, strides: Shape, offset: int, dim1: int, dim2: int) -> views.View3:
    rows, columns = shape[dim1], shape[dim2]
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    kept = [i for i in range(len(shape)) if i not in (dim1, dim2)]
    skip = offset * strides[dim2] if offset >= 0 else -offset * strides[dim1]
    sizes = (*(shape[i] for i in kept), count)
    return sizes, (*(strides[i] for i in kept), strides[dim1] + strides[dim2]), skip if count else 0


_diagonal = View(
    "diagonal",
    diagonal_of,
    lambda g, x, *static: views.place_view(
        g, x.shape, diagonal_of(x.shape, contiguous_strides(x.shape), *static)
    ),
    "A diagonal of two dimensions.",
    shift=shift_last_two,
)


def _two_dims(op: str, dim1: int, dim2: int, rank: int) -> tuple[int, int]:
    first, second = wrap_dim(dim1, rank, op), wrap_dim(dim2, rank, op)
    if first == second:
        raise ShapeError(f"{op}: dim1 and dim2 are the same dimension {first}")
    return first, second


@composite("diagonal", pure=True)
def diagonal(input: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal of two dimensions as a new last one; a view.

    Example:
        >>> torch.diagonal(torch.arange(9).reshape(3, 3), offset=1)
        tensor([1, 5])
    """
    first, second = _two_dims("diagonal", dim1, dim2, len(input._spec.shape))
    return call.call(_diagonal, (input,), (offset, first, second))


@composite("diag_embed", pure=True)
def diag_embed(input: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """The last dimension on a diagonal of two new ones, zeros elsewhere.

    Example:
        >>> torch.diag_embed(torch.ones(2, 3)).shape
        rushlight.Size([2, 3, 3])
    """
    shape = input._spec.shape
    first, second = _two_dims("diag_embed", dim1, dim2, len(shape) + 1)
    side = shape[-1] + abs(offset)
    rest = iter(shape[:-1])
    whole = tuple(side if i in (first, second) else next(rest) for i in range(len(shape) + 1))
    return views.place_view(
        input, whole, diagonal_of(whole, contiguous_strides(whole), offset, first, second)
    )


@composite("diag", out="exact", pure=True)
def diag(input: Value, diagonal: int = 0) -> Value:
    """A vector on the diagonal of a matrix, or the diagonal of a matrix as a vector.

    Example:
        >>> torch.diag(torch.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    rank = len(input._spec.shape)
    if rank not in (1, 2):
        raise ShapeError(
            f"diag: takes a vector or a matrix, got {input._spec!r}; see diag_embed and diagonal"
        )
    if rank == 1:
        return diag_embed(input, diagonal)
    return e.clone(call.call(_diagonal, (input,), (diagonal, 0, 1)))


@composite("diagflat", pure=True)
def diagflat(input: Value, offset: int = 0) -> Value:
    """All elements on the diagonal of a matrix."""
    return diag_embed(ravel(input), offset)


@composite("trace", pure=True)
def trace(input: Value) -> Value:
    """The sum of a matrix's diagonal."""
    if len(input._spec.shape) != 2:
        raise ShapeError(f"trace: takes a matrix, got {input._spec!r}")
    return reductions.sum(call.call(_diagonal, (input,), (0, 0, 1)))


# ---- order of elements ----


@composite("flip", pure=True)
def flip(input: Value, *axes: Dims, dims: Dims | None = None) -> Value:
    """Dimensions in reversed order, given one by one or as `dims`; a copy.

    Example:
        >>> torch.flip(torch.tensor([[1, 2], [3, 4]]), (1,))
        tensor([[2, 1],
                [4, 3]])
    """
    rank = len(input._spec.shape)
    if not axes and dims is None:
        raise TypeError("flip() needs the dimensions to reverse: flip(x, dims)")
    turned = [wrap_dim(d, rank, "flip") for d in given(axes, dims)]
    if len(set(turned)) != len(turned):
        raise ShapeError(f"flip: a dimension is named twice in {list(turned)}")
    moved = [dim for dim in turned if rank and input._spec.shape[dim] > 1]
    return flipped(input, moved) if moved and input._spec.numel else e.clone(input)


@composite("fliplr")
def fliplr(input: Value) -> Value:
    """The second dimension reversed."""
    if len(input._spec.shape) < 2:
        raise ShapeError(f"fliplr: at least 2 dimensions are needed, got {input._spec!r}")
    return flip(input, 1)


@composite("flipud")
def flipud(input: Value) -> Value:
    """The first dimension reversed."""
    if not input._spec.shape:
        raise ShapeError(f"flipud: at least 1 dimension is needed, got {input._spec!r}")
    return flip(input, 0)


@composite("rot90", pure=True)
def rot90(input: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """Rotated by k quarters from the first of `dims` to the second; a copy.

    Example:
        >>> torch.rot90(torch.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    rank = len(input._spec.shape)
    if len(dims) != 2 or rank < 2:
        raise ShapeError(
            f"rot90: takes two dimensions of at least two, got {list(dims)} of {input._spec!r}"
        )
    first, second = _two_dims("rot90", dims[0], dims[1], rank)
    turns = k % 4
    if turns == 0:
        return e.clone(input)
    if turns == 2:
        return flip(input, first, second)
    return views.transpose(flip(input, second if turns == 1 else first), first, second)


def _rolled(x: Value, shift: int, dim: int) -> Value:
    size = x._spec.shape[dim]
    start = -shift % size if size else 0
    if start == 0:
        return x
    return views.cat(
        [views.slice_dim(x, dim, start, size - start), views.slice_dim(x, dim, 0, start)], dim
    )


@composite("roll", pure=True)
def roll(input: Value, shifts: Dims, dims: Dims | None = None) -> Value:
    """Elements shifted along dimensions, wrapping around; without dims, of the flattened tensor.

    Example:
        >>> torch.roll(torch.tensor([1, 2, 3, 4]), 1)
        tensor([4, 1, 2, 3])
    """
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
    if not steps:
        raise ShapeError("roll: shifts must not be empty")
    if not axes and len(steps) == 1:
        flat = ravel(input)
        return views.reshape(_unshared(_rolled(flat, steps[0], 0), input), input._spec.shape)
    if len(steps) != len(axes):
        raise ShapeError(f"roll: shifts {steps} and dims {axes} must have equally many entries")
    if not input._spec.shape:
        raise IndexError(f"roll: dims {axes} are given but {input._spec!r} has no dimensions")
    out = input
    for shift, dim in zip(steps, axes, strict=True):
        out = _rolled(out, shift, wrap_dim(dim, len(input._spec.shape), "roll"))
    return _unshared(out, input)


def _unshared(out: Value, input: Value) -> Value:
    """A copy where the result would share the input's memory."""
    return e.clone(out) if out._memory is input._memory else out


# ---- repetition ----


def _repeated(x: Value, times: Sequence[int]) -> Value:
    """Each dimension repeated `times`, by expanding a new one before it."""
    shape = x._spec.shape
    apart = tuple(n for size in shape for n in (1, size))
    wide = tuple(n for r, size in zip(times, shape, strict=True) for n in (r, size))
    final = tuple(r * size for r, size in zip(times, shape, strict=True))
    if numel(final) == 0:
        return views.reshape(e.clone(views.expand(views.reshape(x, apart), wide)), final)
    return _unshared(views.reshape(views.expand(views.reshape(x, apart), wide), final), x)


@composite("repeat", top=False, pure=True)
def repeat(input: Value, *times: Dims, repeats: Dims | None = None) -> Value:
    """The tensor repeated along each dimension; new dimensions come first.

    Example:
        >>> torch.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
    """
    counts: tuple[int, ...] = given(times, repeats)
    lead = len(counts) - len(input._spec.shape)
    if lead < 0 or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat: {list(counts)} must not be negative and have an entry per dimension of "
            f"{input._spec!r}"
        )
    return _repeated(views.reshape(input, (1,) * lead + input._spec.shape), counts)


@composite("tile", pure=True)
def tile(input: Value, *times: Dims, dims: Dims | None = None) -> Value:
    """`repeat` in which missing entries are 1.

    Example:
        >>> torch.tile(torch.tensor([1, 2]), (2,))
        tensor([1, 2, 1, 2])
    """
    counts: tuple[int, ...] = given(times, dims)
    return repeat(input, (1,) * (len(input._spec.shape) - len(counts)) + counts)


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
        return _unshared(
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
    return pick(input, dim, e.cast(nonzero.repeated_places(counts, output_size), int64))


# ---- windows ----


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
