"""rushlight.autograd.functional: products with Jacobians and Hessians, and both whole."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import DTypeError, RushlightError, ShapeError
from rushlight.autograd import functional
from rushlight.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from rushlight.core.errors import KindError


def doubles(*shape: int, seed: int = 0) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, shape))


def close(a, b, tolerance: float = 1e-12) -> None:
    got, want = (
        np.asarray(a.detach().numpy()),
        np.asarray(b.detach().numpy() if isinstance(b, rl.Tensor) else b),
    )
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def several(x: rl.Tensor, y: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
    return x @ y, (x * y).sum()


def one(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    return (x**3 * y.exp()).sum()


def test_vjp_and_jvp_of_one_tensor(device):
    x = rl.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    v = rl.tensor([1.0, 10.0], device=device)
    out, g = vjp(lambda x: (x * x).sum(1), x, v)
    assert out.tolist() == [5.0, 25.0] and g.tolist() == [[2.0, 4.0], [60.0, 80.0]]
    out, t = jvp(lambda x: (x * x).sum(1), x, x)
    assert out.tolist() == [5.0, 25.0] and t.tolist() == [10.0, 50.0]
    assert not out.requires_grad and not t.requires_grad and not g.requires_grad


def test_vjp_and_jvp_of_tuples():
    x, y = doubles(3, 2), doubles(2, seed=1)
    u, s = doubles(3, seed=2), rl.tensor(2.0, dtype=rl.float64)
    out, (gx, gy) = vjp(several, (x, y), (u, s))
    assert isinstance(out, tuple)
    close(gx, u[:, None] * y + s * y)
    close(gy, x.T @ u + s * x.sum(0))
    _, (a, b) = jvp(several, (x, y), (x, y))
    close(a, 2 * (x @ y))
    close(b, 2 * (x * y).sum())


def test_the_vector_may_be_left_out_for_one_number():
    x, y = doubles(2, 2), doubles(2, seed=1)
    _, (gx, _) = vjp(one, (x, y))
    close(gx, 3 * x**2 * y.exp())
    _, t = jvp(lambda x: x**3, rl.tensor(2.0))
    assert t.item() == 12
    assert (
        hvp(lambda x: x**3, rl.tensor(2.0))[1].item()
        == 12
        == vhp(lambda x: x**3, rl.tensor(2.0))[1].item()
    )
    for call in (
        lambda: vjp(lambda x: x * x, x),
        lambda: jvp(lambda x: x * x, x),
        lambda: hvp(one, (x, y)),
    ):
        with pytest.raises(RushlightError, match="a vector v must be given"):
            call()


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_jacobians(strategy, vectorize):
    x, y = doubles(3, 2), doubles(2, seed=1)
    (ax, ay), (bx, by) = jacobian(several, (x, y), strategy=strategy, vectorize=vectorize)
    close(ax, np.einsum("ik,j->ikj", np.eye(3), y.numpy()))
    close(ay, x)
    close(bx, y.expand(3, 2))
    close(by, x.sum(0))
    alone = jacobian(lambda x: x.exp().sum(1), x, strategy=strategy, vectorize=vectorize)
    close(alone, np.einsum("ik,ij->ikj", np.eye(3), np.exp(x.numpy())))
    ((nested,),) = jacobian(lambda x: (x * 2,), (y,), strategy=strategy, vectorize=vectorize)
    close(nested, 2 * np.eye(2))


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_hessians(strategy, vectorize):
    x, y = doubles(2, 2), doubles(2, seed=1)
    (xx, xy), (yx, yy) = hessian(one, (x, y), vectorize=vectorize, outer_jacobian_strategy=strategy)
    a, b, eye = x.numpy(), np.exp(y.numpy()), np.eye(2)
    close(xx, np.einsum("ik,jl,ij,j->ijkl", eye, eye, 6 * a, b))
    close(xy, np.einsum("jk,ij,j->ijk", eye, 3 * a**2, b))
    close(yx, np.einsum("jk,ij,j->kij", eye, 3 * a**2, b))
    close(yy, np.diag((a**3).sum(0) * b))
    assert not xx.requires_grad
    close(hessian(lambda x: (x**3).sum().reshape(1), y), np.diag(6 * y.numpy()))
    assert hessian(lambda x: x.sum(), y).tolist() == [[0.0, 0.0]] * 2


def test_hessian_products(device):
    x, v = rl.tensor([1.0, 2.0], device=device), rl.tensor([3.0, 4.0], device=device)
    f = lambda x: (x**3).sum() + x[0] * x[1] ** 2  # noqa: E731
    want = [6.0 * 3 + 4.0 * 4, 4.0 * 3 + (12.0 + 2.0) * 4]
    for product in (hvp, vhp):
        out, made = product(f, x, v)
        assert out.item() == 13 and made.tolist() == want
        assert not out.requires_grad and not made.requires_grad
    out, (made, zero) = vhp(lambda x, y: f(x).reshape(1), (x, x), (v, v))
    assert out.shape == (1,) and made.tolist() == want and zero.tolist() == [0.0, 0.0]


def test_hessian_products_agree_with_the_hessian():
    x, y = doubles(2, 2), doubles(2, seed=1)
    u, v = doubles(2, 2, seed=2), doubles(2, seed=3)
    (xx, xy), (yx, yy) = hessian(one, (x, y))
    for product in (hvp, vhp):
        _, (a, b) = product(one, (x, y), (u, v))
        close(a, rl.einsum("ijkl,kl->ij", xx, u) + xy @ v)
        close(b, rl.einsum("kij,ij->k", yx, u) + yy @ v)


def test_create_graph_keeps_the_record():
    x = doubles(3).requires_grad_()
    v = doubles(3, seed=1)
    cases = {
        "vjp": lambda: vjp(lambda x: x**3, x, v, create_graph=True)[1],
        "jvp": lambda: jvp(lambda x: x**3, x, v, create_graph=True)[1],
        "jacobian": lambda: jacobian(lambda x: x**3, x, create_graph=True).sum(0) * v,
        "vhp": lambda: vhp(lambda x: (x**4).sum() / 4, x, v, create_graph=True)[1],
        "hvp": lambda: hvp(lambda x: (x**4).sum() / 4, x, v, create_graph=True)[1],
        "hessian": lambda: hessian(lambda x: (x**4).sum() / 4, x, create_graph=True).sum(0) * v,
    }
    for name, make in cases.items():
        for mode in (rl.enable_grad(), rl.no_grad()):
            with mode:
                made = make()
            (g,) = rl.autograd.grad(made.sum(), x)
            assert made.requires_grad or name in ("jacobian", "hessian")
            close(made, 3 * x**2 * v)
            close(g, 6 * x * v)
            if name in ("jacobian", "hessian"):
                break  # the product with v is outside, under no_grad
    out, made = vjp(lambda x: x**3, x, v)
    assert not out.requires_grad and not made.requires_grad and x.grad is None


def test_strict_refuses_what_does_not_depend():
    x = doubles(2)
    constant = rl.ones(2)
    for call in (
        lambda: vjp(lambda x: constant.clone(), x, constant, strict=True),
        lambda: jvp(lambda x: constant.clone(), x, x, strict=True),
        lambda: jacobian(lambda x: constant.clone(), x, strict=True),
        lambda: jacobian(lambda x, y: x * 2, (x, x), strict=True),
        lambda: vjp(lambda x, y: x * 2, (x, x), x, strict=True),
        lambda: hessian(lambda x: x.sum(), x, strict=True),
        lambda: hvp(lambda x: x.sum(), x, x, strict=True),
        lambda: vhp(lambda x: x.sum(), x, x, strict=True),
        lambda: vhp(lambda x: constant.sum(), x, x, strict=True),
    ):
        with pytest.raises(RushlightError, match=r"independent of .*strict=True"):
            call()
    assert vjp(lambda x: constant.clone(), x, constant)[1].tolist() == [0.0, 0.0]
    assert jvp(lambda x: constant.clone(), x, x)[1].tolist() == [0.0, 0.0]
    assert jacobian(lambda x, y: x * 2, (x, x))[1].tolist() == [[0.0, 0.0]] * 2


def test_errors():
    x, y = doubles(2, 2), doubles(2, seed=1)
    with pytest.raises(ShapeError, match=r"v 0 is float64\[2, 2\].*float64\[2\]"):
        vjp(lambda x: x.sum(1), x, x)
    with pytest.raises(RushlightError, match="2 tensors for 1"):
        jvp(lambda x: x.sum(1), x, (x, x))
    with pytest.raises(TypeError, match="inputs must be a tensor or a tuple of tensors, got list"):
        jacobian(lambda x: x, [x])
    with pytest.raises(
        TypeError, match="outputs must be a tensor or a tuple of tensors, got float"
    ):
        jacobian(lambda x: 3.0, x)
    with pytest.raises(RushlightError, match="one number, got float64"):
        hessian(lambda x: x, y)
    with pytest.raises(RushlightError, match="one tensor, got tuple"):
        hvp(several, (x, y), (x, y))
    with pytest.raises(ValueError, match="strategy"):
        jacobian(lambda x: x, x, strategy="sideways")
    with pytest.raises(ValueError, match="outer_jacobian_strategy"):
        hessian(one, (x, y), outer_jacobian_strategy="sideways")
    with pytest.raises(DTypeError, match="int64"):
        jacobian(lambda x: x, rl.arange(3))
    with pytest.raises(RushlightError, match="outputs must be real"):
        jacobian(lambda x: x * 1j, x)


def leaf(*numbers):
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


def test_strict_with_create_graph_asks_for_a_derivative_that_depends():
    x = leaf(1, 2)
    for f in (functional.vjp, functional.jvp):
        assert f(lambda x: x**2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)[
            1
        ].requires_grad
        with pytest.raises(RushlightError, match="independent of the inputs"):
            f(lambda x: x * 2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)
    with pytest.raises(RushlightError, match="independent of the inputs"):
        functional.jacobian(lambda x: x * 2, x, create_graph=True, strict=True)
    assert functional.jacobian(lambda x: x * 2, x, strict=True).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("f", [functional.hessian, functional.hvp, functional.vhp])
def test_a_function_that_returns_no_tensor(f):
    with pytest.raises(KindError, match="must return one tensor, got float"):
        f(lambda x: 3.0, rl.ones(2))
