"""Solvers and factorisations on CUDA, with routines and kernels that work on host memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rushlight.core import dtypes
from rushlight.core.errors import LinAlgError
from rushlight.devices.cuda import lapack, spectra
from tests.devices.host_solvers import HostSolvers

KINDS = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(1, 5), (3, 5), (2, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=KINDS)
def on(request: pytest.FixtureRequest, folder: Path) -> HostSolvers:
    return HostSolvers(getattr(dtypes, np.dtype(request.param).name), folder)


def room(shape: tuple[int, ...], kind: Any) -> Any:
    made = np.empty(shape, kind)
    made.view(np.uint8)[...] = 0x77  # what nobody writes is seen
    return made


def numbers(on: HostSolvers, seed: int, *shape: int) -> Any:
    found = np.random.default_rng(seed).standard_normal((2, *shape))
    kind = on.routines.kind
    return (found[0] + 1j * found[1] if kind.kind == "c" else found[0]).astype(kind)


def close(on: HostSolvers, found: Any, want: Any) -> None:
    exact = on.routines.real == np.float64
    np.testing.assert_allclose(found, want, *((1e-9, 1e-9) if exact else (2e-3, 2e-3)))


def adjoint(a: Any) -> Any:
    return a.swapaxes(-1, -2).conj()


# ---- solving ----


@pytest.mark.parametrize("batch, n", [*SHAPES, (2, 300)])
def test_solve(on: HostSolvers, batch: int, n: int) -> None:
    a = numbers(on, 0, batch, n, n) + n * np.eye(n, dtype=on.routines.kind)[::-1]
    b = numbers(on, 1, batch, n, 2)
    x, info = room(b.shape, b.dtype), room((batch,), np.int32)
    on.run(lapack.solve, "solve", [x, info], [a, b], "linalg.solve")
    close(on, x, np.linalg.solve(a, b))
    assert not info.any()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_singular_matrix_is_told(on: HostSolvers, batch: int) -> None:
    kind = on.routines.kind
    a = (np.zeros((batch, 2, 2)) + np.array([[1.0, 2], [2, 4]])).astype(kind)
    outs, b = [room((batch, 2, 1), kind), room((batch,), np.int32)], np.ones((batch, 2, 1), kind)
    on.run(lapack.solve, "solve", outs, [a, b], "")
    assert outs[1].tolist() == [2] * batch
    with pytest.raises(LinAlgError, match="singular"):
        on.run(lapack.solve, "solve", outs, [a, b], "linalg.solve")


@pytest.mark.parametrize("batch, rows, columns", [(1, 4, 4), (3, 4, 4), (2, 3, 5), (2, 5, 3)])
def test_lu(on: HostSolvers, batch: int, rows: int, columns: int) -> None:
    a, k = numbers(on, 2, batch, rows, columns), min(rows, columns)
    outs = [room(a.shape, a.dtype), room((batch, k), np.int32), room((batch,), np.int32)]
    on.run(lapack.lu_factor, "lu_factor", outs, [a], "linalg.lu_factor")
    for lu, pivots, whole in zip(outs[0], outs[1], a, strict=True):
        product = (np.tril(lu, -1)[:, :k] + np.eye(rows, k)) @ np.triu(lu)[:k]
        for i in reversed(range(k)):
            product[[i, pivots[i] - 1]] = product[[pivots[i] - 1, i]]
        close(on, product, whole)
    assert not outs[2].any()


def test_lu_of_nothing_has_zeros(on: HostSolvers) -> None:
    kind = on.routines.kind
    outs = [room((2, 0, 3), kind), room((2, 0), np.int32), room((2,), np.int32)]
    on.run(lapack.lu_factor, "lu_factor", outs, [np.ones((2, 0, 3), kind)], "")
    assert outs[2].tolist() == [0, 0]


@pytest.mark.parametrize("batch, n", [*SHAPES, (2, 0), (2, 40)])
def test_determinants(on: HostSolvers, batch: int, n: int) -> None:
    a = numbers(on, 5, batch, n, n)
    out, log = room((batch,), a.dtype), room((batch,), on.routines.real)
    on.run(lapack.determinant, "slogdet", [out, log], [a])
    sign, size = np.linalg.slogdet(a)
    close(on, out, sign)
    close(on, log, size)
    on.run(lapack.determinant, "det", [out], [a / 3])
    close(on, out, np.linalg.det(a / 3))


def test_the_determinant_of_a_singular_matrix(on: HostSolvers) -> None:
    a = np.ones((1, 2, 2), on.routines.kind)
    out, log = room((1,), a.dtype), room((1,), on.routines.real)
    on.run(lapack.determinant, "slogdet", [out, log], [a])
    assert out[0] == 0 and log[0] == -np.inf


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch, n", [*SHAPES, (1, 150), (2, 260)])
def test_triangular(on: HostSolvers, batch: int, n: int, upper: bool, unit: bool) -> None:
    one = np.eye(n, dtype=on.routines.kind)
    a, b = numbers(on, 3, batch, n, n) / n + 2 * one, numbers(on, 4, batch, n, 3)
    x = room(b.shape, b.dtype)
    on.run(lapack.triangular, "triangular", [x], [a, b], upper, unit)
    half = np.triu(a, unit) if upper else np.tril(a, -int(unit))
    close(on, x, np.linalg.solve(half + one if unit else half, b))


def positive(on: HostSolvers, batch: int, n: int) -> Any:
    half = numbers(on, n, batch, n, n)
    return (half @ adjoint(half) + n * np.eye(n)).astype(half.dtype)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch, n", SHAPES)
def test_cholesky(on: HostSolvers, batch: int, n: int, upper: bool) -> None:
    a = positive(on, batch, n)
    out, info = room(a.shape, a.dtype), room((batch,), np.int32)
    read = np.triu(a) if upper else np.tril(a)  # the other half is not
    on.run(lapack.cholesky, "cholesky", [out, info], [read], upper, "linalg.cholesky")
    want = np.linalg.cholesky(a)
    close(on, out, adjoint(want) if upper else want)
    assert not info.any()
    b, x, inverse = (
        numbers(on, 6, batch, n, 2),
        room((batch, n, 2), a.dtype),
        room(a.shape, a.dtype),
    )
    on.run(lapack.cholesky_solve, "cholesky_solve", [x], [out, b], upper)
    close(on, x, np.linalg.solve(a, b))
    on.run(lapack.cholesky_inverse, "cholesky_inverse", [inverse], [out], upper)
    close(on, inverse, np.linalg.inv(a))


def test_the_inverse_from_a_factor_with_a_zero_is_refused(on: HostSolvers) -> None:
    factor = np.diag([1.0, 0, 1]).astype(on.routines.kind)[None]
    out = room(factor.shape, factor.dtype)
    with pytest.raises(LinAlgError, match="diagonal element 2 is zero"):
        on.run(lapack.cholesky_inverse, "cholesky_inverse", [out], [factor], False)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_where_cholesky_fails(on: HostSolvers, batch: int, upper: bool) -> None:
    """A minor that is not positive, a NaN in the first, in a later and in the last column."""
    a = np.stack([np.eye(4, dtype=on.routines.kind) for _ in range(4)])
    a[0, 2, 2] = -1
    a[1, 0, 0] = a[2, 2, 2] = a[3, 3, 3] = np.nan
    want = [3, 1, 3, 4]
    for first in range(0, 4, batch):
        some = a[first : first + batch]
        outs = [room(some.shape, some.dtype), room((batch,), np.int32)]
        on.run(lapack.cholesky, "cholesky", outs, [some], upper, "")
        assert outs[1].tolist() == want[first : first + batch]
        assert np.isnan(outs[0][:, 0, 0]).all()
        assert not (np.tril(outs[0], -1) if upper else np.triu(outs[0], 1)).any()
        with pytest.raises(LinAlgError, match="not positive-definite"):
            on.run(lapack.cholesky, "cholesky", outs, [some], upper, "linalg.cholesky")


def test_cholesky_of_nothing(on: HostSolvers) -> None:
    kind = on.routines.kind
    outs = [room((2, 0, 0), kind), room((2,), np.int32)]
    on.run(lapack.cholesky, "cholesky", outs, [np.ones((2, 0, 0), kind)], False, "linalg.cholesky")
    assert outs[1].tolist() == [0, 0]


# ---- factorisations ----


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize(
    "batch, rows, columns", [(1, 4, 4), (3, 5, 3), (2, 3, 5), (2, 1, 1), (2, 3, 0), (2, 40, 50)]
)
def test_qr(on: HostSolvers, batch: int, rows: int, columns: int, mode: str) -> None:
    a = numbers(on, 4, batch, rows, columns)
    want = [np.linalg.qr(one, mode) for one in a]
    shapes = [x.shape for x in ((want[0],) if mode == "r" else want[0])]
    outs = [room((batch, *shape), a.dtype) for shape in shapes]
    on.run(lapack.qr, "qr", outs, [a], mode)
    r = outs[-1]
    assert not np.tril(r, -1).any()
    if mode == "r":
        close(on, np.abs(r), np.abs(np.stack(want)))
        return
    q = outs[0]
    close(on, q @ r, a)
    close(on, adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (batch, *[q.shape[-1]] * 2)))


@pytest.mark.parametrize("triangle", ["L", "U"])
@pytest.mark.parametrize("batch, n", [*SHAPES, (2, 40), (2, 0)])
def test_eigh(on: HostSolvers, batch: int, n: int, triangle: str) -> None:
    a = positive(on, batch, n)
    read = np.tril(a) if triangle == "L" else np.triu(a)
    values, vectors = room((batch, n), on.routines.real), room(a.shape, a.dtype)
    on.run(spectra.eigh, "eigh", [values, vectors], [read], triangle)
    close(on, values, np.linalg.eigvalsh(a))
    close(on, vectors * values[:, None] @ adjoint(vectors), a)
    alone = room((batch, n), on.routines.real)
    on.run(spectra.eigh, "eigvalsh", [alone], [read], triangle)
    close(on, alone, values)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "batch, rows, columns", [(1, 4, 4), (3, 5, 3), (2, 3, 5), (1, 5, 3), (1, 3, 5), (2, 40, 3)]
)
def test_svd(on: HostSolvers, batch: int, rows: int, columns: int, full: bool) -> None:
    a = numbers(on, 7, batch, rows, columns)
    want = np.linalg.svd(a, full_matrices=full)
    outs = [room(x.shape, x.dtype) for x in want]
    on.run(spectra.svd, "svd", outs, [a], full, otherwise=None)
    u, s, vh = outs
    k = min(rows, columns)
    close(on, s, want[1])
    close(on, (u[..., :k] * s[:, None]) @ vh[:, :k], a)
    close(on, adjoint(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), (batch, *[u.shape[-1]] * 2)))
    close(on, vh @ adjoint(vh), np.broadcast_to(np.eye(vh.shape[1]), (batch, *[vh.shape[1]] * 2)))
    alone = room(s.shape, s.dtype)
    on.run(spectra.svd, "svdvals", [alone], [a], otherwise=None)
    close(on, alone, s)


def test_an_svd_that_is_not_finite_is_left_to_another_routine(on: HostSolvers) -> None:
    a, seen = numbers(on, 8, 1, 3, 3), []
    a[0, 1, 2] = np.nan
    outs = [room(a.shape, a.dtype), room((1, 3), on.routines.real), room(a.shape, a.dtype)]
    on.run(spectra.svd, "svd", outs, [a], False, otherwise=lambda *numbers: seen.append(numbers))
    assert len(seen) == 1 and seen[0][3] == a.ctypes.data
