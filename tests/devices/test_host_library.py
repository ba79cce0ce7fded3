"""Ops that a host library computes: warnings, counted transfers, errors, NumPy without OpenBLAS."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rushlight
from rushlight import linalg, memory
from rushlight.core.errors import (
    DTypeError,
    LinAlgError,
    NotDifferentiable,
    RushlightWarning,
    ShapeError,
)
from rushlight.devices.shared import library as host_library
from rushlight.devices.shared.library import routines
from rushlight.devices.shared.registry import names, pool_of
from rushlight.ops.linalg import products
from tests.catalog.run import to_array

SINGULAR = [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 4.0]]]


def test_a_gpu_says_once_that_the_host_computes_and_counts_the_copies(require_device, monkeypatch):
    name = require_device("webgpu")
    monkeypatch.setattr(host_library, "_SAID", set())
    a = rushlight.eye(8, device=name) * 2
    before = memory.transfers()
    with pytest.warns(RushlightWarning, match=r"lapack\.solve: computed by the host, as webgpu"):
        out = linalg.inv(a)
    moved = {key: n - before[key] for key, n in memory.transfers().items()}
    # A and the identity go out; the inverse and the info come in.
    assert moved == {"to_host": 2, "bytes_to_host": 512, "to_device": 2, "bytes_to_device": 260}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linalg.inv(a)
    assert np.array_equal(to_array(out), np.eye(8) / 2)


def test_where_the_host_reads_memory_nothing_is_said_or_copied():
    for name in ("cpu", "reference"):
        before = memory.transfers()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            linalg.inv(rushlight.eye(3, device=name))
        assert memory.transfers() == before


def test_cuda_computes_them_itself(require_device):
    name = require_device("cuda")
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 5, 5))
    positive = a @ a.swapaxes(-1, -2) + np.eye(5)
    x, p = (rushlight.tensor(array, device=name) for array in (a, positive))
    triangle = rushlight.tril(p)
    rushlight.memory.empty_cache(name)
    live = memory.allocated(name)
    before = memory.transfers()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            linalg.cholesky(p), *linalg.qr(x), *linalg.svd(x), *linalg.eigh(p), linalg.inv(x),
            linalg.solve(x, p), linalg.solve_triangular(triangle, x, upper=False),
            linalg.det(x), *linalg.slogdet(x), linalg.lstsq(x, p).solution, linalg.pinv(x),
            *linalg.lu_factor(x), rushlight.fft.fftn(x), rushlight.fft.rfft2(x),
            rushlight.fft.irfft(rushlight.fft.rfft(x, dim=1), n=5, dim=1),
        ]  # fmt: skip
    moved = {key: n - before[key] for key, n in memory.transfers().items() if "bytes" in key}
    assert moved["bytes_to_host"] <= 64 * len(found)  # nothing but infos and flags
    assert np.allclose(to_array(found[-1]), a)
    del found
    assert memory.allocated(name) == live  # what CuPy took is given back


def test_the_null_device_counts_and_computes_nothing():
    a = rushlight.ones(4, 4, device="null")
    assert linalg.inv(a).shape == (4, 4)
    assert "library" not in names()
    assert pool_of("null").device.limits.host_memory is False


def test_errors_are_pytorchs(device):
    batch = rushlight.tensor(SINGULAR, device=device)
    with pytest.raises(
        LinAlgError, match=r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero"
    ):
        linalg.inv(batch)
    with pytest.raises(
        LinAlgError, match=r"linalg.solve: The solver failed because the input matrix is singular"
    ):
        linalg.solve(batch[1], rushlight.ones(2, device=device))
    with pytest.raises(LinAlgError, match="leading minor of order 2 is not positive-definite"):
        linalg.cholesky(batch[1] * -1 + 3 * rushlight.eye(2, device=device))
    with pytest.raises(LinAlgError, match=r"U\[2,2\] is zero"):
        linalg.lu_factor(batch[1])
    with pytest.raises(LinAlgError, match="failed to converge"):
        linalg.svd(batch * float("nan"))
    assert issubclass(LinAlgError, RuntimeError)


def test_ex_gives_the_step_instead(device):
    batch = rushlight.tensor(SINGULAR, device=device)
    assert linalg.inv_ex(batch).info.tolist() == [0, 2]
    assert linalg.solve_ex(batch, rushlight.ones(2, 1, device=device)).info.tolist() == [0, 2]
    assert linalg.lu_factor_ex(batch).info.tolist() == [0, 2]
    found = linalg.cholesky_ex(-batch)
    assert found.info.tolist() == [1, 1]
    assert found.info.dtype is rushlight.int32
    with pytest.raises(LinAlgError):
        linalg.inv_ex(batch, check_errors=True)


def test_types_and_shapes_are_checked():
    for bad in (
        rushlight.ones(2, 2, dtype=rushlight.int64),
        rushlight.ones(2, 2, dtype=rushlight.float16),
    ):
        with pytest.raises(DTypeError, match="float32"):
            linalg.inv(bad)
    with pytest.raises(ShapeError, match="square"):
        linalg.det(rushlight.ones(2, 3))
    with pytest.raises(ShapeError, match="at least 2"):
        linalg.svd(rushlight.ones(3))
    with pytest.raises(ShapeError, match="do not fit"):
        linalg.solve(rushlight.eye(3), rushlight.ones(2, 1))
    with pytest.raises(DTypeError, match="one dtype"):
        linalg.solve(rushlight.eye(2), rushlight.ones(2, 1, dtype=rushlight.float64))


def test_what_has_no_derivative_says_so():
    a = rushlight.eye(3, requires_grad=True)
    for op in (linalg.ldl_factor, rushlight.geqrf):
        found = op(a)[0]
        with pytest.raises(NotDifferentiable, match="no derivative"):
            found.sum().backward()
    with pytest.raises(RuntimeError, match="mode='r'"):
        linalg.qr(a, mode="r").R.sum().backward()


def test_the_determinants_derivative_at_singular_matrices(device):
    for rows, want in (
        ([[1.0, 2.0], [2.0, 4.0]], [[4, -2], [-2, 1]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[0, 0], [0, 0]]),
    ):
        a = rushlight.tensor(rows, device=device, requires_grad=True)
        rushlight.det(a).backward()
        assert np.allclose(to_array(a.grad), want, atol=1e-5)


def test_the_pseudoinverses_derivative_with_equal_and_missing_singular_values():
    a = rushlight.tensor(np.diag([2.0, 2.0, 0.0]), requires_grad=True)
    linalg.pinv(a).sum().backward()
    # Only changes that keep the rank count: -P^T 1 P^T inside, and nothing is infinite.
    assert np.isfinite(to_array(a.grad)).all()
    assert np.allclose(to_array(a.grad)[:2, :2], -0.25)


def test_least_squares_of_low_rank_has_the_least_norm():
    a = rushlight.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    found = linalg.lstsq(a, rushlight.tensor([[2.0], [2.0], [2.0]]), driver="gelsd")
    assert np.allclose(to_array(found.solution), 1)
    assert found.rank.item() == 1
    assert found.residuals.shape == (0,)
    assert np.allclose(to_array(found.singular_values), [6**0.5, 0], atol=1e-6)


def test_a_factor_without_openblas(monkeypatch):
    """The plain NumPy of `routines` gives what LAPACK does."""
    a = np.random.default_rng(3).normal(size=(2, 4, 3))
    square = a @ a.swapaxes(-1, -2) + np.eye(4)
    right = np.ones((2, 4, 2))

    def everything() -> list[np.ndarray]:
        outs = [
            *linalg.lu(rushlight.tensor(a)),
            linalg.solve(rushlight.tensor(square), rushlight.tensor(right)),
        ]
        for upper in (False, True):
            outs.append(
                linalg.solve_triangular(
                    rushlight.tensor(square), rushlight.tensor(right), upper=upper
                )
            )
        return [to_array(out) for out in outs]

    with_library = everything()
    monkeypatch.setattr(routines, "library", lambda: None)
    for one, other in zip(with_library, everything(), strict=True):
        assert np.allclose(one, other, atol=1e-12)
    with pytest.raises(LinAlgError, match="install NumPy from PyPI"):
        linalg.ldl_factor(rushlight.eye(2))


def test_orthogonal_matrices():
    for shape in ((5, 3), (3, 5), (4, 2, 3)):
        w = rushlight.nn.init.orthogonal_(rushlight.empty(*shape), gain=2)
        flat = to_array(w).reshape(shape[0], -1)
        square = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
        assert np.allclose(square, 4 * np.eye(len(square)), atol=1e-5)
    with pytest.raises(ShapeError, match="2 dimensions"):
        rushlight.nn.init.orthogonal_(rushlight.empty(3))


def test_a_chain_is_multiplied_in_the_cheapest_order(monkeypatch):
    shapes = [(2, 30), (30, 4), (4, 50), (50, 3)]
    arrays = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
    made = []
    plain = products.matmul
    monkeypatch.setattr(
        products, "matmul", lambda a, b: made.append((a.shape, b.shape)) or plain(a, b)
    )
    out = linalg.multi_dot([rushlight.tensor(a) for a in arrays])
    assert np.allclose(to_array(out), np.linalg.multi_dot(arrays))
    work = sum(a[0] * a[1] * b[1] for a, b in made)
    assert work == 2 * 30 * 4 + 4 * 50 * 3 + 2 * 4 * 3  # (A B) (C D); from left to right it is 940
