"""`vmap` of ops, modules and contexts with rules of their own, against a loop over the examples."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.func import grad, vjp, vmap
from rushlight.nn import functional as F
from tests.func.vmap_cases import draw, looped, same

# ---- kernel families whose rules the catalog's dtypes do not reach ----


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_convolution(groups, dims):
    """In float32, for which the CPU has kernels: more images, or more groups."""
    x, w = draw(3, 2, 8, 7, 6), draw(3, 16, 8 // groups, 3, 3, seed=1)
    x, w = (v if d == 0 else v[0] for v, d in zip((x, w), dims, strict=True))
    f = lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=groups)  # noqa: E731
    same(vmap(f, dims)(x, w), looped(f, x, w, dims=dims), 1e-4)
    both = grad(lambda x, w: f(x, w).sin().sum(), argnums=(0, 1))
    got = vmap(both, dims)(x, w)
    for k in range(2):
        same(got[k], looped(lambda *v, k=k: both(*v)[k], x, w, dims=dims), 1e-4)


def test_cotangents_of_a_convolution():
    x, w = draw(2, 8, 7, 6), draw(16, 8, 3, 3, seed=1)
    y, pull = vjp(lambda x, w: F.conv2d(x, w, padding=1), x, w)
    v = draw(3, *y.shape, seed=2)
    got = vmap(pull)(v)
    for k in range(2):
        same(got[k], rl.stack([pull(one)[k] for one in v]), 1e-4)


@pytest.mark.parametrize(
    "name", ["poisson", "binomial", "_sample_dirichlet", "multinomial", "dropout2d", "normal"]
)
def test_samplers(name):
    p = draw(4, 30, 2).abs() / 4 + 0.1

    def f(a):
        if name == "binomial":
            return rl.binomial(rl.full((30, 2), 10.0), a.clamp(0, 1))
        if name == "multinomial":
            return rl.multinomial(a.t(), 5)
        if name == "dropout2d":
            return F.dropout2d(a.reshape(1, 30, 2, 1), 0.5)
        return rl.normal(a * 0, 1.0) if name == "normal" else getattr(rl, name)(a)

    rl.manual_seed(1)
    first = vmap(f, randomness="different")(p)
    rl.manual_seed(1)
    same(vmap(f, randomness="different")(p), first, 0)
    even = vmap(f, randomness="different")(p[:1].expand(4, 30, 2))
    assert not bool((even[0] == even[1]).all())
    alike = vmap(f, randomness="same")(p[:1].expand(4, 30, 2))
    assert bool((alike[0] == alike[1]).all())


def test_attention_with_dropout():
    q, k, v = (draw(3, 2, 2, 5, 4, seed=s) for s in range(3))
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # noqa: E731
    rl.manual_seed(2)
    got = vmap(f, randomness="different")(q, k, v)
    rl.manual_seed(2)
    same(got, F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))


def test_running_statistics():
    x, mean, var = draw(3, 5, 2), rl.zeros(3, 2), rl.ones(3, 2)
    f = lambda x, m, v: F.batch_norm(x, m, v, training=True)  # noqa: E731
    alone = [(rl.zeros(2), rl.ones(2)) for _ in range(3)]
    want = rl.stack([f(x[i], *alone[i]) for i in range(3)])
    same(vmap(f)(x, mean, var), want)
    same(mean, rl.stack([m for m, _ in alone]))
    same(var, rl.stack([v for _, v in alone]))
    with pytest.raises(RuntimeError, match="running statistics that all examples share"):
        vmap(f, (0, None, None))(x, mean[0], var[0])


def test_to_another_device(require_device):
    require_device("webgpu")
    x = draw(3, 2)
    got = vmap(lambda a: (a.to("webgpu") * 2).cpu())(x)
    same(got, x * 2)
    same(grad(lambda x: vmap(lambda a: (a.to("webgpu") * a.to("webgpu")).cpu())(x).sum())(x), 2 * x)


def test_views_in_place():
    x = draw(4, 2, 3)
    same(vmap(lambda a: a.clone().t_())(x), x.transpose(1, 2))
    same(vmap(lambda a: a.clone().unsqueeze_(0))(x), x.unsqueeze(1))
    same(
        vmap(lambda a: a.clone().fill_diagonal_(0.0))(x),
        looped(lambda a: a.clone().fill_diagonal_(0.0), x),
    )
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda a: a.resize_(7))(x)
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda a: a.set_(a[0]))(x)


def test_no_examples():
    none = lambda *shape: rl.zeros(0, *shape)  # noqa: E731
    index = rl.zeros(0, 4, dtype=rl.int64)
    assert vmap(rl.sin)(none(3)).shape == (0, 3)
    assert vmap(lambda a: a.sum())(none(3)).shape == (0,)
    assert vmap(lambda a: rl.matmul(a, a))(none(3, 3)).shape == (0, 3, 3)
    assert vmap(grad(lambda a: a.sin().sum()))(none(3)).shape == (0, 3)
    assert vmap(lambda a: F.layer_norm(a, (3,)))(none(2, 3)).shape == (0, 2, 3)
    assert vmap(lambda a: rl.sort(a).values.cumsum(0))(none(3)).shape == (0, 3)
    assert vmap(rl.linalg.inv)(none(3, 3)).shape == (0, 3, 3)
    assert vmap(lambda a, i: a[i])(none(3), index).shape == (0, 4)
    assert vmap(lambda i: F.embedding(i, rl.ones(5, 2)))(index).shape == (0, 4, 2)
    assert vmap(lambda a: F.max_pool2d(a, 2))(none(1, 4, 4)).shape == (0, 1, 2, 2)
    assert vmap(lambda a: F.conv2d(a, rl.ones(16, 8, 3, 3)))(none(1, 8, 5, 5)).shape == (
        0,
        1,
        16,
        3,
        3,
    )
    assert vmap(F.conv2d)(none(1, 8, 5, 5), none(16, 8, 3, 3)).shape == (0, 1, 16, 3, 3)


def test_handles_outside_keep_their_record():
    x = draw(4, 3)
    assert vmap(lambda a: a)(x) is not x
    with pytest.raises(RuntimeError, match="requires_grad_"):
        vmap(lambda a: a.requires_grad_())(x)
    assert not x.requires_grad
    y = x.detach().requires_grad_() * 2
    same(vmap(lambda a: a.detach_())(y), y.detach())
    assert y.requires_grad
    view = vmap(lambda a: a)(x)
    view.zero_()
    assert bool((x == 0).all())


def test_modules():
    x = draw(3, 5, 2, 6)
    lstm = rl.nn.LSTM(6, 4, num_layers=2, bidirectional=True)
    block = rl.nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0)
    for f in (lambda a: lstm(a)[0], block):
        same(vmap(f)(x), looped(f, x), 1e-4)
        total = grad(lambda a, f=f: f(a).sin().sum())
        same(vmap(total)(x), looped(total, x), 1e-3)


def test_under_a_budget():
    w, x = draw(6, 6), draw(64, 40, 6, seed=1)
    f = lambda w, a: (rl.matmul(a, w).tanh().matmul(w).sin() * 2).sum()  # noqa: E731
    want = vmap(grad(f), (None, 0))(w, x)
    with rl.memory.budget("4MiB"):
        same(vmap(grad(f), (None, 0))(w, x), want, 0)


def test_workers_and_batched_gradients():
    w = draw(6, 6).requires_grad_()
    y = rl.matmul(w, w).sin() + rl.matmul(w, w * 2).cos()
    v = draw(5, 6, 6, seed=3)
    one = lambda v, n: rl.autograd.grad(y, w, v, retain_graph=True, workers=n)[0]  # noqa: E731
    same(vmap(one, (0, None))(v, 2), vmap(one, (0, None))(v, 1))


def test_distributions():
    x = draw(4, 3)
    f = lambda a: rl.distributions.Normal(a, a.exp()).log_prob(a * 2).sum()  # noqa: E731
    same(vmap(grad(f))(x), looped(grad(f), x))
    with pytest.raises(ValueError, match="must satisfy"):
        vmap(lambda a: rl.distributions.Normal(a, a).mean)(x)
