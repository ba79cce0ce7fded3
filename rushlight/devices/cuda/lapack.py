"""Factorisations and solvers by cuSOLVER and cuBLAS on CuPy arrays.

The functions are those of `devices/shared/library/lapack.py`, which are used as they are where
`numpy.linalg` and `cupy.linalg` have the same calls. What is written here needs `info`, or has no
call in CuPy. CUDA's routines see columns: an array stored by rows is the transposed matrix to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight.devices.shared.library import lapack as host

Array = Any  # a cupy.ndarray
Arrays = Sequence[Array]
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
# cuBLAS's numbers
_PLAIN, _RIGHT, _LOWER, _UPPER, _NONUNIT, _UNIT = 0, 1, 0, 1, 0, 1
_LARGE = 256  # rows; matrices of a batch beyond it are factored one after another


def _cublas(array: Array, name: str) -> tuple[Callable[..., Any], int]:
    """A routine for the type of the array, and the handle it takes first."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    return getattr(cublas, _LETTERS[array.dtype.char] + name), device.get_cublas_handle()


def _cusolver(array: Array, name: str) -> tuple[Callable[..., Any], int]:
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusolver

    return getattr(cusolver, _LETTERS[array.dtype.char] + name), device.get_cusolver_handle()


def _addresses(matrices: Array) -> Array:
    """The addresses of a dense batch's matrices, on the device.

    The caller keeps the array until its launch: the next one would take its block.
    """
    import cupy

    start, step = matrices.data.ptr, matrices.strides[0]
    return cupy.arange(start, start + step * len(matrices), step, dtype=cupy.uintp)


def _starts(arrays: Array) -> range:
    """The addresses of the parts of a dense array, on the host."""
    start, step = arrays.data.ptr, arrays.strides[0]
    return range(start, start + step * len(arrays), step)


@functools.cache
def _one(kind: str) -> Array:
    """The number 1 in host memory."""
    return np.ones(1, kind)


def _batched(matrices: Array) -> bool:
    return len(matrices) > 1 and matrices.shape[-1] <= _LARGE


def _columns(a: Array) -> Array:
    """A copy by columns: each matrix transposed, dense."""
    import cupy

    return cupy.array(a.swapaxes(-1, -2), order="C")


def _lu(a: Array, pivots: Array = None, info: Array = None) -> tuple[Array, Array]:
    """LU by columns, and the row exchanged with each (from 1), in `pivots`, as `info` is set."""
    import cupy

    batch, rows, columns = a.shape
    lu = _columns(a)
    pivots = cupy.empty((batch, min(rows, columns)), np.int32) if pivots is None else pivots
    info = cupy.empty(batch, np.int32) if info is None else info
    if not a.size:
        pivots[...] = info[...] = 0
    elif rows == columns and _batched(lu):
        run, handle = _cublas(lu, "getrfBatched")
        places = _addresses(lu)
        run(handle, rows, places.data.ptr, rows, pivots.data.ptr, info.data.ptr, batch)
    else:
        run, handle = _cusolver(lu, "getrf")
        room, _ = _cusolver(lu, "getrf_bufferSize")
        work = cupy.empty(room(handle, rows, columns, lu.data.ptr, rows), lu.dtype)
        for place, exchanges, failed in zip(
            _starts(lu), _starts(pivots), _starts(info), strict=True
        ):
            run(handle, rows, columns, place, rows, work.data.ptr, exchanges, failed)
    return lu, pivots


def lu_factor(outs: Arrays, ins: Arrays, label: str) -> None:
    lu, pivots, info = outs
    found, _ = _lu(ins[0], pivots, info)
    lu[...] = found.swapaxes(-1, -2)
    host.complain_of_pivots(label, info)


def solve(outs: Arrays, ins: Arrays, label: str) -> None:
    import cupy

    (x, info), (a, b) = outs, ins
    lu, pivots = _lu(a, None, info)
    host.complain_of_singular(label, info)
    batch, rows, columns = b.shape
    if not b.size:
        return
    right = _columns(b)
    if _batched(lu):
        run, handle = _cublas(lu, "getrsBatched")
        answer = np.zeros(1, np.int32)  # whether an argument is wrong
        places, targets = _addresses(lu), _addresses(right)
        run(
            handle, _PLAIN, rows, columns, places.data.ptr, rows, pivots.data.ptr,
            targets.data.ptr, rows, answer.ctypes.data, batch,
        )  # fmt: skip
    else:
        run, handle = _cusolver(lu, "getrs")
        answer = cupy.empty(1, np.int32).data  # likewise
        for place, exchanges, values in zip(
            _starts(lu), _starts(pivots), _starts(right), strict=True
        ):
            run(handle, _PLAIN, rows, columns, place, rows, exchanges, values, rows, answer.ptr)
    x[...] = right.swapaxes(-1, -2)


def _substitute(a: Array, x: Array, upper: bool, unit: bool) -> None:
    """`x` becomes X of A X = x. By columns this is X^T A^T = x^T, A^T the other triangle."""
    batch, rows, columns = x.shape
    if not x.size:
        return
    one = _one(x.dtype.char)
    how = (
        _RIGHT,
        _LOWER if upper else _UPPER,
        _PLAIN,
        _UNIT if unit else _NONUNIT,
        columns,
        rows,
        one.ctypes.data,
    )
    if _batched(a):
        run, handle = _cublas(x, "trsmBatched")
        places, targets = _addresses(a), _addresses(x)
        run(handle, *how, places.data.ptr, rows, targets.data.ptr, columns, batch)
        return
    run, handle = _cublas(x, "trsm")
    for place, right in zip(_starts(a), _starts(x), strict=True):
        run(handle, *how, place, rows, right, columns)


def triangular(outs: Arrays, ins: Arrays, upper: bool, unit: bool) -> None:
    (x,), (a, b) = outs, ins
    x[...] = b
    _substitute(a, x, upper, unit)


@functools.cache
def _finish() -> Any:
    """The lower triangle, or NaN where the factorisation failed; zeros above. And where it failed.

    NaN is not positive. A NaN of the diagonal makes NaN of all that follow it, so the last element
    tells whether there is one, and a walk back from it where the first is.
    """
    import cupy

    return cupy.ElementwiseKernel(
        "T x, raw T whole, raw int32 found, int64 n",
        "T y, raw int32 info",
        """
        const long long first = i / n / n * n * n;
        long long bad = found[i / n / n];
        if (bad == 0) {
            long long place = first + n * n - 1, left = n;
            while (left && whole[place] != whole[place]) {
                bad = left--;
                place -= n + 1;
            }
        }
        if (i == first) info[i / n / n] = (int)bad;
        y = i % n > i / n % n ? T(0) : bad ? T(__int_as_float(0x7fc00000)) : x
        """,
        "finish_cholesky",
    )


def cholesky(outs: Arrays, ins: Arrays, upper: bool, label: str) -> None:
    import cupy

    (out, info), (a,) = outs, ins
    if not a.size:
        info[...] = 0
        return
    # By columns the lower triangle is the upper one.
    factor = cupy.array(host.adjoint(a) if upper else a, order="C")
    batch, n, _ = a.shape
    found = cupy.empty(batch, np.int32)
    if batch > 1:
        run, handle = _cusolver(factor, "potrfBatched")
        places = _addresses(factor)
        run(handle, _UPPER, n, places.data.ptr, n, found.data.ptr, batch)
    else:
        run, handle = _cusolver(factor, "potrf")
        room, _ = _cusolver(factor, "potrf_bufferSize")
        count = room(handle, _UPPER, n, factor.data.ptr, n)
        work = cupy.empty(count, factor.dtype)
        run(handle, _UPPER, n, factor.data.ptr, n, work.data.ptr, count, found.data.ptr)
    lower = cupy.empty_like(factor) if upper else out
    _finish()(factor, factor, found, n, lower, info)
    if upper:
        out[...] = host.adjoint(lower)
    host.complain_of_minors(label, info)


def cholesky_solve(outs: Arrays, ins: Arrays, upper: bool) -> None:
    import cupy

    (x,), (factor, b) = outs, ins
    x[...] = b
    other = cupy.ascontiguousarray(host.adjoint(factor))
    lower, higher = (other, factor) if upper else (factor, other)
    _substitute(lower, x, False, False)
    _substitute(higher, x, True, False)


def cholesky_inverse(outs: Arrays, ins: Arrays, upper: bool) -> None:
    import cupy

    host.complain_of_diagonal(ins[0])
    n = ins[0].shape[-1]
    one = cupy.broadcast_to(cupy.eye(n, dtype=ins[0].dtype), ins[0].shape)
    cholesky_solve(outs, [ins[0], one], upper)


@functools.cache
def _upper() -> Any:
    """The upper triangle of each matrix, zeros below."""
    import cupy

    return cupy.ElementwiseKernel(
        "T x, int64 rows, int64 columns",
        "T y",
        "y = i % columns < i / columns % rows ? T(0) : x",
        "upper_triangle",
    )


def qr(outs: Arrays, ins: Arrays, mode: str) -> None:
    """Q and R; R alone with mode "r". CuPy's own waits for the device, to check its arguments."""
    import cupy

    (a,), r = ins, outs[-1]
    batch, rows, columns = a.shape
    if not a.size:
        host.qr(outs, ins, mode)
        return
    least = min(rows, columns)
    made, answer = _columns(a), cupy.empty(1, np.int32).data
    factors = cupy.empty((batch, least), made.dtype)
    run, handle = _cusolver(made, "geqrf")
    room, _ = _cusolver(made, "geqrf_bufferSize")
    count = room(handle, rows, columns, made.data.ptr, rows)
    work = cupy.empty(count, made.dtype)
    for place, tau in zip(_starts(made), _starts(factors), strict=True):
        run(handle, rows, columns, place, rows, tau, work.data.ptr, count, answer.ptr)
    _upper()(made.swapaxes(-1, -2)[:, : r.shape[1]], r.shape[1], columns, r)
    if mode == "r":
        return
    q = outs[0]
    across = q.shape[-1]
    if across != columns:
        reflectors, made = made, cupy.empty((batch, across, rows), made.dtype)
        made[:, :least] = reflectors[:, :least]
    name = "ungqr" if made.dtype.kind == "c" else "orgqr"
    run, _ = _cusolver(made, name)
    room, _ = _cusolver(made, f"{name}_bufferSize")
    count = room(handle, rows, across, least, made.data.ptr, rows, factors.data.ptr)
    work = cupy.empty(count, made.dtype)
    for place, tau in zip(_starts(made), _starts(factors), strict=True):
        run(handle, rows, across, least, place, rows, tau, work.data.ptr, count, answer.ptr)
    q[...] = made.swapaxes(-1, -2)


def _diagonal(a: Array) -> tuple[Array, Array]:
    """The diagonal of U, and the sign of the exchanges."""
    import cupy

    lu, pivots = _lu(a)
    exchanged = (pivots != cupy.arange(1, pivots.shape[1] + 1, dtype=np.int32)).sum(-1)
    return cupy.diagonal(lu, 0, -2, -1), (1 - 2 * (exchanged % 2)).astype(lu.real.dtype)


def det(outs: Arrays, ins: Arrays) -> None:
    values, sign = _diagonal(ins[0])
    outs[0][...] = values.prod(-1) * sign


def slogdet(outs: Arrays, ins: Arrays) -> None:
    import cupy

    values, sign = _diagonal(ins[0])
    sizes = cupy.abs(values)
    outs[0][...] = cupy.where(sizes == 0, 0, values / sizes).prod(-1) * sign
    outs[1][...] = cupy.log(sizes).sum(-1)


def lstsq(outs: Arrays, ins: Arrays, rcond: float) -> None:
    import cupy

    (x, rank, values), (a, b) = outs, ins
    host.check_finite("linalg.lstsq", a)
    host.check_finite("linalg.lstsq", b)
    if not a.size:
        x[...], rank[...] = 0, 0
        return
    u, sizes, vh = cupy.linalg.svd(a, full_matrices=False)
    kept = sizes > rcond * sizes.max(-1)[:, None]
    inverse = cupy.where(kept, 1 / cupy.where(kept, sizes, 1), 0).astype(sizes.dtype)
    x[...] = cupy.matmul(host.adjoint(vh) * inverse[:, None, :], cupy.matmul(host.adjoint(u), b))
    rank[...], values[...] = kept.sum(-1), sizes


FUNCTIONS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        cholesky,
        cholesky_inverse,
        cholesky_solve,
        det,
        lstsq,
        lu_factor,
        qr,
        slogdet,
        solve,
        triangular,
        host.cofactor,
        host.cofactor_slope,
        host.eigh,
        host.eigvalsh,
        host.pinv,
        host.svd,
        host.svdvals,
    )
}
