"""Solvers on CUDA, with NumPy's arrays in place of CuPy's and routines that work on addresses.

The routines are those of cuBLAS and cuSOLVER as far as `devices/cuda/lapack.py` calls them: they
see columns, and take whole numbers for addresses. CuPy's kernels are compiled for the host.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rushlight.core.errors import LinAlgError
from rushlight.devices.cuda import lapack

_LOOP = """
#include <cstring>
typedef {kind} T;
static float __int_as_float(int bits) {{ float x; std::memcpy(&x, &bits, 4); return x; }}
extern "C" void run(long long size, {taken}) {{
    for (long long i = 0; i < size; ++i) {{
        {elements}
        {operation};
    }}
}}
"""
_KINDS = {"T": "T", "int32": "int", "int64": "long long"}


class Array(np.ndarray):
    """An array with the address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, owner=self)


class ElementwiseKernel:
    """CuPy's, compiled for the host; the first argument tells the number of elements."""

    def __init__(self, folder: Path, ins: str, outs: str, operation: str, name: str) -> None:
        self.folder, self.operation = folder, operation
        self.params = [param.split() for param in f"{ins}, {outs}".split(", ")]

    def __call__(self, *given: Any) -> None:
        taken, elements, values, kept = [], [], [], []
        for words, value in zip(self.params, given, strict=True):
            kind, name = _KINDS[words[-2]], words[-1]
            if isinstance(value, int):
                taken.append(f"{kind} {name}")
                values.append(ctypes.c_longlong(value))
                continue
            # An element of what is not raw is found by its strides.
            value = value if words[0] == "raw" else np.ascontiguousarray(value)
            kept.append(value)
            values.append(ctypes.c_void_p(value.ctypes.data))
            if words[0] == "raw":
                taken.append(f"{kind}* {name}")
            else:
                taken.append(f"{kind}* {name}_")
                elements.append(f"{kind}& {name} = {name}_[i];")
        text = _LOOP.format(
            kind="float" if given[0].dtype == np.float32 else "double",
            taken=", ".join(taken),
            elements=" ".join(elements),
            operation=self.operation,
        )
        number = len(list(self.folder.iterdir()))
        source, library = self.folder / f"{number}.cpp", self.folder / f"{number}.so"
        source.write_text(text)
        command = ["g++", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        ctypes.CDLL(str(library)).run(ctypes.c_longlong(given[0].size), *values)


def at(address: int, shape: tuple[int, ...], kind: Any) -> Any:
    """Memory as an array by columns."""
    count = int(np.prod(shape)) * np.dtype(kind).itemsize
    raw = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(raw, kind).reshape(shape, order="F")


class Routines:
    """cuBLAS's and cuSOLVER's, for one type."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def getrf_bufferSize(self, handle: int, rows: int, columns: int, a: int, lead: int) -> int:
        return 8

    def potrf_bufferSize(self, handle: int, uplo: int, n: int, a: int, lead: int) -> int:
        return 8

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
        for k, a in enumerate(at(places, (batch,), np.uintp)):
            self.getrf(handle, n, n, int(a), lead, 0, pivots + 4 * n * k, info + 4 * k)

    def getrs(
        self, handle: int, plain: int, n: int, columns: int, a: int, lead: int, pivots: int,
        b: int, lead_b: int, info: int,
    ) -> None:  # fmt: skip
        matrix, right = at(a, (n, n), self.kind), at(b, (n, columns), self.kind)
        for k, p in enumerate(at(pivots, (n,), "i4")):
            right[[k, p - 1]] = right[[p - 1, k]]
        lower = np.tril(matrix, -1) + np.eye(n)
        right[...] = np.linalg.solve(lower, right)
        singular = (np.diag(matrix) == 0).any()
        right[...] = np.inf if singular else np.linalg.solve(np.triu(matrix), right)
        at(info, (1,), "i4")[0] = 0

    def getrsBatched(
        self, handle: int, plain: int, n: int, columns: int, places: int, lead: int, pivots: int,
        targets: int, lead_b: int, answer: int, batch: int,
    ) -> None:  # fmt: skip
        pairs = zip(at(places, (batch,), np.uintp), at(targets, (batch,), np.uintp), strict=True)
        for k, (a, b) in enumerate(pairs):
            own = pivots + 4 * n * k
            self.getrs(handle, plain, n, columns, int(a), lead, own, int(b), n, answer)

    def trsm(
        self, handle: int, side: int, uplo: int, plain: int, unit: int, m: int, n: int,
        one: int, a: int, lead: int, b: int, lead_b: int,
    ) -> None:  # fmt: skip
        assert (side, plain, lead, lead_b) == (1, 0, n, m) and at(one, (1,), self.kind)[0] == 1
        whole, right = at(a, (n, n), self.kind), at(b, (m, n), self.kind)
        matrix = np.triu(whole) if uplo else np.tril(whole)
        if unit:
            matrix = matrix - np.diag(np.diag(matrix)) + np.eye(n)
        right[...] = right @ np.linalg.inv(matrix)

    def trsmBatched(self, *numbers: int) -> None:
        *how, places, lead, targets, lead_b, batch = numbers
        pairs = zip(at(places, (batch,), np.uintp), at(targets, (batch,), np.uintp), strict=True)
        for a, b in pairs:
            self.trsm(*how, int(a), lead, int(b), lead_b)

    def geqrf_bufferSize(self, handle: int, rows: int, columns: int, a: int, lead: int) -> int:
        return 8

    def orgqr_bufferSize(
        self, handle: int, rows: int, columns: int, k: int, a: int, lead: int, tau: int
    ) -> int:
        return 16

    def geqrf(
        self, handle: int, rows: int, columns: int, a: int, lead: int, tau: int, work: int,
        room: int, info: int,
    ) -> None:  # fmt: skip
        assert (lead, room) == (rows, 8)
        matrix, factors = (
            at(a, (rows, columns), self.kind),
            at(tau, (min(rows, columns),), self.kind),
        )
        for k in range(len(factors)):
            column = matrix[k:, k].copy()
            norm = np.linalg.norm(column)
            first = -norm if column[0] >= 0 else norm
            factors[k] = (first - column[0]) / first if len(column) > 1 else 0
            if factors[k] == 0:
                continue
            v = column / (column[0] - first)
            v[0] = 1
            matrix[k:, k:] -= factors[k] * np.outer(v, v @ matrix[k:, k:])
            matrix[k + 1 :, k] = v[1:]

    def orgqr(
        self, handle: int, rows: int, columns: int, k: int, a: int, lead: int, tau: int,
        work: int, room: int, info: int,
    ) -> None:  # fmt: skip
        assert (lead, room) == (rows, 16)
        matrix, factors = at(a, (rows, columns), self.kind), at(tau, (k,), self.kind)
        q = np.eye(rows, columns)
        for j in reversed(range(k)):
            v = np.concatenate([np.zeros(j), [1.0], matrix[j + 1 :, j]])
            q -= factors[j] * np.outer(v, v @ q)
        matrix[...] = q

    def potrf(
        self, handle: int, uplo: int, n: int, a: int, lead: int, work: int, room: int, info: int
    ) -> None:
        assert uplo == 1  # by columns the upper triangle
        matrix, failed = at(a, (n, n), self.kind), 0
        for k in range(n):
            pivot = matrix[k, k] - matrix[:k, k] @ matrix[:k, k]
            if pivot <= 0:
                failed = k + 1
                break
            matrix[k, k] = np.sqrt(pivot)
            rest = matrix[k, k + 1 :] - matrix[:k, k] @ matrix[:k, k + 1 :]
            matrix[k, k + 1 :] = rest / matrix[k, k]
        at(info, (1,), "i4")[0] = failed

    def potrfBatched(
        self, handle: int, uplo: int, n: int, places: int, lead: int, info: int, batch: int
    ) -> None:
        for k, a in enumerate(at(places, (batch,), np.uintp)):
            self.potrf(handle, uplo, n, int(a), lead, 0, 0, info + 4 * k)


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")

    def filled(*args: Any, **named: Any) -> Any:
        made = np.empty(*args, **named).view(Array)
        made.view(np.uint8)[...] = 0x5A  # what nobody writes is seen
        return made

    module = SimpleNamespace(
        uintp=np.uintp,
        empty=filled,
        empty_like=lambda a: filled(a.shape, a.dtype),
        array=lambda a, order: np.array(a, order=order).view(Array),
        arange=lambda *args, **named: np.arange(*args, **named).view(Array),
        ElementwiseKernel=lambda *args: ElementwiseKernel(tmp_path, *args),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    for name in ("_cublas", "_cusolver"):
        monkeypatch.setattr(
            lapack, name, lambda array, routine: (getattr(Routines(array.dtype), routine), 1)
        )
    _forget()
    yield
    _forget()


def _forget() -> None:
    """On a card the other tests need CuPy's own kernels and arrays."""
    for kept in (lapack._one, lapack._finish, lapack._upper):
        kept.cache_clear()


def ours(x: Any) -> Array:
    return np.ascontiguousarray(x).view(Array)


def room(shape: tuple[int, ...], kind: Any) -> Array:
    made = np.empty(shape, kind).view(Array)
    made.view(np.uint8)[...] = 0x77
    return made


def matrices(batch: int, n: int, kind: Any) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((batch, n, n)).astype(kind)


SHAPES = [(1, 5), (3, 5), (2, 1)]


@pytest.mark.parametrize("batch, n", [*SHAPES, (2, 300)])
def test_solve(batch: int, n: int) -> None:
    a = matrices(batch, n, np.float64) + n * np.eye(n)[::-1]
    b = np.random.default_rng(1).standard_normal((batch, n, 2))
    x, info = room(b.shape, np.float64), room((batch,), np.int32)
    lapack.solve([x, info], [ours(a), ours(b)], "linalg.solve")
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-9, atol=1e-9)
    assert not info.any()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_singular_matrix_is_told(batch: int) -> None:
    a = np.zeros((batch, 2, 2)) + np.array([[1.0, 2], [2, 4]])
    outs = [room((batch, 2, 1), np.float64), room((batch,), np.int32)]
    lapack.solve(outs, [ours(a), ours(np.ones((batch, 2, 1)))], "")
    assert outs[1].tolist() == [2] * batch
    with pytest.raises(LinAlgError, match="singular"):
        lapack.solve(outs, [ours(a), ours(np.ones((batch, 2, 1)))], "linalg.solve")


@pytest.mark.parametrize("batch, rows, columns", [(1, 4, 4), (3, 4, 4), (2, 3, 5), (2, 5, 3)])
def test_lu(batch: int, rows: int, columns: int) -> None:
    a = np.random.default_rng(2).standard_normal((batch, rows, columns))
    k = min(rows, columns)
    outs = [room(a.shape, np.float64), room((batch, k), np.int32), room((batch,), np.int32)]
    lapack.lu_factor(outs, [ours(a)], "")
    for lu, pivots, whole in zip(outs[0], outs[1], a, strict=True):
        product = (np.tril(lu, -1)[:, :k] + np.eye(rows, k)) @ np.triu(lu)[:k]
        for i in reversed(range(k)):
            product[[i, pivots[i] - 1]] = product[[pivots[i] - 1, i]]
        np.testing.assert_allclose(product, whole, rtol=1e-9, atol=1e-9)
    assert not outs[2].any()


def test_lu_of_nothing_has_zeros() -> None:
    outs = [room((2, 0, 3), np.float64), room((2, 0), np.int32), room((2,), np.int32)]
    lapack.lu_factor(outs, [ours(np.ones((2, 0, 3)))], "")
    assert outs[2].tolist() == [0, 0]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch, n", [*SHAPES, (2, 260)])
def test_triangular(batch: int, n: int, upper: bool) -> None:
    a = matrices(batch, n, np.float64) / n + 2 * np.eye(n)
    b = np.random.default_rng(3).standard_normal((batch, n, 3))
    x = room(b.shape, np.float64)
    lapack.triangular([x], [ours(a), ours(b)], upper, False)
    half = np.triu(a) if upper else np.tril(a)
    np.testing.assert_allclose(x, np.linalg.solve(half, b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("batch, n", SHAPES)
def test_cholesky(batch: int, n: int, kind: Any, upper: bool) -> None:
    half = matrices(batch, n, kind)
    a = (half @ half.swapaxes(-1, -2) + n * np.eye(n)).astype(kind)
    out, info = room(a.shape, kind), room((batch,), np.int32)
    lapack.cholesky([out, info], [ours(a)], upper, "linalg.cholesky")
    want = np.linalg.cholesky(a)
    want = want.swapaxes(-1, -2) if upper else want
    np.testing.assert_allclose(out, want, rtol=1e-4)
    assert not info.any()


@pytest.mark.parametrize("batch", [1, 4])
def test_where_cholesky_fails(batch: int) -> None:
    """A minor that is not positive, a NaN in the first, in a later and in the last column."""
    a = np.stack([np.eye(4) for _ in range(4)])
    a[0, 2, 2] = -1
    a[1, 0, 0] = np.nan
    a[2, 2, 2] = np.nan
    a[3, 3, 3] = np.nan
    want = [3, 1, 3, 4]
    for first in range(0, 4, batch):
        some = a[first : first + batch]
        outs = [room(some.shape, np.float64), room((batch,), np.int32)]
        lapack.cholesky(outs, [ours(some)], False, "")
        assert outs[1].tolist() == want[first : first + batch]
        assert np.isnan(np.tril(outs[0])[:, 0, 0]).all() and not np.triu(outs[0], 1).any()


def test_cholesky_of_nothing() -> None:
    outs = [room((2, 0, 0), np.float64), room((2,), np.int32)]
    lapack.cholesky(outs, [ours(np.ones((2, 0, 0)))], False, "linalg.cholesky")
    assert outs[1].tolist() == [0, 0]


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("batch, rows, columns", [(1, 4, 4), (3, 5, 3), (2, 3, 5), (2, 1, 1)])
def test_qr(batch: int, rows: int, columns: int, mode: str) -> None:
    a = np.random.default_rng(4).standard_normal((batch, rows, columns))
    want = [np.linalg.qr(one, mode) for one in a]
    shapes = [x.shape for x in ((want[0],) if mode == "r" else want[0])]
    outs = [room((batch, *shape), np.float64) for shape in shapes]
    lapack.qr(outs, [ours(a)], mode)
    r = np.asarray(outs[-1])
    assert not np.tril(r, -1).any()
    if mode == "r":
        found = np.abs(r)
        np.testing.assert_allclose(found, np.abs(np.stack(want)), rtol=1e-9, atol=1e-9)
        return
    q = np.asarray(outs[0])
    np.testing.assert_allclose(q @ r, a, rtol=1e-9, atol=1e-9)
    one = np.broadcast_to(np.eye(q.shape[-1]), (batch, q.shape[-1], q.shape[-1]))
    np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, one, rtol=1e-9, atol=1e-9)
