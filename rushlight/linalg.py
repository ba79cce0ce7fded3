"""Linear algebra under PyTorch's names.

Owns: signatures that differ from the ops of the same name.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from rushlight.core.errors import LinAlgError, RushlightError, ShapeError
from rushlight.ops.create import like
from rushlight.ops.linalg import decompositions, matrix_functions, solve as solving
from rushlight.ops.linalg.decompositions import cholesky_ex, householder_product, svdvals
from rushlight.ops.linalg.eigenvalues import eig, eigh, eigvals, eigvalsh
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.linalg.matrix_functions import (
    cond,
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lstsq,
    matrix_exp,
    matrix_norm,
    matrix_power,
    matrix_rank,
    pinv,
    tensorinv,
    tensorsolve,
)
from rushlight.ops.linalg.products import multi_dot
from rushlight.ops.linalg.solve import (
    det,
    inv,
    inv_ex,
    lu_factor,
    lu_factor_ex,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
)
from rushlight.ops.registry import REGISTRY as _REGISTRY, stores as _stores
from rushlight.ops.surface.shortcuts import vecdot as _vecdot, vector_norm
from rushlight.tensor import Tensor

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

# Functions of which the package has an older one under the same name with another signature.
cholesky = decompositions.linalg_cholesky
lu = solving.linalg_lu
lu_solve = solving.linalg_lu_solve
norm = matrix_functions.linalg_norm
qr = decompositions.linalg_qr
svd = decompositions.linalg_svd

# Those that are remembered are called by their memo.
_SHORT = (
    "cholesky",
    "eigh",
    "inv",
    "lu_factor",
    "matrix_norm",
    "norm",
    "pinv",
    "qr",
    "solve",
    "solve_triangular",
)
globals().update({name: _REGISTRY[f"linalg_{name}"].function for name in (*_SHORT, "svdvals")})
globals().update({name: _REGISTRY[name].function for name in ("det", "matrix_power", "slogdet")})
_cross = _REGISTRY["cross"].function


@_stores("exact")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along a dimension, the others broadcast."""
    return _vecdot(x, y, dim)


@_stores("exact")
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross product of 3-vectors along a dimension."""
    if input.ndim and other.ndim and not input.shape[dim] == other.shape[dim] == 3:
        raise ShapeError(
            f"linalg.cross: both must have size 3 along {dim}, got {input._spec!r} and "
            f"{other._spec!r}"
        )
    return _cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, along a new last dimension; a view."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element along a new last dimension."""
    x = x if x.shape else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RushlightError(f"vander: N must be greater than 1, got {count}")
    return like.powers(x, count, True)  # type: ignore[return-value]
