"""More views and repetitions of one tensor; each is a view where PyTorch's is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import (
    Shape,
    broadcast_shapes,
    contiguous_strides,
    numel,
    wrap_dim,
)
from rushlight.ops.family.view import View, shift_last_two
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite, register
from rushlight.ops.view import views
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


# ---- order of dimensions ----


@composite("movedim", pure=True)
def movedim(input: Value, source: Dims, destination: Dims) -> Value:
    """Dimensions at `source` moved to `destination`, the others in their order; a view.

    Args:
        source: The dimensions that move.

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
    """`movedim` under NumPy's name.

    Args:
        source: The dimensions that move.
    """
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
    """A matrix transposed; vectors and numbers unchanged.

    Example:
        >>> torch.zeros(2, 3).t().shape
        rushlight.Size([3, 2])
    """
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
    """The shape of another tensor, without a copy.

    Example:
        >>> torch.arange(6).view_as(torch.zeros(2, 3)).shape
        rushlight.Size([2, 3])
    """
    return views.view(input, other._spec.shape)


@composite("expand_as", top=False, pure=True, fresh=True)
def expand_as(input: Value, other: Value) -> Value:
    """Expanded to the shape of another tensor.

    Example:
        >>> torch.zeros(1, 3).expand_as(torch.zeros(2, 3)).shape
        rushlight.Size([2, 3])
    """
    return views.expand(input, other._spec.shape)


@composite("broadcast_to", pure=True, fresh=True)
def broadcast_to(input: Value, *size: int | Sequence[int]) -> Value:
    """Expanded to a shape."""
    return views.expand(input, *size)


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


def two_dims(op: str, dim1: int, dim2: int, rank: int) -> tuple[int, int]:
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
    first, second = two_dims("diagonal", dim1, dim2, len(input._spec.shape))
    return call.call(_diagonal, (input,), (offset, first, second))


@composite("diag_embed", pure=True)
def diag_embed(input: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """The last dimension on a diagonal of two new ones, zeros elsewhere.

    Example:
        >>> torch.diag_embed(torch.ones(2, 3)).shape
        rushlight.Size([2, 3, 3])
    """
    shape = input._spec.shape
    first, second = two_dims("diag_embed", dim1, dim2, len(shape) + 1)
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


# ---- repetition ----


def unshared(out: Value, input: Value) -> Value:
    """A copy where the result would share the input's memory."""
    return e.clone(out) if out._memory is input._memory else out


def _repeated(x: Value, times: Sequence[int]) -> Value:
    """Each dimension repeated `times`, by expanding a new one before it."""
    shape = x._spec.shape
    apart = tuple(n for size in shape for n in (1, size))
    wide = tuple(n for r, size in zip(times, shape, strict=True) for n in (r, size))
    final = tuple(r * size for r, size in zip(times, shape, strict=True))
    if numel(final) == 0:
        return views.reshape(e.clone(views.expand(views.reshape(x, apart), wide)), final)
    return unshared(views.reshape(views.expand(views.reshape(x, apart), wide), final), x)


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
