"""Linear algebra: operands that do not fit, orders of norms that do not exist, phase-dependent
losses.
"""

from __future__ import annotations

import pytest

import rushlight as rl


def test_factorisations_refuse_what_does_not_fit():
    with pytest.raises(rl.linalg.LinAlgError, match="diagonal element 2"):
        rl.cholesky_inverse(rl.tensor([[1.0, 0], [2.0, 0]]))
    with pytest.raises(RuntimeError, match="batches"):
        rl.ormqr(rl.ones(1, 2, 2), rl.ones(1, 2), rl.ones(2, 2, 2))
    for named in ({"rcond": rl.tensor(1j)}, {"atol": 1j}):
        with pytest.raises(RuntimeError, match="real"):
            rl.linalg.pinv(rl.eye(2), **named)
    lu, pivots = rl.linalg.lu_factor(rl.eye(2))
    for wrong in (0, 3):
        with pytest.raises(RuntimeError, match="between 1 and 2"):
            rl.linalg.lu_solve(lu, pivots * 0 + wrong, rl.eye(2))


def test_norms_refuse_what_has_none():
    x = rl.ones(2, 2, 2)
    for call in (
        lambda: rl.linalg.vector_norm(x, 2j),
        lambda: rl.linalg.norm(x, 1, (0, 1, 2)),
        lambda: rl.linalg.vector_norm(rl.ones(0), -1),
        lambda: rl.histogram(rl.ones(2), rl.ones(1)),
        lambda: rl.histogramdd(rl.ones(3, 0), []),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: x.argmax(dim=[0]), lambda: x.argmin((0, 1))):
        with pytest.raises(TypeError, match="dim"):
            call()
    assert rl.sum(a=x).item() == rl.sum(x=x).item() == 8
    assert rl.tensor(True).to_sparse().to_dense().item() is True


def test_a_loss_that_depends_on_free_angles_is_refused():
    rl.manual_seed(3)
    a = rl.randn(3, 3, dtype=rl.complex128)

    def of_svd(x):
        u, _, vh = rl.linalg.svd(x)
        return u + vh

    for vectors in (of_svd, lambda x: rl.linalg.eig(x)[1], lambda x: rl.linalg.eigh(x + x.mH)[1]):
        x = a.clone().requires_grad_()
        with pytest.raises(RuntimeError, match="ill-defined"):
            vectors(x).sum().abs().backward()
    x = a.clone().requires_grad_()
    # An absolute value does not change with the phase.
    rl.linalg.eigh(x + x.mH)[1].abs().square()[0, 0].backward()
    assert x.grad.abs().max().item() > 0
    for call in (
        lambda: rl.add(rl.ones(2), rl.ones(2), alpha=1j),
        lambda: rl.trapezoid(rl.ones(2, 2), dx=1j),
    ):
        with pytest.raises(RuntimeError):
            call()
