"""Second derivatives where formulas divide by zero: singular determinants, probabilities 0 and 1.

The expected numbers are PyTorch 2.13's, except where a comment says otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight
import rushlight.nn.functional as F
from rushlight import func

DIRECTION = [[0.3, 0.2, -1.0], [0.5, 0.7, 0.1], [0.2, -0.4, 0.9]]


def bend(f: Any, x: Any, direction: Any) -> Any:
    (g,) = rushlight.autograd.grad(f(x), x, create_graph=True)
    (h,) = rushlight.autograd.grad((g * direction).sum(), x)
    return h


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (
            [[2.0, 1, 0], [1, 3, 1], [0, 1, 4]],
            [[5.8, -2.7, -0.5], [-2.7, 3.0, 0.7], [3.3, -1.5, 1.6]],
        ),
        (
            [[1.0, 2, 3], [4, 5, 6], [7, 8, 9]],
            [[12.4, -6.2, -3.5], [-12.8, 10.0, -0.2], [4.3, -4.4, 0.4]],
        ),
        (
            [[1.0, 2, 3], [2, 4, 6], [3, 6, 9]],
            [[11.7, -4.8, -0.7], [-10.8, 6.0, -0.4], [3.3, -2.4, 0.5]],
        ),
        (np.zeros((3, 3)), np.zeros((3, 3))),  # PyTorch: NaN
        ([[1.0, 2], [2, 4]], [[0.7, -0.5], [-0.2, 0.3]]),
        (np.zeros((2, 2)), [[0.7, -0.5], [-0.2, 0.3]]),  # PyTorch: NaN
        ([[0.0]], [[0.0]]),
    ],
)
def test_det(matrix: Any, expected: Any) -> None:
    a = rushlight.tensor(np.array(matrix), dtype=rushlight.float64, requires_grad=True)
    n = a.shape[0]
    found = bend(
        rushlight.linalg.det, a, rushlight.tensor(DIRECTION, dtype=rushlight.float64)[:n, :n]
    )
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_det_on_a_device(device: str) -> None:
    a = rushlight.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]).to(device).requires_grad_()
    found = bend(rushlight.linalg.det, a, rushlight.tensor(DIRECTION).to(device))
    expected = [[12.4, -6.2, -3.5], [-12.8, 10.0, -0.2], [4.3, -4.4, 0.4]]
    np.testing.assert_allclose(found.cpu().numpy(), expected, atol=1e-4)


def test_det_of_batches_of_complex_matrices() -> None:
    rng = np.random.default_rng(3)
    a, along = rng.normal(size=(2, 2, 4, 4, 2))
    a[..., 3, :] = a[..., 2, :] * 2 + a[..., 1, :]  # singular

    def tensor(x: Any, grad: bool = False) -> Any:
        return rushlight.tensor(x[..., 0] + 1j * x[..., 1], requires_grad=grad)

    x, step = tensor(a, True), tensor(along)
    (g,) = rushlight.autograd.grad(rushlight.linalg.det(x).real.sum(), x, create_graph=True)
    (h,) = rushlight.autograd.grad((g * step.conj()).real.sum(), x)
    with rushlight.no_grad():
        found = []
        for sign in (1, -1):
            moved = (x + sign * 1e-5 * step).detach().requires_grad_()
            with rushlight.enable_grad():
                found.append(
                    rushlight.autograd.grad(rushlight.linalg.det(moved).real.sum(), moved)[0]
                )
    np.testing.assert_allclose(h.numpy(), ((found[0] - found[1]) / 2e-5).numpy(), atol=1e-8)


def test_third_order_and_transforms_of_det() -> None:
    rng = np.random.default_rng(1)
    a = rushlight.tensor(rng.normal(size=(2, 3, 3)), requires_grad=True)
    assert rushlight.autograd.gradgradcheck(rushlight.linalg.det, (a,))

    def first(x: Any) -> Any:
        return rushlight.autograd.grad(rushlight.linalg.det(x).sum(), x, create_graph=True)[0]

    # The third derivative, of regular matrices.
    assert rushlight.autograd.gradgradcheck(first, (a,))
    singular = rushlight.tensor([[[1.0, 2], [2, 4]], [[0.0, 0], [0, 0]]], dtype=rushlight.float64)
    together = func.vmap(func.hessian(rushlight.linalg.det))(singular)
    for x, h in zip(singular, together, strict=True):
        np.testing.assert_allclose(
            h.numpy(), func.hessian(rushlight.linalg.det)(x).numpy(), atol=1e-14
        )
        np.testing.assert_allclose(h.numpy()[0, 0], [[0, 0], [0, 1]], atol=1e-14)


# probability, target, gradient, second derivative: (float32 PyTorch)
SATURATED = [
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, -1e12, 1e24),
    (0.0, 0.5, -5e11, 5e23),
    (1.0, 0.0, 1e12, 1e24),
    (1.0, 1.0, 0.0, 0.0),
    (1.0, 0.5, 5e11, 5e23),
    (0.25, 0.0, 4 / 3, 16 / 9),
    (0.25, 1.0, -4.0, 16.0),
]


def test_binary_cross_entropy(device: str) -> None:
    p, y, first, second = (
        rushlight.tensor(column).to(device) for column in map(list, zip(*SATURATED, strict=True))
    )
    p.requires_grad_()
    (g,) = rushlight.autograd.grad(
        F.binary_cross_entropy(p, y, reduction="sum"), p, create_graph=True
    )
    np.testing.assert_allclose(g.detach().cpu().numpy(), first.cpu().numpy(), rtol=1e-5)
    (h,) = rushlight.autograd.grad(g.sum(), p)
    np.testing.assert_allclose(h.cpu().numpy(), second.cpu().numpy(), rtol=1e-4)


def test_binary_cross_entropy_by_the_target_and_mixed() -> None:
    p = rushlight.tensor([0.0, 1.0, 0.25], dtype=rushlight.float64, requires_grad=True)
    y = rushlight.tensor([0.0, 0.5, 1.0], dtype=rushlight.float64, requires_grad=True)
    loss = F.binary_cross_entropy(p, y, reduction="none")
    by_y, by_p = rushlight.autograd.grad(loss.sum(), [y, p], create_graph=True)
    # The loss clamps logarithms at -100.
    np.testing.assert_allclose(by_y.detach().numpy(), [100, -100, np.log(3)])
    (mixed,) = rushlight.autograd.grad(by_y.sum(), p, retain_graph=True)
    np.testing.assert_allclose(mixed.numpy(), [-np.inf, -np.inf, -16 / 3])
    (mixed,) = rushlight.autograd.grad(by_p.sum(), y)
    np.testing.assert_allclose(mixed.numpy(), [-1e12, -1e12, -16 / 3])


def test_binary_cross_entropy_in_all_orders_and_vmap() -> None:
    p = rushlight.tensor([0.2, 0.7, 0.5], dtype=rushlight.float64, requires_grad=True)
    y = rushlight.tensor([0.3, 0.9, 0.1], dtype=rushlight.float64, requires_grad=True)
    loss = lambda a, b: F.binary_cross_entropy(a, b, reduction="none")  # noqa: E731
    assert rushlight.autograd.gradcheck(loss, (p, y)) and rushlight.autograd.gradgradcheck(
        loss, (p, y)
    )
    first = lambda a: rushlight.autograd.grad(loss(a, y).sum(), a, create_graph=True)[0]  # noqa: E731
    assert rushlight.autograd.gradgradcheck(first, (p,))
    bends = func.vmap(func.grad(func.grad(lambda a, b: loss(a, b).sum())))(p.detach(), y.detach())
    expected = y / p**2 + (1 - y) / (1 - p) ** 2
    np.testing.assert_allclose(bends.numpy(), expected.detach().numpy(), rtol=1e-12)
