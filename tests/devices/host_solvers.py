"""cuBLAS's and cuSOLVER's routines on host memory, as `devices/cuda/lapack.py` calls them.

They see columns and take whole numbers for addresses. Own kernels are those of the CPU; the kernels
of `matrix_kernels` are compiled for the host, a thread each.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.devices.cuda import matrix_kernels
from rushlight.devices.cuda.solvers import ADJOINT, LEFT, LETTERS, LOWER, PLAIN, TYPES, Solvers
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Library

_SHIM = """
#include <cmath>
#include <cstring>
#define __global__
#define __device__ [[maybe_unused]] static
#define LANES 1
using std::log; using std::hypot;
struct Place { long long x; };
static const Place blockIdx{0}, blockDim{1}, gridDim{1}, threadIdx{0};
static float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, 4); return x; }
template <class X> X __shfl_xor_sync(unsigned, X x, int) { return x; }
"""


def at(address: int, shape: tuple[int, ...], kind: Any) -> Any:
    """Memory as an array by columns."""
    count = int(np.prod(shape)) * np.dtype(kind).itemsize
    raw = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(raw, kind).reshape(shape, order="F")


def _places(table: int, batch: int) -> list[int]:
    return at(table, (batch,), np.uintp).tolist()


class Routines:
    """By the names after the library's prefix and the type's letter."""

    def __init__(self, kind: Any) -> None:
        self.kind = np.dtype(kind)
        self.real = np.empty(0, kind).real.dtype

    # ---- triangles ----

    def trsm_v2(
        self, handle: int, side: int, uplo: int, op: int, unit: int, m: int, n: int, one: int,
        a: int, lead: int, b: int, lead_b: int,
    ) -> None:  # fmt: skip
        size = m if side == LEFT else n
        assert (lead, lead_b) == (size, m) and at(one, (1,), self.kind)[0] == 1
        whole, right = at(a, (size, size), self.kind), at(b, (m, n), self.kind)
        matrix = np.tril(whole) if uplo == LOWER else np.triu(whole)
        if unit:
            matrix = matrix - np.diag(np.diag(matrix)) + np.eye(size)
        turned = matrix if op == PLAIN else matrix.T.conj() if op == ADJOINT else matrix.T
        inverse = np.linalg.inv(turned)
        right[...] = inverse @ right if side == LEFT else right @ inverse

    def trsmBatched(self, *numbers: int) -> None:
        *how, places, lead, targets, lead_b, batch = numbers
        for a, b in zip(_places(places, batch), _places(targets, batch), strict=True):
            self.trsm_v2(*how, a, lead, b, lead_b)

    # ---- LU ----

    def getrf(
        self, handle: int, rows: int, columns: int, a: int, lead: int, work: int, pivots: int,
        info: int,
    ) -> None:  # fmt: skip
        assert lead == rows
        matrix, order = at(a, (rows, columns), self.kind), at(pivots, (min(rows, columns),), "i4")
        failed = 0
        for k in range(min(rows, columns)):
            p = k + int(np.argmax(np.abs(matrix[k:, k])))
            order[k] = p + 1
            matrix[[k, p]] = matrix[[p, k]]
            if matrix[k, k] == 0:
                failed = failed or k + 1
                continue
            matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
        at(info, (1,), "i4")[0] = failed

    def getrfBatched(
        self, handle: int, n: int, places: int, lead: int, pivots: int, info: int, batch: int
    ) -> None:
        for k, a in enumerate(_places(places, batch)):
            self.getrf(handle, n, n, a, lead, 0, pivots + 4 * n * k, info + 4 * k)

    def getrs(
        self, handle: int, op: int, n: int, columns: int, a: int, lead: int, pivots: int, b: int,
        lead_b: int, info: int,
    ) -> None:  # fmt: skip
        assert (op, lead, lead_b) == (PLAIN, n, n)
        matrix, right = at(a, (n, n), self.kind), at(b, (n, columns), self.kind)
        for k, p in enumerate(at(pivots, (n,), "i4")):
            right[[k, p - 1]] = right[[p - 1, k]]
        right[...] = np.linalg.solve(np.tril(matrix, -1) + np.eye(n), right)
        singular = (np.diag(matrix) == 0).any()
        right[...] = np.inf if singular else np.linalg.solve(np.triu(matrix), right)
        at(info, (1,), "i4")[0] = 0

    def getrsBatched(
        self, handle: int, op: int, n: int, columns: int, places: int, lead: int, pivots: int,
        targets: int, lead_b: int, answer: int, batch: int,
    ) -> None:  # fmt: skip
        pairs = zip(_places(places, batch), _places(targets, batch), strict=True)
        for k, (a, b) in enumerate(pairs):
            self.getrs(handle, op, n, columns, a, lead, pivots + 4 * n * k, b, lead_b, answer)

    # ---- Cholesky ----

    def potrf(self, n: int, a: int, info: int) -> None:
        matrix, failed = at(a, (n, n), self.kind), 0
        for k in range(n):  # only the lower triangle is read and written
            pivot = (matrix[k, k] - matrix[k, :k] @ matrix[k, :k].conj()).real
            if pivot <= 0:
                failed = k + 1
                break
            matrix[k, k] = np.sqrt(pivot)
            with np.errstate(invalid="ignore"):  # of NaN
                rest = matrix[k + 1 :, k] - matrix[k + 1 :, :k] @ matrix[k, :k].conj()
                matrix[k + 1 :, k] = rest / matrix[k, k]
        at(info, (1,), "i4")[0] = failed

    def Xpotrf(
        self, handle: int, params: int, uplo: int, n: int, kind: int, a: int, lead: int,
        compute: int, work: int, room: int, host: int, host_room: int, info: int,
    ) -> None:  # fmt: skip
        assert (uplo, lead, kind) == (LOWER, n, compute) and bool(host) == bool(host_room)
        self.potrf(n, a, info)

    def potrfBatched(
        self, handle: int, uplo: int, n: int, places: int, lead: int, info: int, batch: int
    ) -> None:
        assert (uplo, lead) == (LOWER, n)
        for k, a in enumerate(_places(places, batch)):
            self.potrf(n, a, info + 4 * k)

    # ---- QR ----

    def geqrf(
        self, handle: int, rows: int, columns: int, a: int, lead: int, tau: int, work: int,
        room: int, info: int,
    ) -> None:  # fmt: skip
        assert lead == rows
        matrix = at(a, (rows, columns), self.kind)
        factors = at(tau, (min(rows, columns),), self.kind)
        for k in range(len(factors)):
            column = matrix[k:, k].copy()
            norm = np.linalg.norm(column)
            first = -norm if column[0].real >= 0 else norm
            factors[k] = 0 if norm == 0 else (first - column[0]) / first
            if factors[k] == 0:
                continue
            v = column / (column[0] - first)
            v[0] = 1
            matrix[k:, k:] -= np.conj(factors[k]) * np.outer(v, v.conj() @ matrix[k:, k:])
            matrix[k + 1 :, k] = v[1:]

    def geqrfBatched(
        self, handle: int, rows: int, columns: int, places: int, lead: int, factors: int,
        wrong: int, batch: int,
    ) -> None:  # fmt: skip
        for a, tau in zip(_places(places, batch), _places(factors, batch), strict=True):
            self.geqrf(handle, rows, columns, a, lead, tau, 0, 0, 0)

    def orgqr(
        self, handle: int, rows: int, columns: int, k: int, a: int, lead: int, tau: int,
        work: int, room: int, info: int,
    ) -> None:  # fmt: skip
        assert lead == rows
        matrix, factors = at(a, (rows, columns), self.kind), at(tau, (k,), self.kind)
        q = np.eye(rows, columns, dtype=self.kind)
        for j in reversed(range(k)):
            v = np.concatenate([np.zeros(j), [1.0], matrix[j + 1 :, j]])
            q -= factors[j] * np.outer(v, v.conj() @ q)
        matrix[...] = q

    ungqr = orgqr

    # ---- eigenvalues and singular values ----

    def _eigen(self, vectors: int, uplo: int, n: int, a: int, values: int, info: int) -> None:
        matrix = at(a, (n, n), self.kind)
        found = np.linalg.eigh(matrix, "L" if uplo == LOWER else "U")
        at(values, (n,), self.real)[...] = found[0]
        matrix[...] = found[1] if vectors else np.nan
        at(info, (1,), "i4")[0] = 0

    def Xsyevd(
        self, handle: int, params: int, vectors: int, uplo: int, n: int, kind: int, a: int,
        lead: int, kind_of_values: int, values: int, *rest: int,
    ) -> None:  # fmt: skip
        assert lead == n and len(rest) == 6
        self._eigen(vectors, uplo, n, a, values, rest[-1])

    def XsyevBatched(
        self, handle: int, params: int, vectors: int, uplo: int, n: int, kind: int, a: int,
        lead: int, kind_of_values: int, values: int, *rest: int,
    ) -> None:  # fmt: skip
        *_, info, batch = rest
        self._several(vectors, uplo, n, a, values, info, batch)

    def _several(
        self, vectors: int, uplo: int, n: int, a: int, values: int, info: int, batch: int
    ) -> None:
        for k in range(batch):
            its = values + k * n * self.real.itemsize
            self._eigen(vectors, uplo, n, a + k * n * n * self.kind.itemsize, its, info + 4 * k)

    def syevjBatched(
        self, handle: int, vectors: int, uplo: int, n: int, a: int, lead: int, values: int,
        work: int, room: int, info: int, settings: int, batch: int,
    ) -> None:  # fmt: skip
        assert lead == n <= 32
        self._several(vectors, uplo, n, a, values, info, batch)

    heevjBatched = syevjBatched

    def gesvdj(
        self, handle: int, vectors: int, econ: int, m: int, n: int, a: int, lead: int, s: int,
        u: int, lead_u: int, v: int, lead_v: int, work: int, room: int, info: int, settings: int,
    ) -> None:  # fmt: skip
        assert (lead, lead_u, lead_v) == (m, m, n) and m >= n
        matrix, k = at(a, (m, n), self.kind), min(m, n)
        finite = np.isfinite(matrix).all()
        found = np.linalg.svd(np.where(np.isfinite(matrix), matrix, 0), full_matrices=not econ)
        at(s, (k,), self.real)[...] = found[1] if finite else np.nan
        at(u, found[0].shape, self.kind)[...] = found[0] if vectors else np.nan
        right = found[2].T.conj()
        at(v, right.shape, self.kind)[...] = right if vectors else np.nan
        at(info, (1,), "i4")[0] = 0

    def gesvdjBatched(
        self, handle: int, vectors: int, m: int, n: int, a: int, lead: int, s: int, u: int,
        lead_u: int, v: int, lead_v: int, work: int, room: int, info: int, settings: int,
        batch: int,
    ) -> None:  # fmt: skip
        assert max(m, n) <= 32
        size = self.kind.itemsize
        for k in range(batch):
            self.gesvdj(
                handle, vectors, 0, m, n, a + k * m * n * size, lead,
                s + k * min(m, n) * self.real.itemsize, u + k * m * m * size, lead_u,
                v + k * n * n * size, lead_v, work, room, info + 4 * k, settings,
            )  # fmt: skip


class HostSolvers(Solvers):
    """`Solvers` on host memory for one type."""

    def __init__(self, dtype: DType, folder: Path) -> None:
        pool = pool_of("cpu")
        session = SimpleNamespace(driver=SimpleNamespace(several=False), is_hip=False)
        super().__init__(session, pool.device.build, lambda: pool)  # type: ignore[arg-type]
        self.dtype, self.folder = dtype, folder
        self.routines = Routines(dtype.name)
        self.blas = self.solver = lambda: 1
        self.cublas, self.cusolver = "cublas", _Cusolver()  # type: ignore[misc,assignment]
        self.params = 1  # type: ignore[misc]

    def routine(self, library: Any, name: str, kinds: str) -> Any:
        short = name.removeprefix("cusolverDn").removeprefix("cublas")
        short = short.removeprefix(LETTERS[self.dtype])
        run = getattr(self.routines, short, None)

        def call(*numbers: Any) -> int:
            assert len(numbers) == len(kinds) and all(type(int(n)) is int for n in numbers)
            if short.endswith("_bufferSize"):
                place = next(n for n in numbers if n > 1 << 16)
                at(place, (1,), "i4")[0] = 8
                return 0
            assert run is not None
            run(*numbers)
            return 0

        return call

    def slow(self, name: str, kinds: str) -> Any:
        return self.routine(None, name, kinds)

    def rooms(
        self, name: str, kinds: str, bits: int, *numbers: int, after: tuple[int, ...] = ()
    ) -> list[int]:
        counts = 1 if bits == 32 else 2
        assert len(kinds) == 1 + len(numbers) + counts + len(after)
        assert not any(kind in numbers for kind in TYPES) and "bufferSize" in name
        return [8, 16][:counts]

    def kernel(self, name: str, dtype: DType) -> Any:
        return self._made((name, dtype), lambda: self._compiled(name, dtype))

    def _compiled(self, name: str, dtype: DType) -> Any:
        source, library = (self.folder / f"{name}_{dtype.name}{end}" for end in (".cpp", ".so"))
        if not library.exists():
            source.write_text(_SHIM + matrix_kernels.text_of(name, dtype))
            command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source]
            subprocess.run(command, check=True)
        run, count = ctypes.CDLL(str(library))[name], matrix_kernels.KERNELS[name][1]
        run.argtypes = [ctypes.c_int64] * count
        return run

    def clear(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def failures(self, address: int, count: int) -> Any:
        found = self.read(address, count)
        return found if found.any() else None

    def read(self, address: int, count: int, kind: Any = np.int32) -> Any:
        return at(address, (count,), kind).copy()

    def run(
        self, builder: Any, function: str, outs: list[Any], ins: list[Any], *options: Any,
        **more: Any,
    ) -> None:  # fmt: skip
        """Launch a builder's kernel on arrays."""
        arrays = [*outs, *ins]
        of = [tuple(getattr(dtypes, x.dtype.name) for x in some) for some in (outs, ins)]
        kernel = Library("lapack", function, *of, tuple(x.ndim for x in arrays), options)
        launch = builder(self, kernel, **more)
        launch(*(x.ctypes.data for x in arrays), *(n for x in arrays for n in x.shape))


class _Cusolver:
    """What is called by name: settings are made and destroyed; batches of eigenvalues are there."""

    cusolverDnXsyevBatched = None

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Info"):
            return lambda made: 0
        raise AttributeError(name)
