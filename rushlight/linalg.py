"""Linear algebra under PyTorch's names.

Owns: signatures that differ from the ops of the same name, norms of matrices.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import wrap_dim
from rushlight.ops import elementwise as e, making, products, reductions, statistics
from rushlight.ops.matmul import matmul as matmul
from rushlight.ops.products import matrix_power as matrix_power, multi_dot as multi_dot
from rushlight.ops.statistics import vector_norm as vector_norm
from rushlight.tensor import Tensor


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along a dimension, the others broadcast."""
    return products.vecdot(x, y, dim)  # type: ignore[return-value]


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross product of 3-vectors along a dimension."""
    return products.cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Where two dimensions have one index, along a new last dimension; a view."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element along a new last dimension."""
    x = x if x.shape else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RushlightError(f"vander: N must be greater than 1, got {count}")
    return making.powers(x, count, True)  # type: ignore[return-value]


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of matrices: "fro", or the largest (1, inf) or smallest (-1, -inf) sum of columns or rows."""
    if A.dtype.kind != "f":
        raise DTypeError(f"matrix_norm: takes floating point, got {A.spec!r}; cast with .float() first")
    if A.ndim < 2 or len(dim) != 2:
        raise ShapeError(f"matrix_norm: two dimensions of a matrix are needed, got {list(dim)} of {A.spec!r}")
    rows, columns = (wrap_dim(d, A.ndim, "matrix_norm") for d in dim)
    if rows == columns:
        raise ShapeError(f"matrix_norm: the dimensions must differ, got {list(dim)}")
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return statistics.vector_norm(A, 2, (rows, columns), keepdim)  # type: ignore[return-value]
    if ord in ("nuc", 2, -2):
        raise RushlightError(f"matrix_norm: ord {ord!r} needs singular values, which are not supported yet")
    if ord not in (1, -1, math.inf, -math.inf):
        raise RushlightError(f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")
    summed, sought = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reductions.sum(e.abs(A), summed, True)
    best = (reductions.amax if ord > 0 else reductions.amin)(sums, sought, True)
    return best if keepdim else reductions.sum(best, (rows, columns))


def norm(
    A: Tensor,
    ord: Any = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of vectors where one dimension is named or found, of matrices where two are."""
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord is not None and (len(dims) if dims is not None else A.ndim) == 2:
        return matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    if isinstance(ord, str) or (ord is not None and dims is None and A.ndim > 2):
        raise RushlightError(f"norm: ord {ord!r} needs one or two dimensions, got {dim!r} of {A.spec!r}")
    power = 2 if ord is None else ord
    return statistics.vector_norm(A, power, dims, keepdim, dtype=dtype)  # type: ignore[return-value]
