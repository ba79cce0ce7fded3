"""The largest singular values and eigenvalues of large matrices, by iteration on a few vectors.

What is found is compared with nothing: the more values are asked for, and the further they lie apart, the better they are.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops import elementwise as e, random, reductions
from rushlight.ops.decompositions import SVD, linalg_qr, linalg_svd
from rushlight.ops.matrices import adjoint, check_matrices, product
from rushlight.ops.registry import composite
from rushlight.tape.value import Value


def _range(a: Value, q: int, niter: int) -> Value:
    """Orthonormal columns that nearly span where `a` is largest (Halko, Martinsson and Tropp, algorithm 4.4)."""
    spec = a.spec
    start: Any = random.randn((spec.shape[-1], q), dtype=spec.dtype, device=spec.device.device.name)
    basis = linalg_qr(product(a, start)).Q
    for _ in range(niter):
        basis = linalg_qr(product(adjoint(a), basis)).Q
        basis = linalg_qr(product(a, basis)).Q
    return basis


def _lowrank(a: Value, q: int, niter: int) -> SVD:
    if a.spec.shape[-2] < a.spec.shape[-1]:
        v, s, u = _lowrank(adjoint(a), q, niter)
        return SVD(u, s, v)
    basis = _range(a, q, niter)
    u, s, vh = linalg_svd(product(adjoint(basis), a), False)
    return SVD(product(basis, u), s, adjoint(vh))


@composite("svd_lowrank", method=False)
def svd_lowrank(A: Value, q: int | None = 6, niter: int | None = 2, M: Value | None = None) -> SVD:
    """About the q largest singular values of A - M, with U and V, by random projection and `niter` iterations."""
    check_matrices("svd_lowrank", A)
    rank = 6 if q is None else q
    if not 0 <= rank <= min(A.spec.shape[-2:]):
        raise RushlightError(f"svd_lowrank: q is at most the smaller size of {A.spec!r}, got {q}")
    return _lowrank(A if M is None else e.sub(A, M), rank, 2 if niter is None else niter)


@composite("pca_lowrank", method=False)
def pca_lowrank(A: Value, q: int | None = None, center: bool = True, niter: int = 2) -> SVD:
    """About the q largest principal components of the rows of A: svd_lowrank of A without its mean row."""
    check_matrices("pca_lowrank", A)
    m, n = A.spec.shape[-2:]
    rank = min(6, m, n) if q is None else q
    if not 0 <= rank <= min(m, n) or niter < 0:
        raise ValueError(
            f"pca_lowrank: q is from 0 to the smaller size of {A.spec!r}, niter not negative; got {q}, {niter}"
        )
    return _lowrank(e.sub(A, reductions.mean(A, -2, True)) if center else A, rank, niter)
