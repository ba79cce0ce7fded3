# Written by tools/stubs.py: `make stubs`.
from builtins import bool as _bool, float as _float, int as _int
from collections.abc import Sequence

from rushlight.core.dtypes import DType as _dtype
from rushlight.core.errors import LinAlgError as LinAlgError
from rushlight.tensor import (
    LU,
    QR,
    CholeskyEx,
    Eig,
    Eigh,
    InvEx,
    LDLFactor,
    LDLFactorEx,
    LinalgSVD,
    Lstsq,
    LUFactor,
    LUFactorEx,
    SLogDet,
    SolveEx,
    Tensor,
)

def cholesky(A: Tensor, *, upper: _bool = False, out: Tensor | None = None) -> Tensor: ...
def cholesky_ex(
    A: Tensor,
    *,
    upper: _bool = False,
    check_errors: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> CholeskyEx: ...
def cond(
    A: Tensor, p: _float | str | Tensor | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def cross(input: Tensor, other: Tensor, *, dim: _int = -1, out: Tensor | None = None) -> Tensor: ...
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def diagonal(A: Tensor, *, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor: ...
def eig(A: Tensor, *, out: Sequence[Tensor] | None = None) -> Eig: ...
def eigh(A: Tensor, UPLO: str = "L", *, out: Sequence[Tensor] | None = None) -> Eigh: ...
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor: ...
def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def inv_ex(
    A: Tensor, *, check_errors: _bool = False, out: Sequence[Tensor] | None = None
) -> InvEx: ...
def ldl_factor(
    A: Tensor, *, hermitian: _bool = False, out: Sequence[Tensor] | None = None
) -> LDLFactor: ...
def ldl_factor_ex(
    A: Tensor,
    *,
    hermitian: _bool = False,
    check_errors: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> LDLFactorEx: ...
def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: _bool = False, out: Tensor | None = None
) -> Tensor: ...
def lstsq(
    A: Tensor,
    B: Tensor,
    rcond: _float | None = None,
    *,
    driver: str | None = None,
    out: Sequence[Tensor] | None = None,
) -> Lstsq: ...
def lu(A: Tensor, *, pivot: _bool = True, out: Sequence[Tensor] | None = None) -> LU: ...
def lu_factor(
    A: Tensor, *, pivot: _bool = True, out: Sequence[Tensor] | None = None
) -> LUFactor: ...
def lu_factor_ex(
    A: Tensor,
    *,
    pivot: _bool = True,
    check_errors: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> LUFactorEx: ...
def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: _bool = True,
    adjoint: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_exp(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_norm(
    A: Tensor,
    ord: _float | str = "fro",
    dim: Sequence[_int] = (-2, -1),
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor: ...
def matrix_rank(
    A: Tensor,
    tol: Tensor | _float | None = None,
    hermitian: _bool = False,
    *,
    atol: Tensor | _float | None = None,
    rtol: Tensor | _float | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def norm(
    A: Tensor,
    ord: _float | str | None = None,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def pinv(
    A: Tensor,
    rcond: Tensor | _float | None = None,
    hermitian: _bool = False,
    *,
    atol: Tensor | _float | None = None,
    rtol: Tensor | _float | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def qr(A: Tensor, mode: str = "reduced", *, out: Sequence[Tensor] | None = None) -> QR: ...
def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> SLogDet: ...
def solve(A: Tensor, B: Tensor, *, left: _bool = True, out: Tensor | None = None) -> Tensor: ...
def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: _bool = True,
    check_errors: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> SolveEx: ...
def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: _bool,
    left: _bool = True,
    unitriangular: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def svd(
    A: Tensor,
    full_matrices: _bool = True,
    *,
    driver: str | None = None,
    out: Sequence[Tensor] | None = None,
) -> LinalgSVD: ...
def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor: ...
def tensorinv(A: Tensor, ind: _int = 2, *, out: Tensor | None = None) -> Tensor: ...
def tensorsolve(
    A: Tensor, B: Tensor, dims: Sequence[_int] | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def vander(x: Tensor, N: _int | None = None) -> Tensor: ...
def vecdot(x: Tensor, y: Tensor, *, dim: _int = -1, out: Tensor | None = None) -> Tensor: ...
def vector_norm(
    x: Tensor,
    ord: _float | str = 2,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
