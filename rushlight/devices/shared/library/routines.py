"""Routines of LAPACK and BLAS that NumPy lacks, on one matrix, in place.

Where OpenBLAS is missing they are written in NumPy. LAPACK stores columns; a matrix stored by rows
is its transpose, so matrices are transposed on the way in and out.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from rushlight.core.errors import LinAlgError
from rushlight.devices.shared.library.openblas import library

Array = Any  # an ndarray

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_ROW_MAJOR, _LEFT, _UPPER, _LOWER, _PLAIN, _NONUNIT, _UNIT = 101, 141, 121, 122, 111, 131, 132


def _call(name: str, dtype: Any, *arguments: Any) -> int:
    """A LAPACK routine: all by reference, `info` last, then the lengths of the strings.

    Returns info.
    """
    found = library()
    assert found is not None
    info = ctypes.c_int64(0)
    passed: list[Any] = []
    strings = 0
    for value in arguments:
        if isinstance(value, str):
            strings += 1
            passed.append(ctypes.c_char_p(value.encode()))
        elif isinstance(value, int):
            passed.append(ctypes.byref(ctypes.c_int64(value)))
        else:
            passed.append(ctypes.c_void_p(value.ctypes.data))
    routine = getattr(found, f"scipy_{_LETTERS[dtype.name]}{name}_64_")
    routine(*passed, ctypes.byref(info), *[ctypes.c_size_t(1)] * strings)
    return info.value


def lu(matrix: Array, pivots: Array) -> int:
    """LU in place; `pivots` has the row exchanged with each, from 1; returns info."""
    rows, columns = matrix.shape
    if not matrix.size:
        return 0
    if library() is None:
        return _lu(matrix, pivots)
    turned, wide = np.array(matrix.T, order="C"), np.empty(min(rows, columns), np.int64)
    info = _call("getrf", matrix.dtype, rows, columns, turned, rows, wide)
    matrix[...], pivots[...] = turned.T, wide
    return info


def _lu(matrix: Array, pivots: Array) -> int:
    """Elimination with the largest pivot of each column."""
    info = 0
    for k in range(len(pivots)):
        best = k + int(np.argmax(np.abs(matrix[k:, k])))
        pivots[k] = best + 1
        matrix[[k, best]] = matrix[[best, k]]
        if matrix[k, k] == 0:
            info = info or k + 1
            continue
        matrix[k + 1 :, k] /= matrix[k, k]
        matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return info


def triangular(matrix: Array, right: Array, upper: bool, unit: bool) -> None:
    """`right` becomes X of A X = right, A a triangle of the matrix.

    A zero on its diagonal gives infinities.
    """
    rows, columns = right.shape
    if not right.size:
        return
    found = library()
    if found is None:
        _triangular(matrix, right, upper, unit)
        return
    one = np.ones(1, matrix.dtype)
    letter = _LETTERS[matrix.dtype.name]
    number: Any = ctypes.c_void_p(one.ctypes.data)
    if letter in "sd":
        number = (ctypes.c_float if letter == "s" else ctypes.c_double)(1.0)
    getattr(found, f"scipy_cblas_{letter}trsm64_")(
        *[
            ctypes.c_int(n)
            for n in (
                _ROW_MAJOR,
                _LEFT,
                _UPPER if upper else _LOWER,
                _PLAIN,
                _UNIT if unit else _NONUNIT,
            )
        ],
        ctypes.c_int64(rows),
        ctypes.c_int64(columns),
        number,
        ctypes.c_void_p(matrix.ctypes.data),
        ctypes.c_int64(rows),
        ctypes.c_void_p(right.ctypes.data),
        ctypes.c_int64(columns),
    )


def _triangular(matrix: Array, right: Array, upper: bool, unit: bool) -> None:
    """Substitution, row by row."""
    n = len(matrix)
    for k in range(n - 1, -1, -1) if upper else range(n):
        known = slice(k + 1, n) if upper else slice(0, k)
        right[k] -= matrix[k, known] @ right[known]
        if not unit:
            right[k] /= matrix[k, k]


def _need_lapack(op: str) -> None:
    if library() is None:
        raise LinAlgError(
            f"{op}: needs LAPACK's sytrf, which this NumPy does not bring; install NumPy from PyPI"
        )


def symmetric(matrix: Array, pivots: Array, hermitian: bool) -> int:
    """The lower triangle becomes L and D of Bunch and Kaufman, the upper one zeros.

    Returns info.
    """
    _need_lapack("linalg.ldl_factor")
    n = len(matrix)
    if not n:
        return 0
    turned, wide = np.array(matrix.T, order="C"), np.empty(n, np.int64)
    room = 64 * n
    work = np.empty(room, matrix.dtype)
    name = "hetrf" if hermitian and matrix.dtype.kind == "c" else "sytrf"
    info = _call(name, matrix.dtype, "L", n, turned, n, wide, work, room)
    matrix[...], pivots[...] = np.tril(turned.T), wide
    return info


def symmetric_solve(matrix: Array, pivots: Array, right: Array, hermitian: bool) -> None:
    """`right` becomes X of A X = right, from the factors that `symmetric` made."""
    _need_lapack("linalg.ldl_solve")
    n, columns = right.shape
    if not right.size:
        return
    factors, turned = np.array(matrix.T, order="C"), np.array(right.T, order="C")
    name = "hetrs" if hermitian and matrix.dtype.kind == "c" else "sytrs"
    _call(name, matrix.dtype, "L", n, columns, factors, n, pivots.astype(np.int64), turned, n)
    right[...] = turned.T
