"""rushlight.func: derivatives as functions, at any depth of nesting, of any nesting of tensors."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import rushlight as rl
from rushlight import DTypeError, InplaceError, RushlightError, ShapeError
from rushlight.func import (
    grad,
    grad_and_value,
    grad_level,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)

Pair = namedtuple("Pair", "left right")


def doubles(*shape: int, seed: int = 0) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, shape))


def number(x: float) -> rl.Tensor:
    return rl.tensor(x, dtype=rl.float64)


def close(a, b, tolerance: float = 1e-12) -> None:
    got, want = (
        np.asarray(a.detach().numpy()),
        np.asarray(b.detach().numpy() if isinstance(b, rl.Tensor) else b),
    )
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def along(f, x: rl.Tensor, t: rl.Tensor, step: float = 1e-6) -> rl.Tensor:
    """The derivative along t by central differences."""
    return (f(x + step * t) - f(x - step * t)) / (2 * step)


# ---- grad ----


def test_grad_of_closed_forms(device):
    x = rl.tensor([0.5, -1.0, 2.0], device=device)
    assert grad(lambda x: (x * x * x).sum())(x).tolist() == [0.75, 3.0, 12.0]
    close(grad(lambda x: x.sin().sum())(x), np.cos(np.array([0.5, -1.0, 2.0], np.float32)), 1e-6)


def test_grad_and_value_and_value_and_grad():
    x = rl.tensor([1.0, 2.0])

    def f(x):
        return (x * x).sum(), {"twice": 2 * x, "name": "f"}

    g, value = grad_and_value(lambda x: f(x)[0])(x)
    assert g.tolist() == [2.0, 4.0] and value.item() == 5
    value, g = value_and_grad(lambda x: f(x)[0])(x)
    assert g.tolist() == [2.0, 4.0] and value.item() == 5
    g, (value, aux) = grad_and_value(f, has_aux=True)(x)
    assert value.item() == 5 and aux["twice"].tolist() == [2.0, 4.0] and aux["name"] == "f"
    (value, aux), g = value_and_grad(f, has_aux=True)(x)
    assert g.tolist() == [2.0, 4.0] and not value.requires_grad and not aux["twice"].requires_grad
    g, aux = grad(f, has_aux=True)(x)
    assert g.tolist() == [2.0, 4.0] and aux["name"] == "f"


def test_argnums_choose_arguments():
    x, y = rl.tensor([1.0, 2.0]), rl.tensor([3.0, 4.0])

    def f(x, y, scale=1.0):
        return (scale * x * y * y).sum()

    assert grad(f)(x, y).tolist() == [9.0, 16.0]
    assert grad(f, argnums=1)(x, y).tolist() == [6.0, 16.0]
    assert grad(f, argnums=-1)(x, y, scale=2.0).tolist() == [12.0, 32.0]
    both = grad(f, argnums=(1, 0))(x, y)
    assert isinstance(both, tuple) and [g.tolist() for g in both] == [[6.0, 16.0], [9.0, 16.0]]
    assert [g.tolist() for g in grad(f, argnums=(0,))(x, y)] == [[9.0, 16.0]]
    assert grad(f, argnums=(0, 1))(x, x)[0].tolist() == [1.0, 4.0]  # one tensor in two places


def test_grad_of_trees():
    x = rl.tensor([1.0, 2.0])
    tree = {"w": [x, (3 * x,)], "pair": Pair(2 * x, OrderedDict(b=x))}

    def f(t):
        return (t["w"][0] * t["w"][1][0]).sum() + (t["pair"].left ** 2 * t["pair"].right["b"]).sum()

    g = grad(f)(tree)
    assert (
        type(g["pair"]) is Pair
        and type(g["pair"].right) is OrderedDict
        and type(g["w"][1]) is tuple
    )
    assert g["w"][0].tolist() == [3.0, 6.0]
    assert g["w"][1][0].tolist() == [1.0, 2.0]
    assert g["pair"].left.tolist() == [4.0, 16.0]
    assert g["pair"].right["b"].tolist() == [4.0, 16.0]


def test_what_an_output_does_not_depend_on_has_zeros():
    x, y = rl.ones(3), rl.ones(2, dtype=rl.float64)
    zero, one = grad(lambda x, y: y.sum(), argnums=(0, 1))(x, y)
    assert zero.tolist() == [0.0] * 3 and zero.dtype is rl.float32
    assert one.tolist() == [1.0] * 2 and one.dtype is rl.float64
    assert grad(lambda x: rl.tensor(1.0))(x).tolist() == [0.0] * 3
    assert grad(lambda x: (x * 2).detach().sum())(x).tolist() == [0.0] * 3
    assert grad(lambda x: (x > 0).sum())(x).tolist() == [0.0] * 3


def test_nothing_is_left_behind_on_the_inputs():
    x, w = rl.ones(3), rl.ones(3, requires_grad=True)
    result = grad(lambda x: (x * x).sum())(x)
    assert not result.requires_grad and not x.requires_grad and result.grad_fn is None
    assert grad(lambda x: (x * x * w).sum())(w).requires_grad
    assert w.grad is None and x.grad is None


# ---- nesting ----


def test_the_nth_derivative():
    x = number(0.7)
    f = lambda x: x.sin()  # noqa: E731
    for want in (math.cos(0.7), -math.sin(0.7), -math.cos(0.7), math.sin(0.7), math.cos(0.7)):
        f = grad(f)
        close(f(x), want)
        assert not f(x).requires_grad


def test_levels_are_not_confused():
    # d/dx (x * d/dy (x + y)) = 1, not 2; d/dx (x * d/dy (x * y)) = 2x.
    one = number(1.0)
    assert grad(lambda x: x * grad(lambda y: x + y)(one))(one).item() == 1
    assert grad(lambda x: x * grad(lambda y: x * y)(one))(number(3.0)).item() == 6
    inner = lambda x: jvp(lambda y: x + y, (one,), (one,))[1]  # noqa: E731
    assert jvp(lambda x: x * inner(x), (one,), (one,))[1].item() == 1
    assert grad(lambda x: x * inner(x))(one).item() == 1
    assert jvp(lambda x: x * grad(lambda y: x * y)(one), (number(3.0),), (one,))[1].item() == 6


def test_the_same_variable_at_two_levels():
    # d/dx d/dx' of x * x'^2 at the inner x' = x: derivative of 2 x x' taken whole.
    x = number(2.0)
    f = grad(lambda x: grad(lambda y: x * y * y)(x))
    assert f(x).item() == 2 * 2 + 2 * 2


def test_derivatives_at_all_levels_with_a_closed_over_tensor():
    w = number(3.0).requires_grad_()
    g = grad(lambda x: w * x * x)(number(2.0))
    assert g.item() == 12 and g.requires_grad
    g.backward()
    assert w.grad.item() == 4
    second = grad(grad(lambda x: w * x**3))(number(2.0))
    (dw,) = rl.autograd.grad(second, w)
    assert second.item() == 36 and dw.item() == 12


def test_the_value_can_be_differentiated_after_the_gradient_was_taken():
    w = rl.tensor([1.0, 2.0], requires_grad=True)
    x = rl.tensor([3.0, 4.0])
    value, g = value_and_grad(lambda x: (w * x * x).sum())(x)
    (value + g.sum()).backward()
    assert w.grad.tolist() == [9.0 + 6.0, 16.0 + 8.0]


def test_an_input_that_requires_gradients_outside():
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    g = grad(lambda y: (y**3).sum())(2 * x)
    g.sum().backward()  # d/dx 3 (2x)^2 = 24 x
    assert x.grad.tolist() == [24.0, 48.0]


def test_no_grad_outside_does_not_reach_in_but_holds_outside():
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    with rl.no_grad():
        g = grad(lambda y: (y * y * x).sum())(x)
    assert g.tolist() == [2.0, 8.0] and not g.requires_grad

    @rl.no_grad()
    def quiet(y):
        return (y * y).sum()

    assert grad(lambda y: (y * y).sum() + quiet(y))(x).tolist() == [2.0, 4.0]
    second = grad(lambda x: x * rl.no_grad()(grad(lambda y: y * y))(x))
    assert second(number(3.0)).item() == 6  # the inner result, 2x, is a constant of the outer level


def test_levels_in_a_backward_of_the_users(device):
    class Cube(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * grad(lambda y: (y**3).sum())(x)

    x = rl.tensor([1.0, 2.0], device=device)
    assert grad(lambda x: Cube.apply(x).sum())(x).tolist() == [3.0, 12.0]
    assert grad(lambda x: grad(lambda x: Cube.apply(x).sum())(x).sum())(x).tolist() == [6.0, 12.0]
    assert jvp(Cube.apply, (x,), (x,))[1].tolist() == [3.0, 24.0]


def test_in_a_checkpoint_and_in_autocast():
    x = doubles(4)

    def f(x):
        return rl.utils.checkpoint.checkpoint(lambda x: x.exp().sin(), x).sum()

    close(
        grad(lambda x: grad(f)(x).sum())(x),
        grad(lambda x: grad(lambda x: x.exp().sin().sum())(x).sum())(x),
    )
    a = rl.tensor([[1.0, 2.0], [3.0, 4.0]])
    with rl.autocast("cpu", dtype=rl.bfloat16):
        g = grad(lambda a: (a @ a).float().sum())(a)
    assert g.dtype is rl.float32 and g.tolist() == [[7.0, 11.0], [9.0, 13.0]]


# ---- vjp ----


def test_vjp_of_trees():
    x, y = rl.tensor([1.0, 2.0]), rl.tensor([3.0, 4.0])
    out, pull = vjp(lambda x, p: {"a": x * p["y"], "b": (x.sum(),)}, x, {"y": y})
    assert out["a"].tolist() == [3.0, 8.0] and not out["a"].requires_grad
    for _ in range(2):  # the graph is retained
        gx, gp = pull({"b": (rl.tensor(10.0),), "a": rl.tensor([1.0, 1.0])})  # in any order of keys
        assert gx.tolist() == [13.0, 14.0] and gp["y"].tolist() == [1.0, 2.0]


def test_vjp_gives_a_tuple_for_one_primal_as_for_several():
    out, pull, aux = vjp(lambda x: (x * x, x + 1), rl.tensor([3.0]), has_aux=True)
    assert out.item() == 9 and aux.item() == 4 and pull(rl.tensor([1.0]))[0].item() == 6


def test_vjp_is_linear_and_differentiable_in_its_cotangent():
    x = doubles(3)
    _, pull = vjp(lambda x: x.sin(), x)
    u = doubles(3, seed=1)
    close(grad(lambda u: (pull(u)[0] * doubles(3, seed=2)).sum())(u), x.cos() * doubles(3, seed=2))
    v = u.clone().requires_grad_()
    pull(v)[0].sum().backward()
    close(v.grad, x.cos())


def test_vjp_inside_grad_sees_the_outer_level():
    f = lambda x: vjp(lambda y: y**3, x)[1](number(1.0))[0]  # noqa: E731
    assert grad(f)(number(2.0)).item() == 12
    outside = {}

    def keep(x):
        outside["pull"] = vjp(lambda y: y * y, x)[1]
        return outside["pull"](number(1.0))[0]

    assert grad(keep)(number(2.0)).item() == 2
    assert outside["pull"](number(1.0))[0].item() == 4


# ---- jvp ----


def test_jvp_of_closed_forms(device):
    x, t = rl.tensor([0.5, 1.0], device=device), rl.tensor([1.0, 10.0], device=device)
    out, push = jvp(lambda x: x * x, (x,), (t,))
    assert out.tolist() == [0.25, 1.0] and push.tolist() == [1.0, 20.0]
    assert not out.requires_grad and not push.requires_grad


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.tanh() @ x.T,
        lambda x: rl.softmax(x, -1).log(),
        lambda x: rl.nn.functional.layer_norm(x, (4,)),
        lambda x: rl.linalg.inv(x @ x.T + 3 * rl.eye(3, dtype=rl.float64)),
        lambda x: x.sort(dim=1).values.cumsum(0),
        lambda x: x[[0, 2, 2]].prod(dim=1),
        lambda x: rl.where(x > 1, x.exp(), x.sqrt()),
        lambda x: rl.nn.functional.conv1d(x[None], x.reshape(2, 3, 2)),
        lambda x: rl.fft.rfft(x).abs(),
        lambda x: rl.cat([x, x * x], 1).amax(1),
    ],
)
def test_jvp_against_differences(f):
    x, t = doubles(3, 4), doubles(3, 4, seed=1)
    out, push = jvp(f, (x,), (t,))
    close(out, f(x))
    close(push, along(f, x, t), 1e-7)


def test_jvp_where_the_slope_is_replaced():
    x, t = rl.zeros(3, dtype=rl.float64), doubles(3)
    for p in (1, 2, 3, math.inf):
        assert jvp(lambda x, p=p: rl.linalg.vector_norm(x, p), (x,), (t,))[1].item() == 0


def test_jvp_of_trees_aux_and_what_does_not_depend():
    x = rl.tensor([1.0, 2.0])
    f = lambda d, y: ({"p": d["a"] * d["b"][0], "q": y}, x + 1)  # noqa: E731
    out, push, aux = jvp(f, ({"a": x, "b": [x]}, x), ({"b": [x], "a": 2 * x}, 3 * x), has_aux=True)
    assert push["p"].tolist() == [3.0, 12.0] and push["q"].tolist() == [3.0, 6.0]
    assert out["p"].tolist() == [1.0, 4.0] and aux.tolist() == [2.0, 3.0]
    out, push = jvp(lambda x: (rl.ones(2), x > 1, x), (x,), (x,))
    assert (
        push[0].tolist() == [0.0, 0.0]
        and push[1].tolist() == [False, False]
        and push[2].tolist() == [1.0, 2.0]
    )
    with pytest.raises(RushlightError, match=r"output 0 .*does not depend"):
        jvp(lambda x: rl.ones(2), (x,), (x,), strict=True)
    with pytest.raises(RushlightError, match=r"output 1 .*does not depend"):
        w = rl.ones(2, requires_grad=True)
        jvp(lambda x: (x, w * w), (x,), (x,), strict=True)


def test_jvp_of_jvp_and_of_grad():
    x, t = number(0.3), number(1.0)
    f = lambda x: x.exp().sin()  # noqa: E731
    second = jvp(lambda x: jvp(f, (x,), (t,))[1], (x,), (t,))[1]
    e = math.exp(0.3)
    want = -math.sin(e) * e * e + math.cos(e) * e
    close(second, want)
    close(jvp(grad(f), (x,), (t,))[1], want)
    close(grad(lambda x: jvp(f, (x,), (t,))[1])(x), want)
    close(grad(lambda t: jvp(f, (x,), (t,))[1])(t), math.cos(e) * e)


def test_jvp_of_complex_functions():
    z = rl.tensor([1 + 2j, 0.5 - 1j], dtype=rl.complex128)
    t = rl.tensor([0.3 - 1j, 2 + 0.1j], dtype=rl.complex128)
    close(jvp(lambda z: z * z, (z,), (t,))[1], 2 * z * t)
    close(jvp(lambda z: z.conj() * z, (z,), (t,))[1], t.conj() * z + z.conj() * t)
    close(jvp(lambda z: z.abs(), (z,), (t,))[1], (z.conj() * t).real / z.abs())


def test_a_hessian_vector_product(device):
    x, v = rl.tensor([1.0, 2.0], device=device), rl.tensor([3.0, 4.0], device=device)
    f = lambda x: (x**3).sum() + x[0] * x[1] ** 2  # noqa: E731
    want = [6.0 * 3 + 4.0 * 4, 4.0 * 3 + (12.0 + 2.0) * 4]
    assert jvp(grad(f), (x,), (v,))[1].tolist() == want
    assert vjp(grad(f), x)[1](v)[0].tolist() == want


def test_linearize_runs_the_function_once():
    calls = []

    def f(x, y):
        calls.append(1)
        return x.sin() * y, y

    x, y = doubles(3), doubles(3, seed=1)
    out, push = linearize(f, x, y)
    close(out[0], x.sin() * y)
    for seed in (2, 3):
        s, t = doubles(3, seed=seed), doubles(3, seed=seed + 5)
        got = push(s, t)
        close(got[0], x.cos() * y * s + x.sin() * t)
        close(got[1], t)
        assert not got[0].requires_grad
    assert len(calls) == 1
    with pytest.raises(ShapeError, match="tangent 1"):
        push(x, x[:2])


# ---- jacobians ----


def test_jacobians_by_rows_and_by_columns_agree(device):
    x = rl.tensor([1.0, 2.0, 3.0], device=device)
    f = lambda x: rl.stack([x[0] * x[1], x.sum()])  # noqa: E731
    want = [[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    assert jacrev(f)(x).tolist() == want and jacfwd(f)(x).tolist() == want
    assert (
        jacrev(f, chunk_size=1)(x).tolist() == want and jacfwd(f, chunk_size=2)(x).tolist() == want
    )


def test_jacobians_of_trees_have_the_outputs_nesting_outside():
    x, y = doubles(2), doubles(3, seed=1)

    def f(p, z):
        return {"outer": p["x"][:, None] * p["y"], "one": p["x"].sum()}, [z]

    for jac in (jacrev, jacfwd):
        made, rest = jac(lambda p, z: f(p, z))({"x": x, "y": y}, x)
        assert made["outer"]["x"].shape == (2, 3, 2) and made["outer"]["y"].shape == (2, 3, 3)
        close(made["outer"]["y"], np.einsum("i,jk->ijk", x.numpy(), np.eye(3)))
        close(made["outer"]["x"], np.einsum("j,ik->ijk", y.numpy(), np.eye(2)))
        assert made["one"]["x"].tolist() == [1.0, 1.0] and made["one"]["y"].tolist() == [0.0] * 3
        assert rest[0]["x"].tolist() == [[0.0, 0.0]] * 2
        both = jac(lambda a, b: a * b, argnums=(0, 1))(x, x)
        assert isinstance(both, tuple) and both[1].tolist() == np.diag(x.numpy()).tolist()
        made, aux = jac(lambda a: (a * a, {"a": a}), has_aux=True)(x)
        close(made, np.diag(2 * x.numpy()))
        close(aux["a"], x)


def test_jacobians_of_nothing_and_of_numbers():
    empty = rl.zeros(0)
    for jac in (jacrev, jacfwd):
        assert jac(lambda x: x * 2)(empty).shape == (0, 0)
        assert jac(lambda x: x.sum())(empty).shape == (0,)
        assert jac(lambda x: x * rl.ones(2, 3))(rl.tensor(2.0)).shape == (2, 3)
        assert jac(lambda x: x * x)(rl.tensor(3.0)).item() == 6


def test_hessians():
    x, y = doubles(3), doubles(3, seed=1)
    f = lambda x, y: (x**2 * y.exp()).sum() + x.prod()  # noqa: E731
    h = hessian(f, argnums=(0, 1))(x, y)
    a, b = x.numpy(), y.numpy()
    cross = np.array([[0, a[2], a[1]], [a[2], 0, a[0]], [a[1], a[0], 0]])
    close(h[0][0], np.diag(2 * np.exp(b)) + cross)
    close(h[0][1], np.diag(2 * a * np.exp(b)))
    close(h[1][0], np.diag(2 * a * np.exp(b)))
    close(h[1][1], np.diag(a**2 * np.exp(b)))
    for other in (jacrev(jacrev(f)), jacfwd(jacfwd(f)), jacrev(jacfwd(f)), jacrev(grad(f))):
        close(other(x, y), h[0][0])
    third = jacfwd(hessian(lambda x: (x**3).sum()))(x)
    close(third, 6 * np.einsum("ij,jk->ijk", np.eye(3), np.eye(3)))


def test_jacobians_can_be_differentiated():
    x = doubles(3).requires_grad_()
    jacrev(lambda x: x.exp())(x).sum().backward()
    close(x.grad, x.exp())
    close(grad(lambda x: (jacfwd(lambda x: x**3)(x) ** 2).sum())(x), 36 * x**3)


# ---- errors ----


def test_errors_of_grad():
    x = rl.ones(3)
    with pytest.raises(DTypeError, match=r"grad: .*int64\[2\].*cast"):
        grad(lambda x: x.sum())(rl.tensor([1, 2]))
    with pytest.raises(RushlightError, match=r"one number, got float32\[3\].*jacrev"):
        grad(lambda x: x)(x)
    with pytest.raises(RushlightError, match=r"got tuple.*has_aux"):
        grad(lambda x: (x.sum(), x))(x)
    with pytest.raises(RushlightError, match="real number, got complex64"):
        grad(lambda x: (x * 1j).sum())(x)
    with pytest.raises(RushlightError, match=r"tuple \(output, aux\)"):
        grad(lambda x: x.sum(), has_aux=True)(x)
    with pytest.raises(ValueError, match="tensors are differentiated, got float"):
        grad(lambda x: x * 2)(2.0)
    for bad, words in (
        (2, "2 positional"),
        ((0, 0), "once"),
        ((0, -2), "once"),
        ((), "empty"),
        (1.0, "float"),
    ):
        with pytest.raises(RushlightError, match=words):
            grad(lambda x, y: (x * y).sum(), argnums=bad)(x, x)


def test_errors_of_products():
    x = rl.ones(3)
    _, pull = vjp(lambda x: (x, x), x)
    with pytest.raises(RushlightError, match=r"nested like the output \(\*, \*\), got \*"):
        pull(x)
    with pytest.raises(ShapeError, match=r"cotangent 1 is float32\[2\]"):
        pull((x, x[:2]))
    with pytest.raises(RushlightError, match="floating-point or complex, got bool"):
        vjp(lambda x: x > 0, x)
    with pytest.raises(RushlightError, match="tensors only, got float"):
        vjp(lambda x: 1.0, x)
    with pytest.raises(RushlightError, match="tuple of arguments, got Tensor"):
        jvp(lambda x: x, x, x)
    with pytest.raises(RushlightError, match="nested like the primal"):
        jvp(lambda x: x, (x,), (x, x))
    with pytest.raises(ShapeError, match="tangent 0"):
        jvp(lambda x: x, (x,), (x[:2],))
    with pytest.raises(DTypeError, match="is real"):
        jvp(lambda x: x, (x,), (x * 1j,))
    with pytest.raises(DTypeError, match="int64"):
        jvp(lambda x: x, (rl.arange(3),), (x,))
    for jac in (jacrev, jacfwd):
        with pytest.raises(RushlightError, match="inputs must be real"):
            jac(lambda z: z.abs())(x * 1j)
        with pytest.raises(ValueError, match="chunk_size"):
            jac(lambda z: z, chunk_size=0)


def test_writing_into_an_input_is_refused_or_right():
    def f(x):
        x.mul_(2)
        return (x * x).sum()

    x = rl.ones(3)
    with pytest.raises(InplaceError):
        grad(f)(x)
    assert x.tolist() == [1.0] * 3
    w = rl.ones(3, requires_grad=True)
    with pytest.raises(InplaceError):
        grad(f)(w)
    g = grad(f)(w * 1.0)  # a result may be written to, with the right gradient
    assert g.tolist() == [8.0] * 3
    assert grad(lambda x: f(x.clone()))(x).tolist() == [8.0] * 3


def test_an_error_in_the_function_leaves_nothing_set():
    x = rl.ones(3)
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: 1 // 0)(x)
    assert rl.is_grad_enabled()
    with rl.no_grad(), pytest.raises(ZeroDivisionError):
        jvp(lambda x: 1 // 0, (x,), (x,))
    assert grad(lambda x: x.sum())(x).tolist() == [1.0] * 3


def test_rows_of_a_jacobian_through_rowwise_derivatives():
    """Operands that every row shares stand beside batched ones."""
    x = doubles(2, 4, 3)
    for f in (
        lambda x: rl.nn.functional.group_norm(x, 2),
        lambda x: rl.nn.functional.instance_norm(x),
        lambda x: rl.renorm(x, 2, 0, 1.0),
        lambda x: rl.pdist(x[0]),
        lambda x: rl.nn.functional.cross_entropy(
            x, rl.tensor([[0, 1, 3], [2, 2, 0]]), reduction="none"
        ),
    ):
        close(jacrev(f)(x), jacrev(f, chunk_size=1)(x))
        close(jacfwd(f)(x), jacrev(f, chunk_size=1)(x))
        close(jacrev(f, chunk_size=5)(x), jacrev(f, chunk_size=1)(x))


def test_in_inference_mode():
    with rl.inference_mode():
        y = rl.tensor([1.0, 2.0])
        assert grad(lambda x: (x * x).sum())(y).tolist() == [2.0, 4.0]
        assert jvp(lambda x: x * x, (y,), (y,))[1].tolist() == [2.0, 8.0]
        assert jacrev(lambda x: x * x)(y).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert grad(lambda x: (x * x).sum())(y).tolist() == [2.0, 4.0]


def test_an_inner_derivative_does_not_walk_the_history_of_its_inputs(monkeypatch):
    visited = []

    class Counting(grad_level.BoundedWalk):
        def count(self, edges):
            super().count(edges)
            visited.append(len(self.waiting))

    monkeypatch.setattr(grad_level, "BoundedWalk", Counting)
    w = doubles(2).requires_grad_()
    y = w * 1.0
    for _ in range(50):
        y = y - 0.01 * grad(lambda y: (y**3).sum())(y)
    assert len(visited) == 50 and visited[0] == visited[-1] < 10
    (g,) = rl.autograd.grad(y.sum(), w)
    step = 1e-6

    def solved(y):
        for _ in range(50):
            y = y - 0.03 * y**2
        return y

    close(g, (solved(w.detach() + step) - solved(w.detach() - step)) / (2 * step), 1e-8)


def test_a_function_that_gives_its_input_back():
    x = number(3.0).requires_grad_()
    assert grad(lambda y: y)(x).item() == 1
    out, pull = vjp(lambda y: (y, y, y * y), x)
    assert pull((number(1.0), number(10.0), number(100.0)))[0].item() == 611
    assert out[0].requires_grad and jvp(lambda y: y, (x,), (number(5.0),))[1].item() == 5
    assert grad(lambda x: x * grad(lambda y: y)(x))(x).item() == 1


def test_a_plain_pass_touches_nobody_elses_gradient():
    """Where only the level's own leaves are reached the faster pass runs.

    A captured leaf keeps its `.grad` in any mode.
    """
    w, x = rl.ones(2, requires_grad=True), rl.tensor([1.0, 2.0])
    with rl.no_grad():
        assert grad(lambda x: (w * x * x).sum())(x).tolist() == [2.0, 4.0]
    assert grad(lambda x: (w.detach() * x * x).sum())(x).tolist() == [2.0, 4.0]
    assert w.grad is None
    first, second = grad(lambda x, y: (x + y).sum(), argnums=(0, 1))(x, x)
    first.mul_(5)  # each result has memory of its own
    assert second.tolist() == [1.0, 1.0]


def test_the_older_functions_inside_the_newer_and_the_other_way_round():
    x = doubles(3)
    old = rl.autograd.functional

    def inside(x):
        (g,) = rl.autograd.grad((x**3).sum(), x, create_graph=True)
        return (g * x).sum()

    close(grad(inside)(x), 9 * x**2)
    close(grad(lambda x: old.jacobian(lambda x: x**3, x, create_graph=True).sum())(x), 6 * x)
    close(
        grad(lambda x: old.hvp(lambda x: (x**4).sum(), x, x, create_graph=True)[1].sum())(x),
        36 * x**2,
    )
    close(old.jacobian(lambda x: grad(lambda x: (x**3).sum())(x), x), rl.diag(6 * x))
    close(old.hessian(lambda x: jvp(lambda x: (x**3).sum(), (x,), (x,))[1], x), rl.diag(18 * x))


def test_a_captured_tensor_may_be_written_to():
    total, x = rl.zeros(2), rl.tensor([1.0, 2.0])

    def f(x):
        total.add_(x * x)
        return (total * total).sum()

    for calls in (1, 2, 3):  # total is calls * x^2, of which the last term depends on this call's x
        assert grad(f)(x).tolist() == [4.0 * calls, 32.0 * calls]
    assert total.tolist() == [3.0, 12.0]
