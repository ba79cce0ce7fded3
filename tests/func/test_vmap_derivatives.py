"""`vmap` and derivatives in any order, against a loop over the examples; user functions inside."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from rushlight.nn import functional as F
from tests.func.vmap_cases import draw, looped, same

# ---- derivatives ----


def loss(w, x):
    return rl.matmul(w, x).tanh().pow(2).sum()


@pytest.fixture
def operands(device):
    return draw(5, 3, device=device), draw(4, 3, seed=1, device=device)


def test_per_sample_gradients(operands):
    w, x = operands
    same(vmap(grad(loss), (None, 0))(w, x), looped(grad(loss), w, x, dims=(None, 0)))


def test_gradient_of_vmap(operands):
    w, x = operands
    total = grad(lambda w: vmap(loss, (None, 0))(w, x).sum())(w)
    same(total, looped(grad(loss), w, x, dims=(None, 0)).sum(0))
    leaf = w.detach().requires_grad_()
    vmap(loss, (None, 0))(leaf, x).sum().backward()
    same(leaf.grad, total)


def test_vmap_over_vjp(operands):
    w, x = operands
    _, pull = vjp(lambda w: rl.matmul(w, x[0]).tanh(), w)
    units = rl.eye(5, device=w.device)
    same(vmap(pull)(units)[0], rl.stack([pull(u)[0] for u in units]))


def test_vmap_over_plain_autograd(operands):
    """The mechanism of `is_grads_batched`."""
    w, x = operands
    leaf = w.detach().requires_grad_()
    y = rl.matmul(leaf, x[0]).tanh()
    one = lambda v: rl.autograd.grad(y, leaf, v, retain_graph=True)[0]  # noqa: E731
    units = rl.eye(5, device=w.device)
    same(vmap(one)(units), rl.stack([one(u) for u in units]))


def jacobian_by_rows(x):
    _, pull = vjp(lambda x: x.sin() * x.sum(), x)
    return vmap(pull)(rl.eye(3, dtype=x.dtype, device=x.device))[0]


@pytest.mark.parametrize(
    "derive",
    [
        jacrev(lambda x: x.sin() * x.sum()),
        jacfwd(lambda x: x.exp() * x.sum()),
        hessian(lambda x: (x.sin() * x.roll(1, 0)).sum()),
        grad(lambda x: grad(lambda x: (x**3).prod())(x).sum()),
        lambda x: jvp(lambda x: x.sin() * x.sum(), (x,), (x.cos(),))[1],
        jacobian_by_rows,
    ],
    ids=["jacrev", "jacfwd", "hessian", "grad grad", "jvp", "vmap in vmap"],
)
def test_vmap_of_derivatives(derive):
    x = draw(4, 3, dtype="float64")
    same(vmap(derive)(x), looped(derive, x), 1e-12)


def test_gradient_through_per_sample_gradients(operands):
    w, x = operands
    by_vmap = grad(lambda w: vmap(grad(loss), (None, 0))(w, x).pow(2).sum())(w)
    by_loop = grad(lambda w: looped(grad(loss), w, x, dims=(None, 0)).pow(2).sum())(w)
    same(by_vmap, by_loop, 1e-4)


def test_an_ensemble():
    models = [
        rl.nn.Sequential(rl.nn.Linear(3, 4), rl.nn.Tanh(), rl.nn.Linear(4, 2)) for _ in range(3)
    ]
    params, buffers = stack_module_state(models)
    base = models[0]
    x = draw(5, 3)
    got = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))(
        params, buffers, x
    )
    same(got, rl.stack([m(x) for m in models]))


def test_per_sample_gradients_of_a_module():
    model = rl.nn.Sequential(
        rl.nn.Conv2d(1, 2, 3), rl.nn.ReLU(), rl.nn.Flatten(), rl.nn.Linear(8, 3)
    )
    params = {k: v.detach() for k, v in model.named_parameters()}
    x, t = draw(6, 1, 4, 4), rl.tensor([0, 1, 2, 0, 1, 2])

    def one(params, x, t):
        return F.cross_entropy(functional_call(model, params, (x.unsqueeze(0),)), t.unsqueeze(0))

    got = vmap(grad(one), (None, 0, 0))(params, x, t)
    for k in params:
        same(got[k], rl.stack([grad(one)(params, x[i], t[i])[k] for i in range(6)]))


def test_hooks_see_one_example():
    seen = []

    def f(x):
        y = x.sin()
        y.register_hook(lambda g: seen.append(g.shape) or g * 2)
        return y.sum()

    x = draw(4, 3)
    same(vmap(grad(f))(x), 2 * x.cos())
    assert seen == [(3,)]


def test_checkpoint_inside():
    x = draw(4, 3)
    f = lambda a: rl.utils.checkpoint.checkpoint(  # noqa: E731
        lambda b: b.sin().exp(), a, use_reentrant=False
    ).sum()  # noqa: E731, RUF100
    same(vmap(grad(f))(x), looped(grad(f), x))


# ---- user functions ----


class Cube(rl.autograd.Function):
    """x ** 3 * w, with a backward of one example."""

    @staticmethod
    def forward(ctx, x, w, power):
        out = x**power * w
        ctx.save_for_backward(x, w, out)
        ctx.power = power
        return out, x.sum()

    @staticmethod
    def backward(ctx, g, g_sum):
        x, w, out = ctx.saved_tensors
        assert g.shape == x.shape == out.shape == (3,) and g_sum.shape == ()
        return g * ctx.power * x ** (ctx.power - 1) * w + g_sum, g * x**ctx.power, None


def cubed(x, w):
    out, total = Cube.apply(x, w, 3)
    return (out.sin() * total).sum()


def test_user_functions():
    x, w = draw(4, 3, dtype="float64"), draw(3, dtype="float64", seed=1)
    one = grad(cubed, argnums=(0, 1))
    got = vmap(one, (0, None))(x, w)
    for k in range(2):
        same(got[k], rl.stack([one(x[i], w)[k] for i in range(4)]), 1e-12)
    through = grad(lambda x, w: vmap(cubed, (0, None))(x, w).sum(), argnums=(0, 1))(x, w)
    same(through[0], got[0], 1e-12)
    same(through[1], got[1].sum(0), 1e-12)
    both = grad(
        lambda x: vmap(vmap(cubed, (0, None)), (None, 0))(x, draw(2, 3, dtype="float64")).sum()
    )(x)
    want = sum(vmap(grad(cubed), (0, None))(x, v) for v in draw(2, 3, dtype="float64"))
    same(both, want, 1e-12)
    jac = jacrev(lambda x: Cube.apply(x, w, 3)[0])
    same(vmap(jac)(x), looped(jac, x), 1e-12)
    _, pull = vjp(lambda x: Cube.apply(x, w, 3)[0], x[0])
    same(vmap(pull)(rl.eye(3, dtype=rl.float64))[0], jac(x[0]), 1e-12)


def test_a_user_function_with_a_vmap_of_its_own():
    class Sorted(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x, dim):
            # No op: it needs all elements on the host.
            order = np.argsort(x.detach().numpy(), dim)
            ctx.dim = dim
            ctx.save_for_backward(rl.tensor(order))
            return rl.tensor(np.take_along_axis(x.detach().numpy(), order, dim))

        @staticmethod
        def backward(ctx, g):
            (order,) = ctx.saved_tensors
            return rl.zeros_like(g).scatter_add(ctx.dim, order, g), None

        @staticmethod
        def vmap(info, in_dims, x, dim):
            assert info.batch_size == 4 and in_dims == (0, None)
            return Sorted.apply(x, dim + 1), 0

    x = draw(4, 3)
    f = lambda x: (Sorted.apply(x, 0) * rl.tensor([1.0, 2.0, 3.0])).sum()  # noqa: E731
    same(vmap(lambda x: Sorted.apply(x, 0))(x), x.sort(1).values)
    leaf = x.detach().requires_grad_()
    vmap(f)(leaf).sum().backward()
    same(leaf.grad, rl.argsort(rl.argsort(x, 1), 1).float() + 1)


def test_a_sum_over_examples_is_not_taken_for_one_gradient(operands):
    w, x = operands
    leaf = w.detach().requires_grad_()
    with pytest.raises(RuntimeError, match="one tensor for all examples"):
        vmap(lambda x: rl.autograd.grad(loss(leaf, x), leaf)[0])(x)
    batched = vmap(
        lambda x: rl.autograd.grad(loss(leaf, x), leaf, materialize_grads=True, allow_unused=True)[
            0
        ]
    )
    with pytest.raises(RuntimeError, match="one tensor for all examples"):
        batched(x)
