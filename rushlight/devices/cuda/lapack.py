"""Solvers and factorisations by cuBLAS and cuSOLVER: launchers of `Library` kernels on addresses.

`BUILDERS` gives for a function of `devices/shared/library/lapack.py` what makes its launcher. A
launcher gets the addresses and sizes of the outputs, then of the inputs. See Note [Solvers].
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from rushlight.core.dtypes import DType
from rushlight.devices.cuda.solvers import (
    ADJOINT,
    ANYWHERE,
    LEFT,
    LETTERS,
    LOWER,
    NONUNIT,
    PLAIN,
    RIGHT,
    TRANSPOSED,
    TYPES,
    UNIT,
    UPPER,
    Solvers,
    check,
)
from rushlight.devices.shared.library import lapack as host
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Library

Builder = Callable[[Solvers, Library], Launch]

_LARGE = 256  # rows; matrices of a batch beyond it are factored one after another
_NARROW = 128  # rows of one triangle: up to here the copies for a solve from the left cost more
_INT = 4  # bytes of a pivot and of an info


def _batched(batch: int, rows: int) -> bool:
    return batch > 1 and rows <= _LARGE


# ---- triangles ----


def substitution(on: Solvers, dtype: DType) -> Callable[..., None]:
    """`run(a, x, batch, rows, columns, upper, unit, adjoint)`: x becomes X of A X = x.

    `x` is X^T by columns, and X^T op(A^T) = x^T. With `adjoint` A is replaced by A^H.
    """
    letter, size, one = LETTERS[dtype], dtype.itemsize, on.unit(dtype)
    trsm = on.routine(on.cublas, f"cublas{letter}trsm_v2", "piiiiiippipi")
    trsm_batched = on.routine(on.cublas, f"cublas{letter}trsmBatched", "piiiiiippipii")
    fill, copy = on.kernel("addresses", dtype), on.copier(dtype)

    def run(
        a: int, x: int, batch: int, rows: int, columns: int, upper: bool, unit: bool,
        adjoint: bool = False,
    ) -> None:  # fmt: skip
        if not (batch and rows and columns):
            return
        uplo, diagonal = LOWER if upper else UPPER, UNIT if unit else NONUNIT
        # A^H is conj(A^T)^T: by columns conj(A), the adjoint of what is stored.
        op = ADJOINT if adjoint else PLAIN
        handle, of_a, of_x = on.blas(), rows * rows * size, rows * columns * size
        how = (handle, RIGHT, uplo, op, diagonal, columns, rows, one)
        if _batched(batch, rows):
            with on.scratch(16 * batch) as (table,):
                fill(table, a, of_a, x, of_x, batch)
                places = (table, rows, table + 8 * batch, columns)
                check(trsm_batched(*how, *places, batch))
        elif rows <= _NARROW or adjoint:
            for i in range(batch):
                check(trsm(*how, a + i * of_a, rows, x + i * of_x, columns))
        else:
            how = (handle, LEFT, uplo, TRANSPOSED, diagonal, rows, columns, one)
            with on.scratch(batch * of_x) as (y,):
                copy(y, x, batch, columns, rows, (rows * columns, 1, columns))
                for i in range(batch):
                    check(trsm(*how, a + i * of_a, rows, y + i * of_x, rows))
                copy(x, y, batch, rows, columns, (rows * columns, 1, rows))

    return run


def triangular(on: Solvers, kernel: Library) -> Launch:
    upper, unit = kernel.options
    solve, copy = substitution(on, kernel.inputs[0]), on.copier(kernel.inputs[0])

    def launch(x: int, a: int, b: int, batch: int, rows: int, columns: int, *_: int) -> None:
        copy(x, b, 1, 1, batch * rows * columns, (0, 0, 1))
        solve(a, x, batch, rows, columns, upper, unit)

    return launch


def cholesky_solve(on: Solvers, kernel: Library) -> Launch:
    (upper,) = kernel.options
    solve, copy = substitution(on, kernel.inputs[0]), on.copier(kernel.inputs[0])

    def launch(x: int, factor: int, b: int, batch: int, rows: int, columns: int, *_: int) -> None:
        copy(x, b, 1, 1, batch * rows * columns, (0, 0, 1))
        for adjoint in (upper, not upper):
            solve(factor, x, batch, rows, columns, upper, False, adjoint)

    return launch


def cholesky_inverse(on: Solvers, kernel: Library) -> Launch:
    (upper,) = kernel.options
    dtype = kernel.inputs[0]
    solve, copy = substitution(on, dtype), on.copier(dtype)
    reflect, kind = on.kernel("reflect", dtype), np.dtype(dtype.name)

    def launch(x: int, factor: int, batch: int, n: int, *_: int) -> None:
        if not batch * n:
            return
        with on.scratch(batch * n * dtype.itemsize) as (diagonal,):
            copy(diagonal, factor, 1, batch, n, (0, n * n, n + 1))
            host.complain_of_zeros(on.read(diagonal, batch * n, kind).reshape(batch, n) == 0)
        reflect(x, factor, factor, batch, n, n, 0, 0)  # unit vectors
        for adjoint in (upper, not upper):
            solve(factor, x, batch, n, n, upper, False, adjoint)

    return launch


# ---- LU ----


def _factoring(on: Solvers, dtype: DType) -> Callable[..., None]:
    """`run(lu, a, pivots, info, batch, rows, columns)`: LU by columns, exchanged rows from 1."""
    letter, size = LETTERS[dtype], dtype.itemsize
    getrf = on.routine(on.cusolver, f"cusolverDn{letter}getrf", "piipippp")
    getrf_batched = on.routine(on.cublas, f"cublas{letter}getrfBatched", "pipippi")
    fill, copy = on.kernel("addresses", dtype), on.copier(dtype)

    def run(lu: int, a: int, pivots: int, info: int, batch: int, rows: int, columns: int) -> None:
        copy(lu, a, batch, columns, rows, (rows * columns, 1, columns))
        if not (rows and columns):
            on.clear(info, _INT * batch)
        elif rows == columns and _batched(batch, rows):
            with on.scratch(16 * batch) as (table,):
                fill(table, lu, rows * rows * size, lu, 0, batch)
                check(getrf_batched(on.blas(), rows, table, rows, pivots, info, batch))
        else:
            handle, of_pivots = on.solver(), _INT * min(rows, columns)
            asked = (rows, columns, ANYWHERE, rows)
            (room,) = on.rooms(f"{letter}getrf_bufferSize", "piipip", 32, *asked)
            with on.scratch(room * size) as (work,):
                for i in range(batch):
                    places = (lu + i * rows * columns * size, rows, work)
                    more = (pivots + i * of_pivots, info + i * _INT)
                    check(getrf(handle, rows, columns, *places, *more))

    return run


def lu_factor(on: Solvers, kernel: Library) -> Launch:
    label: Any = kernel.options[0]
    dtype = kernel.inputs[0]
    factor, copy = _factoring(on, dtype), on.copier(dtype)

    def launch(
        out: int, pivots: int, info: int, a: int, batch: int, rows: int, columns: int, *_: int
    ) -> None:
        with on.scratch(batch * rows * columns * dtype.itemsize) as (lu,):
            factor(lu, a, pivots, info, batch, rows, columns)
            copy(out, lu, batch, rows, columns, (rows * columns, 1, rows))
        if label and (failed := on.failures(info, batch)) is not None:
            host.complain_of_pivots(label, failed)

    return launch


def solve(on: Solvers, kernel: Library) -> Launch:
    label: Any = kernel.options[0]
    dtype = kernel.inputs[0]
    letter, size = LETTERS[dtype], dtype.itemsize
    factor, copy, fill = _factoring(on, dtype), on.copier(dtype), on.kernel("addresses", dtype)
    getrs = on.routine(on.cusolver, f"cusolverDn{letter}getrs", "piiipippip")
    getrs_batched = on.routine(on.cublas, f"cublas{letter}getrsBatched", "piiipippipi")
    wrong = ctypes.c_int()  # whether an argument is

    def run(lu: int, pivots: int, y: int, answer: int, batch: int, n: int, columns: int) -> None:
        if _batched(batch, n):
            fill(answer, lu, n * n * size, y, n * columns * size, batch)
            how = (on.blas(), PLAIN, n, columns, answer, n, pivots, answer + 8 * batch, n)
            check(getrs_batched(*how, ctypes.addressof(wrong), batch))
            return
        handle = on.solver()
        for i in range(batch):
            matrix, exchanges = lu + i * n * n * size, pivots + i * n * _INT
            right = y + i * n * columns * size
            check(getrs(handle, PLAIN, n, columns, matrix, n, exchanges, right, n, answer))

    def launch(
        x: int, info: int, a: int, b: int, batch: int, n: int, columns: int, *_: int
    ) -> None:
        rooms = (batch * n * n * size, batch * n * _INT, batch * n * columns * size, 16 * batch)
        with on.scratch(*rooms) as (lu, pivots, y, answer):
            factor(lu, a, pivots, info, batch, n, n)
            if batch * n * columns:
                copy(y, b, batch, columns, n, (n * columns, 1, columns))
                run(lu, pivots, y, answer, batch, n, columns)
                copy(x, y, batch, n, columns, (n * columns, 1, n))
        if label and (failed := on.failures(info, batch)) is not None:
            host.complain_of_singular(label, failed)

    return launch


def determinant(on: Solvers, kernel: Library) -> Launch:
    """The determinant; or its sign, and the logarithm of its size."""
    dtype, several = kernel.inputs[0], len(kernel.outputs) > 1
    factor, multiply = _factoring(on, dtype), on.kernel("determinant", dtype)

    def launch(*numbers: int) -> None:
        out, log = numbers[0], numbers[1] if several else 0
        a, (batch, n) = numbers[len(kernel.outputs)], numbers[-3:-1]
        rooms = (batch * n * n * dtype.itemsize, batch * n * _INT, batch * _INT)
        with on.scratch(*rooms) as (lu, pivots, info):
            factor(lu, a, pivots, info, batch, n, n)
            multiply(out, log, lu, pivots, batch, n)

    return launch


# ---- Cholesky ----


def cholesky(on: Solvers, kernel: Library) -> Launch:
    """By columns cuSOLVER's lower triangle is twice as fast as the upper one.

    A copy by columns has L there. Of A = U^H U the copy by rows, conj(A) by columns, has U^T, which
    is U by rows.
    """
    label: Any
    upper, label = kernel.options
    dtype = kernel.inputs[0]
    letter, size, kind = LETTERS[dtype], dtype.itemsize, TYPES[dtype]
    potrf = on.routine(on.cusolver, "cusolverDnXpotrf", "ppiqipqipqpqp")
    potrf_batched = on.routine(on.cusolver, f"cusolverDn{letter}potrfBatched", "piipipi")
    fill, finish, copy = (
        on.kernel("addresses", dtype),
        on.kernel("triangle", dtype),
        on.copier(dtype),
    )

    def run(factor: int, found: int, batch: int, n: int) -> None:
        if batch > 1:
            with on.scratch(16 * batch) as (table,):
                fill(table, factor, n * n * size, factor, 0, batch)
                check(potrf_batched(on.solver(), LOWER, n, table, n, found, batch))
            return
        how = (on.params, LOWER, n, kind, ANYWHERE, n, kind)
        room, room_of_host = on.rooms("Xpotrf_bufferSize", "ppiqipqipp", 64, *how)
        aside = ctypes.create_string_buffer(room_of_host) if room_of_host else None
        with on.scratch(room) as (work,):
            place = (on.params, LOWER, n, kind, factor, n, kind, work, room)
            on_host = 0 if aside is None else ctypes.addressof(aside)
            check(potrf(on.solver(), *place, on_host, room_of_host, found))

    def launch(out: int, info: int, a: int, batch: int, n: int, *_: int) -> None:
        if not n:
            on.clear(info, batch * _INT)
        if not batch * n:
            return
        steps = (n, 1) if upper else (1, n)
        with on.scratch(batch * n * n * size, batch * _INT) as (factor, found):
            copy(factor, a, batch, n, n, (n * n, *steps))
            run(factor, found, batch, n)
            finish(out, info, factor, found, batch, n, n, n * n, *steps, upper)
        if label and (failed := on.failures(info, batch)) is not None:
            host.complain_of_minors(label, failed)

    return launch


# ---- QR ----


def _reflectors(on: Solvers, dtype: DType) -> Callable[..., None]:
    """`run(made, tau, batch, rows, columns)`: R with the reflectors of Q below it, by columns."""
    letter, size = LETTERS[dtype], dtype.itemsize
    one = on.routine(on.cusolver, f"cusolverDn{letter}geqrf", "piipippip")
    several = on.routine(on.cublas, f"cublas{letter}geqrfBatched", "piipippi")
    fill = on.kernel("addresses", dtype)
    wrong = ctypes.c_int()  # whether an argument is

    def run(made: int, tau: int, batch: int, rows: int, columns: int) -> None:
        least, of_made = min(rows, columns), rows * columns * size
        if _together(batch, columns):
            with on.scratch(16 * batch) as (table,):
                fill(table, made, of_made, tau, least * size, batch)
                how = (on.blas(), rows, columns, table, rows, table + 8 * batch)
                check(several(*how, ctypes.addressof(wrong), batch))
            return
        asked = (rows, columns, ANYWHERE, rows)
        (room,) = on.rooms(f"{letter}geqrf_bufferSize", "piipip", 32, *asked)
        handle = on.solver()
        with on.scratch(room * size, _INT) as (work, answer):
            for i in range(batch):
                place, factors = made + i * of_made, tau + i * least * size
                check(one(handle, rows, columns, place, rows, factors, work, room, answer))

    return run


def _orthogonal(on: Solvers, dtype: DType) -> Callable[..., None]:
    """`run(q, made, tau, batch, rows, columns, across)`: the first columns of each Q, by rows.

    `made` and `tau` are those of `_reflectors`; `made` is overwritten.
    """
    size = dtype.itemsize
    name = f"{LETTERS[dtype]}{'ungqr' if dtype.kind == 'c' else 'orgqr'}"
    form = on.routine(on.cusolver, f"cusolverDn{name}", "piiipippip")
    reflect, copy = on.kernel("reflect", dtype), on.copier(dtype)

    def form_all(
        q: int, made: int, tau: int, batch: int, rows: int, across: int, least: int, width: int
    ) -> None:
        """Q's columns in place of the reflectors; a matrix of these has `width` columns."""
        asked = (rows, across, least, ANYWHERE, rows, ANYWHERE)
        (room,) = on.rooms(f"{name}_bufferSize", "piiipipp", 32, *asked)
        handle = on.solver()
        with on.scratch(room * size, _INT) as (work, answer):
            for i in range(batch):
                place, factors = made + i * rows * width * size, tau + i * least * size
                more = (place, rows, factors, work, room, answer)
                check(form(handle, rows, across, least, *more))
        copy(q, made, batch, rows, across, (rows * width, 1, rows))

    def run(q: int, made: int, tau: int, batch: int, rows: int, columns: int, across: int) -> None:
        least, of_made, of_q = min(rows, columns), rows * columns, rows * across
        is_reflected = not least or _together(batch, columns)
        if across <= columns and not is_reflected:
            form_all(q, made, tau, batch, rows, across, least, columns)
            return
        with on.scratch(batch * of_q * size) as (whole,):
            if is_reflected:
                reflect(whole, made, tau, batch, across, rows, least, of_made)
                copy(q, whole, batch, rows, across, (of_q, 1, rows))
            else:
                copy(whole, made, batch, least, rows, (of_made, rows, 1), (of_q, rows))
                form_all(q, whole, tau, batch, rows, across, least, across)

    return run


def qr(on: Solvers, kernel: Library) -> Launch:
    """Q and R; R alone with mode "r"."""
    (mode,) = kernel.options
    dtype = kernel.inputs[0]
    size, cut, copy = dtype.itemsize, on.kernel("triangle", dtype), on.copier(dtype)
    factor, orthogonal = _reflectors(on, dtype), _orthogonal(on, dtype)

    def launch(*numbers: int) -> None:
        *_, batch, rows, columns = numbers
        least = min(rows, columns)
        across = rows if mode == "complete" else least
        r, a = numbers[len(kernel.outputs) - 1], numbers[len(kernel.outputs)]
        with on.scratch(batch * rows * columns * size, batch * least * size) as (made, tau):
            copy(made, a, batch, columns, rows, (rows * columns, 1, columns))
            if batch * least:
                factor(made, tau, batch, rows, columns)
                cut(r, 0, made, 0, batch, across, columns, rows * columns, 1, rows, True)
            if mode != "r" and batch * rows * across:
                orthogonal(numbers[0], made, tau, batch, rows, columns, across)

    return launch


def _together(batch: int, columns: int) -> bool:
    """Whether the matrices of a batch are factored together: PyTorch's rule."""
    return columns <= _LARGE and batch >= max(2, columns // 16)


BUILDERS: dict[str, Builder] = {
    "cholesky": cholesky,
    "cholesky_inverse": cholesky_inverse,
    "cholesky_solve": cholesky_solve,
    "det": determinant,
    "lu_factor": lu_factor,
    "qr": qr,
    "slogdet": determinant,
    "solve": solve,
    "triangular": triangular,
}
