"""Eigenvalues of Hermitian matrices and singular values by cuSOLVER.

See `cuda/lapack.py` and Note [Solvers]. A matrix has its eigenvalues by tridiagonal form: for 512
rows of float32 that takes a third of the time of Jacobi's rotations. Singular values are found by
rotations, in half of the time of bidiagonal form. Small matrices of a batch are rotated together.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

from rushlight.core.dtypes import real_type
from rushlight.devices.cuda.lapack import Builder
from rushlight.devices.cuda.solvers import ANYWHERE, LETTERS, LOWER, TYPES, UPPER, Solvers, check
from rushlight.devices.shared.library import lapack as host
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Library

_SMALL = 32  # rows and columns of matrices that are rotated together
_INT = 4  # bytes of an info


@contextlib.contextmanager
def _settings(on: Solvers, kind: str) -> Iterator[int]:
    """The settings of Jacobi's rotations, "Syevj" or "Gesvdj"; a call writes into them."""
    made = ctypes.c_void_p()
    check(getattr(on.cusolver, f"cusolverDnCreate{kind}Info")(ctypes.byref(made)))
    try:
        yield made.value or 0
    finally:
        getattr(on.cusolver, f"cusolverDnDestroy{kind}Info")(made)


# ---- eigenvalues ----

Run = Callable[[int, int, int, int, int], None]  # a, values, info, batch, n: vectors replace a


def _rotated(on: Solvers, kernel: Library, vectors: bool, uplo: int) -> Run:
    """All matrices at once, by Jacobi's rotations."""
    dtype = kernel.inputs[0]
    name = f"cusolverDn{LETTERS[dtype]}{'he' if dtype.kind == 'c' else 'sy'}evjBatched"
    rotate, ask = on.slow(name, "piiipippippi"), on.slow(f"{name}_bufferSize", "piiipipppi")

    def run(a: int, values: int, info: int, batch: int, n: int) -> None:
        how, room = (int(vectors), uplo, n), ctypes.c_int()
        with _settings(on, "Syevj") as settings:
            operands = (ANYWHERE, n, ANYWHERE, ctypes.addressof(room))
            ask(on.solver(), *how, *operands, settings, batch)
            with on.scratch(room.value * dtype.itemsize) as (work,):
                place = (a, n, values, work, room.value, info)
                rotate(on.solver(), *how, *place, settings, batch)

    return run


def _reduced(on: Solvers, kernel: Library, vectors: bool, uplo: int) -> Run:
    """By tridiagonal form: one after another, or together where the library can."""
    dtype, real = kernel.inputs[0], real_type(kernel.inputs[0])
    kind, kind_of_values = TYPES[dtype], TYPES[real]
    kinds = "ppiiqipqipipqpqp"
    one = on.slow("cusolverDnXsyevd", kinds)
    has_batches = hasattr(on.cusolver, "cusolverDnXsyevBatched")
    several = on.slow("cusolverDnXsyevBatched", f"{kinds}q") if has_batches else one

    def run(a: int, values: int, info: int, batch: int, n: int) -> None:
        count = batch if has_batches else 1
        name, call, end = ("syevd", one, ()) if count == 1 else ("syevBatched", several, (count,))
        how = (on.params, int(vectors), uplo, n, kind)
        asked = (*how, ANYWHERE, n, kind_of_values, ANYWHERE, kind)
        asking = "ppiiqipqipipp" + "q" * len(end)
        room, room_of_host = on.rooms(f"X{name}_bufferSize", asking, 64, *asked, after=end)
        aside = ctypes.create_string_buffer(max(room_of_host, 1))
        with on.scratch(room) as (work,):
            rest = (kind, work, room, ctypes.addressof(aside), room_of_host)
            for i in range(0, batch, count):
                matrix, its_values = a + i * n * n * dtype.itemsize, values + i * n * real.itemsize
                place = (matrix, n, kind_of_values, its_values, *rest, info + i * _INT)
                call(on.solver(), *how, *place, *end)

    return run


def eigh(on: Solvers, kernel: Library) -> Launch:
    """Eigenvalues, ascending, and eigenvectors; or eigenvalues alone."""
    (triangle,) = kernel.options
    dtype, vectors = kernel.inputs[0], len(kernel.outputs) > 1
    uplo, copy = LOWER if triangle == "L" else UPPER, on.copier(dtype)
    rotated, reduced = (make(on, kernel, vectors, uplo) for make in (_rotated, _reduced))
    label = "linalg.eigh" if vectors else "linalg.eigvalsh"

    def launch(*numbers: int) -> None:
        *_, batch, n, _n = numbers
        if not batch * n:
            return
        with on.scratch(batch * n * n * dtype.itemsize, batch * _INT) as (made, info):
            copy(made, numbers[len(kernel.outputs)], batch, n, n, (n * n, 1, n))
            run = rotated if batch > 1 and n <= _SMALL else reduced
            run(made, numbers[0], info, batch, n)
            if vectors:
                copy(numbers[1], made, batch, n, n, (n * n, 1, n))
            failed = on.failures(info, batch)
        if failed is not None:
            raise host.not_converging(label)

    return launch


# ---- singular values ----


def _rotations(on: Solvers, kernel: Library, vectors: bool) -> Callable[..., None]:
    """`run(a, s, left, right, info, batch, m, n, across, along)`, all by columns.

    `across` and `along` are the columns of the factors; they are `m` and `n` where matrices are
    rotated together.
    """
    dtype, real = kernel.inputs[0], real_type(kernel.inputs[0])
    size, name = dtype.itemsize, f"cusolverDn{LETTERS[dtype]}gesvdj"
    one, ask = on.slow(name, "piiiipippipipipp"), on.slow(f"{name}_bufferSize", "piiiipippipipp")
    several = on.slow(f"{name}Batched", "piiipippipipippi")
    ask_several = on.slow(f"{name}Batched_bufferSize", "piiipippipippi")

    def run(
        a: int, s: int, left: int, right: int, info: int, batch: int, m: int, n: int, across: int,
        along: int,
    ) -> None:  # fmt: skip
        handle, k, together = on.solver(), min(m, n), _is_rotated_together(batch, m, n)
        how = (int(vectors), *(() if together else (int(across == along),)), m, n)
        with _settings(on, "Gesvdj") as settings:
            room = room_of((*how, batch * together), handle, settings)
            with on.scratch(room * size) as (work,):
                if together:
                    whole = (a, m, s, left, m, right, n, work, room, info)
                    several(handle, *how, *whole, settings, batch)
                    return
                for i in range(batch):
                    place = (a + i * m * n * size, m, s + i * k * real.itemsize)
                    factors = (left + i * m * across * size, m, right + i * n * along * size, n)
                    one(handle, *how, *place, *factors, work, room, info + i * _INT, settings)

    def room_of(how: tuple[int, ...], handle: int, settings: int) -> int:
        known: int | None = on.asked.get((name, how))
        if known is None:
            *begin, m, n, batch = how
            found = ctypes.c_int()
            operands = (ANYWHERE, m, ANYWHERE, ANYWHERE, m, ANYWHERE, n, ctypes.addressof(found))
            if batch:
                ask_several(handle, *begin, m, n, *operands, settings, batch)
            else:
                ask(handle, *begin, m, n, *operands, settings)
            known = on.asked.keep((name, how), found.value)
        return known

    return run


def _is_rotated_together(batch: int, m: int, n: int) -> bool:
    return batch > 1 and max(m, n) <= _SMALL


def svd(on: Solvers, kernel: Library, otherwise: Launch) -> Launch:
    """U, singular values and V^H; or the values alone.

    The routine gets A, or A^T where A is wider than high: A^T = conj(V) S conj(U)^H. V^H by rows is
    conj(V) by columns. Where the rotations do not end, or a value is not finite, `otherwise` runs,
    which refuses a matrix that is not finite.
    """
    vectors = len(kernel.outputs) > 1
    full = bool(vectors and kernel.options[0])
    dtype, real = kernel.inputs[0], real_type(kernel.inputs[0])
    rotate, copy = _rotations(on, kernel, vectors), on.copier(dtype)
    turn = on.conjugate(dtype) if dtype.kind == "c" else None
    check_finite = on.kernel("refuse_infinite", real)

    def launch(*numbers: int) -> None:
        *_, batch, rows, columns = numbers
        k, high = min(rows, columns), rows >= columns
        if not batch * k:
            otherwise(*numbers)
            return
        s, a = numbers[int(vectors)], numbers[len(kernel.outputs)]
        m, n = (rows, columns) if high else (columns, rows)
        whole = full or _is_rotated_together(batch, m, n)
        across, along = (m, n) if whole else (k, k)
        rooms = [batch * dtype.itemsize * count for count in (m * n, m * across, n * along)]
        with on.scratch(*rooms, batch * _INT) as (made, left, right, info):
            copy(made, a, batch, n, m, (m * n, 1, n) if high else (m * n, m, 1))
            rotate(made, s, left, right, info, batch, m, n, across, along)
            if vectors:
                u, v = (left, right) if high else (right, left)
                give(numbers, u, v, batch, rows, columns, whole)
            check_finite(info, s, batch, k)
            failed = on.failures(info, batch)
        if failed is not None:
            otherwise(*numbers)

    def give(
        numbers: tuple[int, ...], u: int, v: int, batch: int, rows: int, columns: int, whole: bool
    ) -> None:
        """U and V^H by rows, of the factors by columns."""
        k = min(rows, columns)
        high, wide = (rows, columns) if full else (k, k)
        there, over = (rows, columns) if whole else (k, k)
        copy(numbers[0], u, batch, rows, high, (rows * there, 1, rows))
        copy(numbers[2], v, batch, wide, columns, (columns * over, columns, 1))
        if turn is not None and rows >= columns:
            turn(numbers[2], batch * wide * columns)
        elif turn is not None:
            turn(numbers[0], batch * rows * high)

    return launch


BUILDERS: dict[str, Builder] = {"eigh": eigh, "eigvalsh": eigh}
