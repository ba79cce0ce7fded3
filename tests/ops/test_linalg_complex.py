"""Linear algebra of complex matrices: values against NumPy, gradients to second order.

PyTorch's convention: with L = Re sum(conj(w) f(A)), the gradient is dL/dRe(A) + i dL/dIm(A). A
direction v then changes L by Re sum(conj(gradient) v), whatever f is; no complex derivative is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight import linalg
from tests.catalog.run import to_array

Array = np.ndarray
EXCHANGED = np.array([3, 2, 3], np.int32)
RAMP = np.arange(1.0, 4.0)
M, WIDE, TALL, COLUMNS = (2, 3, 3), (2, 3, 4), (2, 4, 3), (3, 2)


def definite(x: Any) -> Any:
    return x @ x.mH + 3 * rushlight.eye(3, dtype=rushlight.complex128)


def hermitian(x: Any) -> Any:
    return (x + x.mH) / 2


def weighted(q: Any) -> Any:
    """Columns times a number each times their adjoints: independent of the columns' phases."""
    return (q * rushlight.tensor(RAMP)) @ q.mH


def both_sides(u: Any, s: Any, vh: Any) -> Any:
    return (u * rushlight.tensor(RAMP)) @ vh


def powers(values: Any, vectors: Any) -> Any:
    return (vectors * (values * values).unsqueeze(-2)) @ linalg.inv(vectors)


def lu_solve(a: Any, b: Any, **named: Any) -> Any:
    return linalg.lu_solve(a, rushlight.tensor(EXCHANGED), b, **named)


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "inv": (linalg.inv, (M,)),
    "solve": (linalg.solve, (M, COLUMNS)),
    "solve right": (lambda a, b: linalg.solve(a, b, left=False), ((3, 3), (2, 3))),
    "triangle": (lambda a, b: linalg.solve_triangular(a, b, upper=True), ((3, 3), (2, 3, 2))),
    "triangle right": (
        lambda a, b: linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
        ((3, 3), (2, 3)),
    ),
    "lu": (lambda a: linalg.lu_factor(a).LU, (M,)),
    "lu wide": (lambda a: linalg.lu_factor(a).LU, ((2, 4),)),
    "lu tall": (lambda a: linalg.lu_factor(a).LU, ((4, 2),)),
    "lu_solve": (lu_solve, ((3, 3), COLUMNS)),
    "lu_solve adjoint": (lambda a, b: lu_solve(a, b, adjoint=True), ((3, 3), COLUMNS)),
    "lu_solve right": (lambda a, b: lu_solve(a, b, left=False), ((3, 3), (2, 3))),
    "lu_solve right adjoint": (
        lambda a, b: lu_solve(a, b, left=False, adjoint=True),
        ((3, 3), (2, 3)),
    ),
    "det": (linalg.det, (M,)),
    "slogdet": (lambda a: linalg.slogdet(a).sign * linalg.slogdet(a).logabsdet, (M,)),
    "cholesky": (lambda a: linalg.cholesky(definite(a)), (M,)),
    "cholesky upper": (lambda a: linalg.cholesky(definite(a), upper=True), ((3, 3),)),
    "cholesky_inverse": (lambda a: rushlight.cholesky_inverse(linalg.cholesky(definite(a))), (M,)),
    "cholesky_solve": (
        lambda b, a: rushlight.cholesky_solve(b, linalg.cholesky(definite(a))),
        (COLUMNS, M),
    ),
    "qr q": (lambda a: linalg.qr(a).Q, (TALL,)),
    "qr r": (lambda a: linalg.qr(a).R, (TALL,)),
    "qr wide": (lambda a: linalg.qr(a).R, ((2, 3),)),
    "svd u": (lambda a: weighted(linalg.svd(a, False).U), (TALL,)),
    "svd v": (lambda a: weighted(linalg.svd(a, False).Vh.mH), (WIDE,)),
    "svd": (lambda a: both_sides(*linalg.svd(a, False)), ((4, 3),)),
    "svdvals": (linalg.svdvals, (TALL,)),
    "eigh": (lambda a: weighted(linalg.eigh(hermitian(a)).eigenvectors), (M,)),
    "eigvalsh": (lambda a: linalg.eigvalsh(hermitian(a)), (M,)),
    "eig": (lambda a: powers(*linalg.eig(a)), (M,)),
    "eig sizes": (
        lambda a: (linalg.eig(a).eigenvectors.abs() ** 2) @ rushlight.tensor(RAMP[:, None]),
        (M,),
    ),
    "pinv": (linalg.pinv, (TALL,)),
    "pinv wide": (linalg.pinv, (WIDE,)),
    "lstsq": (lambda a, b: linalg.lstsq(a, b).solution, ((4, 3), (4, 2))),
    "lstsq residuals": (
        lambda a, b: linalg.lstsq(a, b, driver="gelsd").residuals,
        ((4, 3), (4, 2)),
    ),
    "householder": (linalg.householder_product, (TALL, (2, 3))),
    "ormqr": (lambda a, t, c: rushlight.ormqr(a, t, c, True, True), ((4, 3), (3,), (4, 2))),
    "ormqr right": (lambda a, t, c: rushlight.ormqr(a, t, c, False, False), ((4, 3), (3,), (2, 4))),
    "matrix_exp": (rushlight.matrix_exp, (M,)),
    "matrix_power": (lambda a: rushlight.matrix_power(a, -3), (M,)),
    "cond": (lambda a: linalg.cond(a, "fro"), (M,)),
    "nuc": (lambda a: linalg.matrix_norm(a, "nuc"), (M,)),
    "norm": (lambda a: linalg.vector_norm(a, 3), ((4,),)),
    "vecdot": (linalg.vecdot, ((2, 3), (2, 3))),
}


def test_lu_solve_of_an_adjoint_from_the_right():
    """X A^H = B, and not X A^T = B."""
    random = np.random.default_rng(0)
    a, b = drawn(random, (3, 3)), drawn(random, (2, 3))
    x = linalg.lu_solve(
        *linalg.lu_factor(rushlight.tensor(a)), rushlight.tensor(b), left=False, adjoint=True
    )
    assert np.abs(x.numpy() @ a.conj().T - b).max() < 1e-12


def drawn(random: Any, shape: Sequence[int]) -> Array:
    return np.asarray(random.normal(size=shape) + 1j * random.normal(size=shape))


def real_dot(value: Any, weights: Array) -> Any:
    """Re sum(conj(w) value), on the tape."""
    total = (value * rushlight.tensor(weights.conj() if value.is_complex() else weights.real)).sum()
    return total.real if total.is_complex() else total


class Slopes:
    """A function's loss, its derivative along one direction, and how that changes along another."""

    def __init__(self, name: str) -> None:
        self.function, shapes = CASES[name]
        random = np.random.default_rng(5)
        self.xs, self.v, self.u = ([drawn(random, shape) for shape in shapes] for _ in range(3))
        self.w = drawn(random, self.function(*map(rushlight.tensor, self.xs)).shape)

    def moved(self, directions: list[Array], step: float) -> list[Array]:
        return [x + step * d for x, d in zip(self.xs, directions, strict=True)]

    def loss(self, xs: list[Array]) -> float:
        return real_dot(self.function(*map(rushlight.tensor, xs)), self.w).item()

    def slope(self, xs: list[Array]) -> tuple[Any, list[Any]]:
        leaves = [rushlight.tensor(x).requires_grad_() for x in xs]
        grads = rushlight.autograd.grad(
            real_dot(self.function(*leaves), self.w), leaves, create_graph=True
        )
        return sum(real_dot(g, v) for g, v in zip(grads, self.v, strict=True)), leaves


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences(name: str):
    case = Slopes(name)
    slope, leaves = case.slope(case.xs)
    step = 1e-6
    want = (case.loss(case.moved(case.v, step)) - case.loss(case.moved(case.v, -step))) / (2 * step)
    assert slope.item() == pytest.approx(want, rel=1e-5, abs=1e-5)
    second = rushlight.autograd.grad(slope, leaves)
    got = sum(real_dot(g, u).item() for g, u in zip(second, case.u, strict=True))
    step = 1e-5
    ends = [case.slope(case.moved(case.u, sign * step))[0].item() for sign in (1, -1)]
    assert got == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-4)


def test_values_are_numpys(device):
    random = np.random.default_rng(1)
    a, b = drawn(random, M).astype(np.complex64), drawn(random, COLUMNS).astype(np.complex64)
    x, y = rushlight.tensor(a, device=device), rushlight.tensor(b, device=device)
    for got, want in (
        (linalg.inv(x), np.linalg.inv(a)),
        (linalg.solve(x, y), np.linalg.solve(a, b)),
        (linalg.det(x), np.linalg.det(a)),
        (linalg.svdvals(x), np.linalg.svd(a, compute_uv=False)),
        (linalg.eigvalsh(x @ x.mH), np.linalg.svd(a, compute_uv=False)[..., ::-1] ** 2),
        (linalg.vecdot(x, x), (a.conj() * a).sum(-1)),
        (rushlight.vdot(y[:, 0], y[:, 1]), np.vdot(b[:, 0], b[:, 1])),
        (linalg.norm(x), np.sqrt((abs(a) ** 2).sum())),
        (
            linalg.ldl_solve(*linalg.ldl_factor(x @ x.mH, hermitian=True), y, hermitian=True),
            np.linalg.solve(a @ a.conj().swapaxes(-1, -2), b),
        ),
        (
            linalg.ldl_solve(*linalg.ldl_factor(x @ x.mT), y),
            np.linalg.solve(a @ a.swapaxes(-1, -2), b),
        ),
    ):
        assert np.allclose(to_array(got), want, rtol=2e-3, atol=2e-3)
