"""Sparse tensors with rearranged or selected indices, and from dense ones.

See Note [Sparse operands].
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import LayoutError, RushlightError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.view import views
from rushlight.sparse.coo import SparseTensor, as_sparse, brief, make, shared, words
from rushlight.sparse.linear_index import coordinates, joined


def permute(input: Any, *dims: Any) -> SparseTensor:
    """The dimensions in another order; sparse ones stay in front of dense ones."""
    x = as_sparse("permute", input)
    given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [wrap_dim(d, x.ndim, "permute") for d in given]
    count = x.sparse_dim()
    if sorted(order) != list(range(x.ndim)):
        raise RushlightError(
            f"permute: {list(given)} does not name each dimension of {brief(x)} once"
        )
    if any(d >= count for d in order[:count]):
        raise LayoutError(
            f"permute: {order} mixes the {count} sparse dimensions of {brief(x)} with dense ones"
        )
    values = (
        x._of.permute(0, *[d - count + 1 for d in order[count:]])
        if x.dense_dim()
        else shared(x._of)
    )
    same = order[:count] == list(range(count))
    at = x._at if same else views.stack([x._at[d] for d in order[:count]])
    return make(at, values, [x._size[d] for d in order], (same and x._coalesced) or x._nnz() < 2)


def transpose(input: Any, dim0: int, dim1: int) -> SparseTensor:
    """Two dimensions exchanged."""
    order = list(range(input.ndim))
    first, second = (wrap_dim(d, input.ndim, "transpose") for d in (dim0, dim1))
    order[first], order[second] = second, first
    return permute(input, order)


def t(input: Any) -> SparseTensor:
    """The transpose of a matrix."""
    if input.ndim > 2:
        raise ShapeError(f"t: takes a matrix, got {words(input)}; use .transpose(dim0, dim1)")
    return transpose(input, 0, 1) if input.ndim == 2 else permute(input, 0)


def unsqueeze(input: Any, dim: int) -> SparseTensor:
    """A new dimension of size 1."""
    x = as_sparse("unsqueeze", input)
    at = wrap_dim(dim, x.ndim + 1, "unsqueeze")
    shape = [*x._size[:at], 1, *x._size[at:]]
    count = x.sparse_dim()
    if at > count:
        return make(x._at, x._of.unsqueeze(at - count + 1), shape, x._coalesced)
    rows = [x._at[d] for d in range(count)]
    return make(
        views.stack([*rows[:at], rows[0] * 0, *rows[at:]]), shared(x._of), shape, x._coalesced
    )


def index_select(input: Any, dim: int, index: Any) -> SparseTensor:
    """The slices of a dimension at the indices of a vector."""
    x = as_sparse("index_select", input)
    at = wrap_dim(dim, x.ndim, "index_select")
    shape = [*x._size[:at], index.shape[0], *x._size[at + 1 :]]
    count = x.sparse_dim()
    if at >= count:
        return make(x._at, x._of.index_select(at - count + 1, index), shape, x._coalesced)
    _check_inside(x, at, index)
    left, right = joined(index, x._at[at])
    rows = [left if d == at else x._at[d].index_select(0, right) for d in range(count)]
    return make(views.stack(rows), x._of.index_select(0, right), shape, at == 0 and x._coalesced)


def _check_inside(x: SparseTensor, dim: int, index: Any) -> None:
    if index.shape[0] and not 0 <= index.amin().item() <= index.amax().item() < x._size[dim]:
        raise IndexError(
            f"index_select: an index is out of range for dimension {dim} of {brief(x)}"
        )


def select(input: Any, dim: int, index: int) -> Any:
    """One slice along a dimension; dense where no sparse dimension is left."""
    x = as_sparse("select", input)
    at, index = wrap_dim(dim, x.ndim, "select"), operator.index(index)
    if not -x._size[at] <= index < x._size[at]:
        raise IndexError(f"select: index {index} is out of range for dimension {at} of {brief(x)}")
    index += x._size[at] if index < 0 else 0
    shape = [*x._size[:at], *x._size[at + 1 :]]
    count = x.sparse_dim()
    if at >= count:
        return make(x._at, x._of.select(at - count + 1, index), shape, x._coalesced)
    there = (x._at[at] == index).nonzero().reshape(-1)
    values = x._of.index_select(0, there)
    rows = [x._at[d].index_select(0, there) for d in range(count) if d != at]
    return make(views.stack(rows), values, shape, x._coalesced) if rows else values.sum(0)


def get_item(self: Any, key: Any) -> Any:
    """x[i], x[i, j]: integers and full slices."""
    out, dim = self, 0
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, slice) and part == slice(None):
            dim += 1
        elif isinstance(part, int) and not isinstance(part, bool):
            out = out.select(dim, part)
        else:
            raise LayoutError(
                f"[]: {brief(self)} takes whole numbers and ':', got {part!r}; use .index_select"
            )
    return out


def cat(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Sparse tensors concatenated along a dimension."""
    parts = [as_sparse("cat", x) for x in tensors]
    first = parts[0]
    at = wrap_dim(dim, first.ndim, "cat")
    count = first.sparse_dim()
    for x in parts:
        fits = (
            x.ndim == first.ndim
            and x._size[:at] + x._size[at + 1 :] == first._size[:at] + first._size[at + 1 :]
        )
        if not fits or x.sparse_dim() != count or at >= count:
            raise ShapeError(
                f"cat: {brief(first)} and {brief(x)} do not fit along the sparse dimension {at}"
            )
    moved, start = [], 0
    for x in parts:
        rows = [x._at[d] + start if d == at else x._at[d] for d in range(count)]
        moved.append(views.stack(rows))
        start += x._size[at]
    values = views.cat([x._of for x in parts])
    ordered = at == 0 and all(x._coalesced for x in parts)
    return make(
        views.cat(moved, 1), values, [*first._size[:at], start, *first._size[at + 1 :]], ordered
    )


def stack(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Sparse tensors of one shape stacked along a new dimension."""
    if any(x.shape != tensors[0].shape for x in tensors):
        raise ShapeError(
            f"stack: tensors of one shape are needed, got {[words(x) for x in tensors]}"
        )
    at = wrap_dim(dim, tensors[0].ndim + 1, "stack")
    return cat([unsqueeze(x, at) for x in tensors], at)


def zeros_like(
    input: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A sparse tensor of the shape without values."""
    at, of = input._at[:, :0], input._of[:0].detach().to(device, dtype)
    return make(at.to(of.device), of, input._size, True).requires_grad_(requires_grad)


# ---- from dense ----


def to_sparse(
    self: Any, sparse_dim: int | None = None, *, layout: Any = None, **named: Any
) -> SparseTensor:
    """The elements that are not zero, with their coordinates.

    The first sparse_dim dimensions are sparse.
    """
    if layout is creation.sparse_csr:
        return self.to_sparse_csr()
    if layout not in (None, creation.sparse_coo) or any(
        value is not None for value in named.values()
    ):
        raise LayoutError(f"to_sparse: only the layout sparse_coo is made, got {layout!r} {named}")
    count = self.ndim if sparse_dim is None else sparse_dim
    if not min(1, self.ndim) <= count <= self.ndim:
        raise ShapeError(
            f"to_sparse: sparse_dim must be 1 to {self.ndim} for {self._spec!r}, got {count}"
        )
    sizes = self.shape[:count]
    table = self.reshape((math.prod(sizes), *self.shape[count:]))
    there = table.detach() != 0
    there = there.any(tuple(range(1, there.ndim))) if there.ndim > 1 else there
    line = there.nonzero().reshape(-1)
    return make(coordinates(line, sizes), table.index_select(0, line), self.shape, True)


def to_dense(self: Any, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Any:
    """The tensor itself: it is dense."""
    return self if dtype is None else self.to(dtype)
