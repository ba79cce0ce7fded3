"""The largest singular values and eigenvalues of large matrices, by iteration on a few vectors.

The accuracy depends on the matrix: the larger the gaps between the values, the fewer iterations are
needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core.dtypes import float32, real_type
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.ops.family.read_back import read
from rushlight.ops.linalg.decompositions import (
    SVD,
    is_recorded,
    linalg_cholesky,
    linalg_qr,
    linalg_svd,
)
from rushlight.ops.linalg.eigenvalues import eigh
from rushlight.ops.linalg.matrices import adjoint, check_matrices, diagonal_of, narrow, product, row
from rushlight.ops.linalg.solve import right_triangular, triangular
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random import random
from rushlight.ops.reduce import reductions, statistics
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts, views
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

MOST_ITERATIONS = 10_000  # some seconds for small matrices; later convergence is unlikely


def check_iterations(op: str, niter: int) -> None:
    if not niter <= MOST_ITERATIONS:
        raise RushlightError(f"{op}: niter is at most {MOST_ITERATIONS}, got {niter}")


def _range(a: Value, q: int, niter: int) -> Value:
    """Orthonormal columns that approximate the range of `a` (Halko et al., algorithm 4.4)."""
    check_iterations("svd_lowrank", niter)
    spec = a._spec
    start: Any = random.randn((spec.shape[-1], q), dtype=spec.dtype, device=spec.device.device.name)
    basis = linalg_qr(product(a, start)).Q
    for _ in range(niter):
        basis = linalg_qr(product(adjoint(a), basis)).Q
        basis = linalg_qr(product(a, basis)).Q
    return basis


def _lowrank(a: Value, q: int, niter: int) -> SVD:
    if a._spec.shape[-2] < a._spec.shape[-1]:
        v, s, u = _lowrank(adjoint(a), q, niter)
        return SVD(u, s, v)
    basis = _range(a, q, niter)
    u, s, vh = linalg_svd(product(adjoint(basis), a), False)
    return SVD(product(basis, u), s, adjoint(vh))


@composite("svd_lowrank", method=False)
@random.drawing
def svd_lowrank(A: Value, q: int | None = 6, niter: int | None = 2, M: Value | None = None) -> SVD:
    """Approximately the q largest singular values of A - M, with U and V.

    They come from random projection and `niter` iterations.

    Args:
        q: The rank of the result.
    """
    check_matrices("svd_lowrank", A)
    rank = 6 if q is None else q
    if not 0 <= rank <= min(A._spec.shape[-2:]):
        raise RushlightError(f"svd_lowrank: q is at most the smaller size of {A._spec!r}, got {q}")
    return _lowrank(A if M is None else e.sub(A, M), rank, 2 if niter is None else niter)


@composite("pca_lowrank", method=False)
@random.drawing
def pca_lowrank(A: Value, q: int | None = None, center: bool = True, niter: int = 2) -> SVD:
    """Approximately the q largest principal components of A: svd_lowrank less the mean row.

    Args:
        q: The rank of the result.
        center: Subtract the mean of each column first.
    """
    check_matrices("pca_lowrank", A)
    m, n = A._spec.shape[-2:]
    rank = min(6, m, n) if q is None else q
    if not 0 <= rank <= min(m, n) or niter < 0:
        raise ValueError(
            f"pca_lowrank: q is from 0 to the smaller size of {A._spec!r}, niter not negative; got "
            f"{q}, {niter}"
        )
    return _lowrank(e.sub(A, reductions.mean(A, -2, True)) if center else A, rank, niter)


# ---- a few eigenvalues ----


class Eigenpairs(NamedTuple):
    """The result of lobpcg."""

    eigenvalues: Any
    eigenvectors: Any


def _extreme(pairs: tuple[Value, Value], count: int, largest: bool) -> tuple[Value, Value]:
    """The first or last `count` of ascending eigenvalues; the last in descending order."""
    values, vectors = pairs
    n = values._spec.shape[-1]
    if not largest:
        return narrow(values, -1, 0, count), narrow(vectors, -1, 0, count)
    kept = narrow(values, -1, n - count, n), narrow(vectors, -1, n - count, n)
    first, second = (flipped(x) for x in kept)
    return first, second


def flipped(x: Value) -> Value:
    """x reversed along its last dimension."""
    size = x._spec.shape[-1]
    return (
        views.cat([narrow(x, -1, i, i + 1) for i in range(size - 1, -1, -1)], -1) if size > 1 else x
    )


def _iterated(
    a: Value, x: Value, filter_of: Value | None, niter: int, tol: float, largest: bool
) -> Eigenpairs:
    """Knyazev's method: the best vectors in the span of the last ones, residuals and step."""
    count = x._spec.shape[-1]
    x, step = linalg_qr(x).Q, None
    values = complex_parts.real_part(diagonal_of(product(adjoint(x), product(a, x))))
    for _ in range(niter):
        moved = product(a, x)
        missed = e.sub(moved, e.mul(x, row(values)))
        scale = e.add(e.abs(values), reductions.amax(e.abs(values), -1, True))
        error = e.div(statistics.vector_norm(missed, 2, -2), scale)
        if not max(read(physical_of(e.cast(error, float32))), default=0.0) > tol:
            break
        tried = missed if filter_of is None else product(filter_of, missed)
        basis = linalg_qr(views.cat([x, tried] if step is None else [x, tried, step], -1)).Q
        inner = product(adjoint(basis), product(a, basis))
        values, turn = _extreme(eigh(inner), count, largest)
        new = product(basis, turn)
        step = e.sub(new, product(x, product(adjoint(x), new)))
        x = new
    return Eigenpairs(values, x)


@composite("lobpcg", method=False)
@random.drawing
def lobpcg(
    A: Value,
    k: int | None = None,
    B: Value | None = None,
    X: Value | None = None,
    n: int | None = None,
    iK: Value | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> Eigenpairs:
    """k extreme eigenvalues of A x = e B x by iteration from X.

    A is symmetric and B positive definite. A gradient needs all eigenvectors, so eigh computes them
    where one is needed. `method`, `tracker` and the ortho parameters, which control PyTorch's own
    iteration, have no effect.

    Args:
        k: The number of eigenvalues.
        n: The number of vectors in a step; by default k.
        B: The second matrix of a generalised problem A x = l B x.
        largest: Find the largest eigenvalues; otherwise the smallest.
    """
    check_matrices("lobpcg", *(v for v in (A, B, X, iK) if v is not None), square=True)
    size, wanted = A._spec.shape[-1], 1 if k is None else k
    count = max(wanted, n or 0) if X is None else X._spec.shape[-1]
    if not 0 < wanted <= count or size < 3 * count:
        raise ShapeError(
            f"lobpcg: {A._spec!r} must have at least 3 rows for each of {count} eigenvectors sought"
        )
    most = largest is None or largest
    lower = None if B is None else linalg_cholesky(B)
    a = A if lower is None else right_triangular(triangular(lower, A, False), adjoint(lower), True)
    if any(is_recorded(v) for v in (A, B) if v is not None):
        values, vectors = _extreme(eigh(a), wanted, most)
    else:
        if X is None:
            shape = (*A._spec.shape[:-1], count)
            X = random.randn(shape, dtype=A._spec.dtype, device=A._spec.device.device.name)
        start = X if lower is None else product(adjoint(lower), X)
        limit = (
            (2.0**-23 if real_type(A._spec.dtype) is float32 else 2.0**-52) ** 0.5
            if tol is None
            else tol
        )
        times = 1000 if niter is None or niter < 0 else niter
        check_iterations("lobpcg", times)
        values, vectors = _iterated(a, start, iK, times, limit, most)
        values, vectors = narrow(values, -1, 0, wanted), narrow(vectors, -1, 0, wanted)
    return Eigenpairs(
        values, vectors if lower is None else triangular(adjoint(lower), vectors, True)
    )
