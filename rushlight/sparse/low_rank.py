"""The largest singular values of sparse matrices, by products with a few dense vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError, ShapeError
from rushlight.ops.linalg.decompositions import SVD, linalg_qr, linalg_svd
from rushlight.ops.linalg.low_rank import check_iterations
from rushlight.ops.random.random import randn
from rushlight.sparse.coo import FUNCTIONS, as_sparse, brief
from rushlight.sparse.functions import mm, sum, transpose

Product = Callable[[Any], Any]


def _matrix(op: str, given: Any, q: int) -> Any:
    a = as_sparse(op, given)
    if a.ndim != 2:
        raise ShapeError(f"{op}: takes one sparse matrix, got {brief(a)}")
    if not 0 <= q <= min(a.shape):
        raise RushlightError(f"{op}: q is at most the smaller size of {brief(a)}, got {q}")
    return a


def _decomposed(a: Any, times: Product, back: Product, q: int, niter: int) -> SVD:
    """The decomposition of the matrix that `times` multiplies by.

    `back` multiplies by its adjoint.
    """
    check_iterations("svd_lowrank", niter)
    rows, columns = a.shape
    if rows < columns:
        v, s, u = _decomposed(transpose(a, 0, 1), back, times, q, niter)
        return SVD(u, s, v)
    start: Any = randn((columns, q), dtype=a.dtype, device=a.device)
    basis = linalg_qr(times(start)).Q
    for _ in range(niter):
        basis = linalg_qr(back(basis)).Q
        basis = linalg_qr(times(basis)).Q
    v, s, uh = linalg_svd(back(basis), False)
    return SVD(basis.matmul(uh.mH), s, v)


def _products(a: Any) -> tuple[Product, Product]:
    turned = transpose(a, 0, 1)
    return lambda x: mm(a, x), lambda x: mm(turned, x.conj()).conj()


def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> SVD:
    """Approximately the q largest singular values of A - M, with U and V."""
    q = 6 if q is None else q
    a = _matrix("svd_lowrank", A, q)
    times, back = _products(a)
    if M is None:
        return _decomposed(a, times, back, q, 2 if niter is None else niter)
    return _decomposed(
        a,
        lambda x: times(x) - M.matmul(x),
        lambda x: back(x) - M.mH.matmul(x),
        q,
        2 if niter is None else niter,
    )


def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> SVD:
    """Approximately the q largest principal components of the rows of A.

    Their mean is subtracted without a dense matrix.
    """
    q = min(6, *A.shape) if q is None else q
    a = _matrix("pca_lowrank", A, q)
    times, back = _products(a)
    if not center:
        return _decomposed(a, times, back, q, niter)
    mean = sum(a, 0).to_dense().unsqueeze(0) / a.shape[0]
    return _decomposed(
        a,
        lambda x: times(x) - mean.matmul(x),
        lambda x: back(x) - mean.mH.matmul(x.sum(0, True)),
        q,
        niter,
    )


def install() -> None:
    FUNCTIONS.update(svd_lowrank=svd_lowrank, pca_lowrank=pca_lowrank)
