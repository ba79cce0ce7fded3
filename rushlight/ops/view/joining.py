"""Joining and splitting under NumPy's names, grids, and copies with a view replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import int64, promote
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Shape, wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY, composite, register, second_name
from rushlight.ops.view import reshaping, views
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

# ---- splitting ----


def _cuts(x: Value, given: Any, op: str) -> int | tuple[int, ...]:
    """A number of parts, or the positions of cuts; a tensor of either is read."""
    if isinstance(given, Value):
        if given._spec.dtype is not int64 or len(given._spec.shape) > 1:
            raise DTypeError(
                f"{op}: places must be an int64 tensor of at most one dimension, got "
                f"{given._spec!r}"
            )
        numbers = read_back.read(given)
        return tuple(numbers) if given._spec.shape else int(numbers[0])
    return given if isinstance(given, int) else tuple(given)


# PyTorch's names of `indices_or_sections` in its overloads.
_OVERLOADS = dict.fromkeys(
    ("sections", "indices", "tensor_indices_or_sections"), "indices_or_sections"
)


@composite("tensor_split", pure=True, fresh=True, keywords=_OVERLOADS)
def tensor_split(
    input: Value, indices_or_sections: int | Sequence[int] | Value, dim: int = 0
) -> tuple[Value, ...]:
    """A dimension in so many parts, the first ones larger by one, or cut at positions; views.

    Example:
        >>> torch.tensor_split(torch.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if not input._spec.shape:
        raise ShapeError("tensor_split: at least one dimension is needed, got a 0-dim tensor")
    dim = wrap_dim(dim, len(input._spec.shape), "tensor_split")
    size = input._spec.shape[dim]
    cuts = _cuts(input, indices_or_sections, "tensor_split")
    if isinstance(cuts, int):
        if cuts <= 0:
            raise ShapeError(f"tensor_split: the number of parts must be positive, got {cuts}")
        if cuts > size:
            views.check_parts("tensor_split", cuts)
        small, more = divmod(size, cuts)
        cuts = tuple(i * small + min(i, more) for i in range(1, cuts))
    ends = [slice(None, c).indices(size)[1] for c in cuts]
    spans = list(zip([0, *ends], [*ends, size], strict=True))
    if all(start <= end for start, end in spans):
        return views.parts(input, dim, [end - start for start, end in spans])
    return tuple(views.slice_dim(input, dim, start, max(0, end - start)) for start, end in spans)


def _split_along(name: str, least: int, dim_of: Callable[[int], int]) -> None:
    def function(
        input: Value, indices_or_sections: int | Sequence[int] | Value
    ) -> tuple[Value, ...]:
        rank = len(input._spec.shape)
        if rank < least:
            raise ShapeError(f"{name}: at least {least} dimensions are needed, got {input._spec!r}")
        dim = dim_of(rank)
        if isinstance(indices_or_sections, int):
            parts = indices_or_sections
            if parts <= 0 or input._spec.shape[dim] % parts:
                raise ShapeError(
                    f"{name}: dimension {dim} of {input._spec!r} does not split into {parts} equal "
                    "parts"
                )
        return tensor_split(input, indices_or_sections, dim)

    doc = "Equal parts of a dimension, or parts cut at places; views."
    register(name, function, doc, fresh=True, keywords=_OVERLOADS)


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@composite("split_with_sizes", fresh=True)
def split_with_sizes(input: Value, split_sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    """Parts of the given sizes; views."""
    return views.split(input, list(split_sizes), dim)


@composite("unsafe_split")
def unsafe_split(input: Value, split_size: int, dim: int = 0) -> tuple[Value, ...]:
    """`split`; here writes to a part are always safe."""
    return views.split(input, split_size, dim)


@composite("unsafe_chunk")
def unsafe_chunk(input: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """`chunk`; here writes to a part are always safe."""
    return views.chunk(input, chunks, dim)


# ---- joining ----


def _grown(op: str, name: str, tensors: Sequence[Value]) -> list[Value]:
    listed = views.several(op, tensors)
    if not listed:
        raise ShapeError(f"{op}: expected at least one tensor, got an empty list")
    return [REGISTRY[name].function(v) for v in listed]


@composite("hstack", method=False, out="cast", pure=True)
def hstack(tensors: Sequence[Value]) -> Value:
    """Concatenated along the first dimension of vectors, the second of others."""
    values = _grown("hstack", "atleast_1d", tensors)
    return views.cat(values, 0 if len(values[0]._spec.shape) == 1 else 1)


@composite("vstack", method=False, out="cast", pure=True)
def vstack(tensors: Sequence[Value]) -> Value:
    """Concatenated along the first dimension; vectors are rows."""
    return views.cat(_grown("vstack", "atleast_2d", tensors), 0)


@composite("row_stack", method=False, out="cast")
def row_stack(tensors: Sequence[Value]) -> Value:
    """`vstack` under another name."""
    return vstack(tensors)


@composite("dstack", method=False, out="cast", pure=True)
def dstack(tensors: Sequence[Value]) -> Value:
    """Concatenated along the third dimension."""
    return views.cat(_grown("dstack", "atleast_3d", tensors), 2)


@composite("column_stack", method=False, out="cast", pure=True)
def column_stack(tensors: Sequence[Value]) -> Value:
    """Concatenated along the second dimension; vectors are columns."""
    listed = views.several("column_stack", tensors)
    values = [v if len(v._spec.shape) > 1 else views.reshape(v, (v._spec.numel, 1)) for v in listed]
    return hstack(values)


second_name("concat", views.cat, method=False)
second_name("concatenate", views.cat, method=False)


@composite("block_diag", method=False, pure=True)
def block_diag(*tensors: Value) -> Value:
    """Matrices along a diagonal, zeros elsewhere; vectors are rows.

    Example:
        >>> torch.block_diag(torch.ones(1, 2), torch.ones(1, 1))
        tensor([[1., 1., 0.],
                [0., 0., 1.]])
    """
    blocks = [REGISTRY["atleast_2d"].function(v) for v in tensors] or [creation.zeros(1, 0)]
    common = blocks[0]._spec.dtype
    for v in blocks:
        if len(v._spec.shape) != 2:
            raise ShapeError(f"block_diag: blocks have at most 2 dimensions, got {v._spec!r}")
        common = promote(common, v._spec.dtype)
    rows, columns = sum(v._spec.shape[0] for v in blocks), sum(v._spec.shape[1] for v in blocks)
    strips = []
    at = 0
    for v in blocks:
        n, m = v._spec.shape
        seen = ((n, m), (columns, 1), at)
        strips.append(
            views.place_view(
                e.cast(v, common), (n, columns), seen if n * m else ((n, m), (columns, 1), 0)
            )
        )
        at += m
    out = views.cat(strips, 0)
    assert out._spec.shape == (rows, columns)
    return out


# ---- grids ----


@composite("meshgrid", method=False, pure=True)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Value, ...]:
    """Vectors as coordinates of a grid: "ij" (rows first) or "xy"; views.

    Example:
        >>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4]), indexing='ij')[0]
        tensor([[1, 1],
                [2, 2]])
    """
    values = [
        reshaping.ravel(v) if len(v._spec.shape) < 2 else v for v in reshaping.listed(tensors)
    ]
    if not values or any(len(v._spec.shape) != 1 for v in values):
        raise ShapeError("meshgrid: takes at least one tensor, each a vector or a number")
    if any(v._spec.dtype is not values[0]._spec.dtype for v in values):
        raise DTypeError(
            f"meshgrid: one type for all is needed, got {', '.join(repr(v._spec) for v in values)}"
        )
    if indexing not in (None, "ij", "xy"):
        raise ShapeError(f"meshgrid: indexing is 'ij' or 'xy', got {indexing!r}")
    swap = indexing == "xy" and len(values) > 1
    if swap:
        values[:2] = values[1::-1]
    shape = tuple(v._spec.numel for v in values)
    lines = (
        views.reshape(v, (1,) * i + (-1,) + (1,) * (len(values) - i - 1))
        for i, v in enumerate(values)
    )
    grids = [views.expand(line, shape) for line in lines]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


@composite("cartesian_prod", method=False)
def cartesian_prod(*tensors: Value) -> Value:
    """All tuples of elements of several vectors, as rows.

    Example:
        >>> torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4]))
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]])
    """
    if any(len(v._spec.shape) != 1 for v in tensors):
        raise ShapeError("cartesian_prod: takes vectors")
    if len(tensors) == 1:
        return tensors[0]
    return views.stack([views.reshape(grid, (grid._spec.numel,)) for grid in meshgrid(*tensors)], 1)


# ---- a copy of the input with a view of it replaced ----


def replaced(
    op: str, x: Value, src: Value, seen_of: Callable[[Shape, Shape], views.View3]
) -> Value:
    """x, in its own layout where that is dense, with what `seen_of` its strides sees replaced."""
    if x._spec.hidden or not x._spec.dense:
        x = views.contiguous(x)
    seen = seen_of(x._spec.shape, x._spec.strides)
    if src._spec.shape != tuple(seen[0]):
        raise ShapeError(
            f"{op}: src {src._spec!r} must have the shape {list(seen[0])} of what it replaces"
        )
    return call.call(views.write_view, (x, e.cast(src, x._spec.dtype)), tuple(seen))


@composite("diagonal_scatter")
def diagonal_scatter(
    input: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """The input with a diagonal replaced."""
    shape = input._spec.shape
    first, second = (wrap_dim(d, len(shape), "diagonal_scatter") for d in (dim1, dim2))
    return replaced(
        "diagonal_scatter",
        input,
        src,
        lambda shape, strides: reshaping.diagonal_of(shape, strides, offset, first, second),
    )


@composite("select_scatter")
def select_scatter(input: Value, src: Value, dim: int, index: int) -> Value:
    """The input with one index of a dimension replaced.

    Example:
        >>> torch.select_scatter(torch.zeros(2, 2), torch.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    shape = input._spec.shape
    dim = wrap_dim(dim, len(shape), "select_scatter")
    size = shape[dim] if shape else 0
    if not -size <= index < size:
        raise IndexError(
            f"select_scatter: index {index} is out of range for dimension {dim} of size {size}"
        )
    return replaced(
        "select_scatter",
        input,
        src,
        lambda shape, strides: views.selected(shape, strides, dim, index % size),
    )


@composite("slice_scatter", out="exact")
def slice_scatter(
    input: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """The input with every step-th index of a dimension, from start to end, replaced.

    Example:
        >>> torch.slice_scatter(torch.zeros(4), torch.ones(2), start=1, end=3)
        tensor([0., 1., 1., 0.])
    """
    shape = input._spec.shape
    dim = wrap_dim(dim, len(shape), "slice_scatter")
    if step <= 0:
        raise ShapeError(f"slice_scatter: the step must be positive, got {step}")
    first, last, _ = slice(start, end, step).indices(shape[dim])
    count = max(0, -(-(last - first) // step))
    return replaced(
        "slice_scatter",
        input,
        src,
        lambda shape, strides: views.sliced(shape, strides, dim, first, count, step),
    )
