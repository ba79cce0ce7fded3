"""Factorisations and solvers over batches of matrices, by LAPACK: through NumPy, or by name.

Functions that use only `numpy.linalg` also take CuPy's arrays, by `_module` (`cuda/arrays.py`).

Matrices are arrays (batch, rows, columns). A `label` is the public name for error messages: with
one, a matrix that cannot be handled raises `LinAlgError`; without, the `info` output says so (0:
success, k: failure at the k-th step).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight.core.dtypes import DType
from rushlight.core.errors import LinAlgError, RushlightError
from rushlight.devices.shared.library import routines

Array = Any  # an ndarray
Arrays = Sequence[Array]
Operands = Sequence[tuple[DType, tuple[int, ...]]]


def _module(array: Array) -> Any:
    """NumPy or CuPy, whose array it is."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def _complain(label: str, info: Array, text: str) -> None:
    """Raise for the first matrix whose `info` is not 0, in PyTorch's words; `{k}` is that info."""
    if not label:
        return
    if hasattr(info, "get"):
        info = info.get()  # from the device
    bad = np.flatnonzero(info)
    if bad.size:
        where = f"(Batch element {bad[0]}): " if info.size > 1 else ""
        raise LinAlgError(f"{label}: {where}{text.format(k=int(info[bad[0]]))}")


def adjoint(a: Array) -> Array:
    return a.swapaxes(-1, -2).conj()


# ---- solving ----

_SINGULAR = {
    "linalg.inv": (
        "The diagonal element {k} is zero, the inversion could not be completed because the input "
        "matrix is singular."
    ),
    "linalg.solve": "The solver failed because the input matrix is singular.",
}
_ZERO_PIVOT = (
    "U[{k},{k}] is zero and using it on lu_solve would result in a division by zero. "
    "If you still want to perform the factorization, consider calling linalg.lu(A, pivot) "
    "or linalg.lu_factor_ex(A, pivot)"
)


def complain_of_pivots(label: str, info: Array) -> None:
    _complain(label, info, _ZERO_PIVOT)


def complain_of_singular(label: str, info: Array) -> None:
    _complain(label, info, _SINGULAR.get(label, _SINGULAR["linalg.solve"]))


def lu_factor(outs: Arrays, ins: Arrays, label: str) -> None:
    """LU in one matrix, the row exchanged with each (from 1), info."""
    lu, pivots, info = outs
    lu[...] = ins[0]
    for i in range(len(lu)):
        info[i] = routines.lu(lu[i], pivots[i])
    complain_of_pivots(label, info)


def order_of(pivots: Array, rows: int) -> Array:
    """The permutation that a sequence of row exchanges makes."""
    order = np.arange(rows)
    if pivots.size and not 1 <= pivots.min() <= pivots.max() <= rows:
        raise RushlightError(
            f"lu: pivots must lie between 1 and {rows}, the rows of LU; got {pivots.tolist()}"
        )
    for i, p in enumerate(pivots):
        order[[i, p - 1]] = order[[p - 1, i]]
    return order


def permutation(outs: Arrays, ins: Arrays, kind: object, rows: int) -> None:
    """P of A = P L U from the exchanges of its rows; `kind` is the type of its elements."""
    (out,), (pivots,) = outs, ins
    out[...] = 0
    for matrix, exchanges in zip(out, pivots, strict=True):
        matrix[order_of(exchanges, rows), np.arange(rows)] = 1


def solve(outs: Arrays, ins: Arrays, label: str) -> None:
    """X of A X = B, and info."""
    (x, info), (a, b) = outs, ins
    try:
        x[...] = np.linalg.solve(a, b)
        info[...] = 0
        return
    except np.linalg.LinAlgError:
        pass
    lu, pivots = np.array(a), np.empty(a.shape[:-1], np.int32)
    for i in range(len(a)):
        info[i] = routines.lu(lu[i], pivots[i])
    complain_of_singular(label, info)
    for i in range(len(a)):
        x[i] = b[i][order_of(pivots[i], a.shape[-1])]
        routines.triangular(lu[i], x[i], upper=False, unit=True)
        routines.triangular(lu[i], x[i], upper=True, unit=False)


def triangular(outs: Arrays, ins: Arrays, upper: bool, unit: bool) -> None:
    """X of A X = B for a triangular A; the other triangle is not read."""
    (x,), (a, b) = outs, ins
    x[...] = b
    for matrix, right in zip(a, x, strict=True):
        routines.triangular(matrix, right, upper, unit)


def cholesky_solve(outs: Arrays, ins: Arrays, upper: bool) -> None:
    """X of A X = B from the Cholesky factor of A, of which one triangle is read."""
    (x,), (factor, b) = outs, ins
    x[...] = b
    other = np.ascontiguousarray(adjoint(factor))
    lower, higher = (other, factor) if upper else (factor, other)
    for below, above, right in zip(lower, higher, x, strict=True):
        routines.triangular(below, right, False, False)
        routines.triangular(above, right, True, False)


def complain_of_zeros(zero: Array) -> None:
    """Refuse factors by where their diagonals (a row each) are zero."""
    _complain(
        "cholesky_inverse",
        np.where(zero.any(-1), zero.argmax(-1) + 1 if zero.shape[-1] else 0, 0),
        "The diagonal element {k} is zero, the inversion could not be completed because the input "
        "matrix is singular.",
    )


def cholesky_inverse(outs: Arrays, ins: Arrays, upper: bool) -> None:
    complain_of_zeros(np.diagonal(ins[0], 0, -2, -1) == 0)
    one = np.broadcast_to(np.eye(ins[0].shape[-1], dtype=ins[0].dtype), ins[0].shape)
    cholesky_solve(outs, [ins[0], one], upper)


def det(outs: Arrays, ins: Arrays) -> None:
    outs[0][...] = np.linalg.det(ins[0])


def slogdet(outs: Arrays, ins: Arrays) -> None:
    outs[0][...], outs[1][...] = np.linalg.slogdet(ins[0])


def cofactor(outs: Arrays, ins: Arrays) -> None:
    """The derivative of the determinant, det(A) inv(A).T, by singular values.

    Singular matrices have one too.
    """
    (a,) = ins
    xp = _module(a)
    if not a.size:
        return
    if not xp.isfinite(a).all():
        outs[0][...] = xp.nan
        return
    u, s, vh = xp.linalg.svd(a)
    ones = xp.ones((*s.shape[:-1], 1), s.dtype)
    before = xp.concatenate([ones, xp.cumprod(s[..., :-1], -1)], -1)
    after = xp.concatenate([xp.cumprod(s[..., :0:-1], -1)[..., ::-1], ones], -1)
    turn = xp.linalg.det(u) * xp.linalg.det(vh)
    outs[0][...] = (
        xp.matmul(u.conj() * (before * after)[..., None, :], vh.conj()) * turn[..., None, None]
    )


def cofactor_slope(outs: Arrays, ins: Arrays) -> None:
    """The directional derivative of the determinant's derivative, by singular values.

    Also at singular matrices. Of a diagonal matrix the (i, j) minor's derivatives are products of
    all values but two.
    """
    a, along = ins
    xp = _module(a)
    if not a.size:
        return
    if not xp.isfinite(a).all():
        outs[0][...] = xp.nan
        return
    u, s, vh = xp.linalg.svd(a)
    n = s.shape[-1]
    diagonal = xp.arange(n)
    left = xp.repeat(s[..., None, :], n, -2)
    left[..., diagonal, diagonal] = 1
    ones = xp.ones((*left.shape[:-1], 1), s.dtype)
    before = xp.concatenate([ones, xp.cumprod(left[..., :-1], -1)], -1)
    after = xp.concatenate([xp.cumprod(left[..., :0:-1], -1)[..., ::-1], ones], -1)
    pairs = before * after
    pairs[..., diagonal, diagonal] = 0
    seen = xp.matmul(xp.matmul(adjoint(u), along), adjoint(vh))
    change = -pairs * xp.swapaxes(seen, -1, -2)
    change[..., diagonal, diagonal] = xp.matmul(pairs, seen[..., diagonal, diagonal][..., None])[
        ..., 0
    ]
    turn = xp.linalg.det(u) * xp.linalg.det(vh)
    outs[0][...] = xp.matmul(xp.matmul(u.conj(), change), vh.conj()) * turn[..., None, None]


def lstsq(outs: Arrays, ins: Arrays, rcond: float) -> None:
    """The solution of least squares and least norm, the rank, the singular values."""
    (x, rank, values), (a, b) = outs, ins
    check_finite("linalg.lstsq", a)
    check_finite("linalg.lstsq", b)
    for i in range(len(a)):
        if not a.shape[-1] or not a.shape[-2]:
            x[i], rank[i] = 0, 0
            continue
        try:
            x[i], _, rank[i], values[i] = np.linalg.lstsq(a[i], b[i], rcond)
        except np.linalg.LinAlgError:
            raise LinAlgError(
                "linalg.lstsq: the least squares did not converge; are all elements finite?"
            ) from None


def pinv(outs: Arrays, ins: Arrays, hermitian: bool) -> None:
    """The pseudoinverse without singular values up to max(atol, rtol * largest).

    A tolerance per matrix.
    """
    (out,), (a, atol, rtol) = outs, ins
    xp = _module(a)
    if not a.size:
        out[...] = 0
        return
    if hermitian:
        values, u = _converging("linalg.pinv", lambda: xp.linalg.eigh(a))
        vh = adjoint(u)
    else:
        check_finite("linalg.pinv", a)
        u, values, vh = _converging("linalg.pinv", lambda: xp.linalg.svd(a, full_matrices=False))
    sizes = xp.abs(values)
    kept = sizes > xp.maximum(atol, rtol * sizes.max(-1))[..., None]
    inverse = xp.where(kept, 1 / xp.where(kept, values, 1), 0).astype(values.dtype)
    out[...] = xp.matmul(adjoint(vh) * inverse[..., None, :], adjoint(u))


# ---- factorisations ----


def check_finite(label: str, a: Array) -> None:
    """Refuse NaN and infinity, on which LAPACK's iterations may not end."""
    if not _module(a).isfinite(a).all():
        raise LinAlgError(
            f"{label}: The algorithm failed to converge because the input matrix contained "
            "non-finite values."
        )


def not_converging(label: str) -> LinAlgError:
    """The error of an iteration that does not end."""
    return LinAlgError(
        f"{label}: The algorithm failed to converge because the input matrix is "
        "ill-conditioned, has too many "
        "repeated values or elements that are not finite (error code: 1)."
    )


def _converging(label: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except np.linalg.LinAlgError:
        raise not_converging(label) from None


def cholesky(outs: Arrays, ins: Arrays, upper: bool, label: str) -> None:
    """L of A = L L^H from the lower triangle, or U of A = U^H U from the upper one; and info."""
    (out, info), (a,) = outs, ins
    info[...] = 0
    below = adjoint(a) if upper else a
    try:
        factor = np.linalg.cholesky(below)
    except np.linalg.LinAlgError:
        factor = np.empty_like(below)
        for i, matrix in enumerate(below):
            info[i] = _first_bad_minor(matrix)
            factor[i] = np.nan if info[i] else np.linalg.cholesky(matrix)
    bad = np.isnan(np.diagonal(factor, 0, -2, -1))  # NaN is not positive
    info[...] = np.where(
        (info == 0) & bad.any(-1), bad.argmax(-1) + 1 if bad.shape[-1] else 0, info
    )
    out[...] = adjoint(factor) if upper else factor
    complain_of_minors(label, info)


def complain_of_minors(label: str, info: Array) -> None:
    _complain(
        label,
        info,
        "The factorization could not be completed because the input is not positive-definite "
        "(the leading minor of order {k} is not positive-definite).",
    )


def _first_bad_minor(matrix: Array) -> int:
    """The least order of a leading minor that is not positive definite; 0 if none."""
    for k in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:k, :k])
        except np.linalg.LinAlgError:
            return k
    return 0


def qr(outs: Arrays, ins: Arrays, mode: str) -> None:
    """Q and R; R alone with mode "r"."""
    xp = _module(ins[0])
    if mode == "r":
        outs[0][...] = xp.linalg.qr(ins[0], "r")
    else:
        outs[0][...], outs[1][...] = xp.linalg.qr(ins[0], mode)


def geqrf(outs: Arrays, ins: Arrays) -> None:
    """R with the reflectors below it, and their factors."""
    a, tau = np.linalg.qr(ins[0], "raw")
    outs[0][...], outs[1][...] = a.swapaxes(-1, -2), tau


def svd(outs: Arrays, ins: Arrays, full: bool) -> None:
    u, s, vh = outs
    xp = _module(ins[0])
    check_finite("linalg.svd", ins[0])
    u[...], s[...], vh[...] = _converging(
        "linalg.svd", lambda: xp.linalg.svd(ins[0], full_matrices=full)
    )


def svdvals(outs: Arrays, ins: Arrays) -> None:
    xp = _module(ins[0])
    check_finite("linalg.svdvals", ins[0])
    outs[0][...] = _converging("linalg.svdvals", lambda: xp.linalg.svd(ins[0], compute_uv=False))


def eigh(outs: Arrays, ins: Arrays, triangle: Any) -> None:
    xp = _module(ins[0])
    outs[0][...], outs[1][...] = _converging(
        "linalg.eigh", lambda: xp.linalg.eigh(ins[0], triangle)
    )


def eigvalsh(outs: Arrays, ins: Arrays, triangle: Any) -> None:
    xp = _module(ins[0])
    outs[0][...] = _converging("linalg.eigvalsh", lambda: xp.linalg.eigvalsh(ins[0], triangle))


def eig(outs: Arrays, ins: Arrays) -> None:
    check_finite("linalg.eig", ins[0])
    outs[0][...], outs[1][...] = _converging("linalg.eig", lambda: np.linalg.eig(ins[0]))


def eigvals(outs: Arrays, ins: Arrays) -> None:
    check_finite("linalg.eigvals", ins[0])
    outs[0][...] = _converging("linalg.eigvals", lambda: np.linalg.eigvals(ins[0]))


def ldl_factor(outs: Arrays, ins: Arrays, hermitian: bool, label: str) -> None:
    """L and D of A = L D L^T (or L^H) in one matrix, LAPACK's pivots, info."""
    ld, pivots, info = outs
    ld[...] = ins[0]
    for i in range(len(ld)):
        info[i] = routines.symmetric(ld[i], pivots[i], hermitian)
    _complain(
        label,
        info,
        "D[{k},{k}] is zero; to go on with it, call linalg.ldl_factor_ex, which reports it in its "
        "info.",
    )


def _check_blocks(pivots: Array) -> None:
    """Refuse pivots that `ldl_factor` cannot have made.

    LAPACK would index its matrices with them.
    """
    rows = len(pivots)
    listed = pivots.tolist()
    k = 0
    while k < rows and 1 <= abs(listed[k]) <= rows:
        paired = listed[k] < 0  # a block of two rows
        if paired and (k + 1 == rows or not -rows <= listed[k + 1] < 0):
            break
        k += 2 if paired else 1
    if k < rows:
        raise RushlightError(
            f"linalg.ldl_solve: pivots must be those of ldl_factor for {rows} rows, got {listed}"
        )


def ldl_solve(outs: Arrays, ins: Arrays, hermitian: bool) -> None:
    (x,), (ld, pivots, b) = outs, ins
    x[...] = b
    for matrix, exchanges, right in zip(ld, pivots, x, strict=True):
        _check_blocks(exchanges)
        routines.symmetric_solve(matrix, exchanges, right, hermitian)


FUNCTIONS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        cholesky,
        cholesky_inverse,
        cholesky_solve,
        cofactor,
        cofactor_slope,
        det,
        eig,
        eigh,
        eigvals,
        eigvalsh,
        geqrf,
        ldl_factor,
        ldl_solve,
        lstsq,
        lu_factor,
        permutation,
        pinv,
        qr,
        slogdet,
        solve,
        svd,
        svdvals,
        triangular,
    )
}

# What NumPy and LAPACK take while a function runs, measured: shares of the operands of all matrices
# and of one. NumPy computes single precision in double: there they are of the operands' double.
_SHARES = {
    "cholesky": (1.0, 0.55),
    "det": (1.0, 1.3),
    "eig": (1.0, 1.4),
    "eigh": (1.0, 1.6),
    "eigvals": (1.0, 1.2),
    "eigvalsh": (1.0, 1.1),
    "geqrf": (1.0, 0.5),
    "lstsq": (0.0, 2.1),
    "qr": (1.25, 0.5),
    "slogdet": (1.0, 1.3),
    "solve": (1.0, 0.75),
    "svd": (1.0, 2.0),
    "svdvals": (1.0, 1.2),
    # with temporaries of their own, of all matrices
    "cofactor": (2.0, 2.5),
    "cofactor_slope": (4.0, 0.4),
    "pinv": (2.0, 2.5),
}
_WITH_TEMPORARIES = ("cofactor", "cofactor_slope", "pinv")
_OWN_SHARES = {  # in the operands' precision
    "cholesky_inverse": (1.2, 0.3),
    "cholesky_solve": (0.7, 0.1),
    "ldl_factor": (0.0, 1.2),
    "ldl_solve": (0.0, 0.8),
    "lu_factor": (0.0, 0.75),
}


def scratch_bytes(function: str, outs: Operands, ins: Operands, options: Sequence[Any]) -> int:
    """A bound of what a call takes beside its operands."""
    count = max(outs[0][1][0], 1)
    if function in _OWN_SHARES:
        all_, one = _OWN_SHARES[function]
        own = sum(dtype.itemsize * math.prod(shape) for dtype, shape in (*outs, *ins))
        return int(own * (all_ + one / count))
    if function not in _SHARES:
        return 0
    all_, one = _SHARES[function]
    wide = sum(map(_doubled, (*outs, *ins)))
    single = any(dtype.name in ("float32", "complex64") for dtype, _ in ins)
    every = wide if single or function in _WITH_TEMPORARIES else sum(map(_doubled, outs))
    return int(all_ * every + one * wide / count)


def _doubled(operand: tuple[DType, tuple[int, ...]]) -> int:
    """The bytes of an operand in double precision."""
    dtype, shape = operand
    return (16 if dtype.kind == "c" else 8) * math.prod(shape)
