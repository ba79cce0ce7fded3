"""`vmap` against a loop over the examples: arguments, composition with derivatives, errors, randomness, writes in place."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest

import rushlight as rl
from rushlight.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from rushlight.nn import functional as F
from rushlight.tape import call as tape_call


def draw(*shape, device="cpu", seed=0, dtype="float32"):
    return rl.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), device=device)


def looped(function, *args, dims=None):
    """The stack of the function's results, example by example."""
    dims = dims or (0,) * len(args)
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    rows = [
        function(*[a if d is None else a.select(d, i) for a, d in zip(args, dims, strict=True)]) for i in range(size)
    ]
    return rl.stack(rows)


def same(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    assert got.dtype is want.dtype
    assert float((got - want).abs().max()) <= tolerance if got.numel() else True


# ---- arguments and results ----


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, None), (None, -1), (-2, 1)])
def test_in_dims(dims, device):
    x, y = draw(3, 3, device=device), draw(3, 3, seed=1, device=device)
    f = lambda a, b: (a * b).sin() + a.sum()  # noqa: E731
    same(vmap(f, in_dims=dims)(x, y), looped(f, x, y, dims=dims))


@pytest.mark.parametrize("out_dim", [0, 1, 2, -1, -2, -3])
def test_out_dims(out_dim):
    x = draw(4, 2, 3)
    want = looped(rl.sin, x)
    got = vmap(rl.sin, out_dims=out_dim)(x)
    same(got, want.movedim(0, out_dim))


def test_an_output_that_does_not_depend_is_repeated():
    x, c = draw(4, 2), draw(3)
    same(vmap(lambda a: c)(x), c.expand(4, 3))
    same(vmap(lambda a: c, out_dims=1)(x), c.unsqueeze(1).expand(3, 4))
    assert vmap(lambda a: (a, c), out_dims=(0, None))(x)[1] is c


class Pair(NamedTuple):
    left: object
    right: object


def test_nested_arguments():
    x, y = draw(4, 2), draw(3, 4, seed=1)

    def f(tree, scale):
        return OrderedDict(sum=tree["a"][0].sum() + tree["b"].right.sum(), rest=[tree["a"][0] * scale, tree["b"].left])

    tree = {"a": (x,), "b": Pair(draw(5), y)}
    dims = ({"a": (0,), "b": Pair(None, 1)}, None)
    out = vmap(f, in_dims=dims, out_dims=0)(tree, 2.0)
    assert type(out) is OrderedDict
    same(out["sum"], x.sum(1) + y.sum(0))
    same(out["rest"][0], x * 2)
    same(out["rest"][1], draw(5).expand(4, 5))
    prefix = vmap(f, in_dims=({"a": 0, "b": Pair(None, 1)}, None), out_dims=OrderedDict(sum=0, rest=[1, None]))
    assert prefix(tree, 2.0)["rest"][0].shape == (2, 4)


def test_keyword_arguments_are_not_mapped():
    x = draw(4, 2)
    same(vmap(lambda a, *, by: a * by)(x, by=x), x.unsqueeze(1) * x)


def test_nested_levels():
    x, y = draw(4, 3), draw(5, seed=1)
    outer = vmap(vmap(lambda a, b: a * b + b.sin(), (None, 0)), (0, None))
    same(outer(x[:, 0], y), x[:, 0].unsqueeze(1) * y + y.sin())
    same(vmap(vmap(rl.cumsum, (0, None)), (0, None))(draw(2, 3, 4), 0), draw(2, 3, 4).cumsum(2))
    # an op that sees values of different levels
    f = vmap(lambda a: vmap(lambda b: rl.matmul(a, b))(draw(3, 2, 2)))
    want = rl.stack([rl.stack([rl.matmul(a, b) for b in draw(3, 2, 2)]) for a in draw(4, 2, 2, seed=1)])
    same(f(draw(4, 2, 2, seed=1)), want)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks(size):
    x = draw(7, 3)
    f = lambda a: (a.sin(), a.sum())  # noqa: E731
    whole = vmap(f, out_dims=(1, 0))(x)
    parts = vmap(f, out_dims=(1, 0), chunk_size=size)(x)
    for got, want in zip(parts, whole, strict=True):
        same(got, want)


def test_a_decorated_function_keeps_its_name():
    @vmap
    def double(x):
        """Twice."""
        return x + x

    assert double.__name__ == "double" and double.__doc__ == "Twice."


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
    """What `is_grads_batched` does."""
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
    models = [rl.nn.Sequential(rl.nn.Linear(3, 4), rl.nn.Tanh(), rl.nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = models[0]
    x = draw(5, 3)
    got = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))(params, buffers, x)
    same(got, rl.stack([m(x) for m in models]))


def test_per_sample_gradients_of_a_module():
    model = rl.nn.Sequential(rl.nn.Conv2d(1, 2, 3), rl.nn.ReLU(), rl.nn.Flatten(), rl.nn.Linear(8, 3))
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
    f = lambda a: rl.utils.checkpoint.checkpoint(lambda b: b.sin().exp(), a, use_reentrant=False).sum()  # noqa: E731
    same(vmap(grad(f))(x), looped(grad(f), x))


# ---- promotion, writes in place ----


def test_numbers_of_examples_do_not_widen():
    x, y = draw(3), draw(4, dtype="float64", seed=1)
    assert vmap(lambda b: x + b)(y).dtype is rl.float32
    assert vmap(lambda b: rl.where(b > 0, x, b))(y).dtype is vmap(lambda b: x * b)(y).dtype is rl.float32
    whole = vmap(lambda a, b: a.mul_(b))(x.expand(4, 3).clone(), y)
    assert whole.dtype is rl.float32


def test_writes_in_place():
    def f(x, y):
        out = rl.zeros_like(x)
        out[1:] = y[:2] * 2
        out[0] += x.sum()
        out.mul_(y).add_(1.0)
        fresh = x.new_zeros(2)
        fresh[0] = y[0]
        return out, fresh, x.clone().t_() if x.dim() > 1 else x

    x, y = draw(4, 3), draw(4, 3, seed=1)
    got = vmap(f)(x, y)
    want = [f(x[i], y[i]) for i in range(4)]
    for k in range(3):
        same(got[k], rl.stack([w[k] for w in want]))
    original = draw(4, 3)
    vmap(lambda a: a.add_(1.0))(original)
    same(original, draw(4, 3) + 1)


def test_gradients_of_writes_in_place():
    def f(x):
        out = x * 1.0
        view = out[1:]
        view.mul_(x[:2])
        return (out * out.sin()).sum()

    x = draw(4, 3)
    same(vmap(grad(f))(x), looped(grad(f), x))
    same(grad(lambda x: vmap(f)(x).sum())(x), looped(grad(f), x))


def test_a_batch_does_not_fit_into_one():
    x, one = draw(4, 3), draw(3)
    with pytest.raises(RuntimeError, match=r"add_.*has no place for every example"):
        vmap(lambda a: one.add_(a))(x)
    with pytest.raises(RuntimeError, match=r"copy_.*has no place for every example"):
        vmap(lambda a: one.copy_(a))(x)
    with pytest.raises(RuntimeError, match="has no place"):
        vmap(lambda a: one.__setitem__(0, a[0]))(x)


# ---- errors ----


def test_errors_of_arguments():
    x, y = draw(4, 3), draw(5, 3)
    with pytest.raises(ValueError, match=r"same size in the mapped dimension, got \[4, 5\]"):
        vmap(rl.add)(x, y)
    with pytest.raises(ValueError, match="at least one input must be mapped"):
        vmap(rl.sin, in_dims=None if False else (None,))(x)
    with pytest.raises(ValueError, match="got no inputs"):
        vmap(lambda: x)()
    with pytest.raises(ValueError, match=r"in_dim=2 for an input of 2 dimensions"):
        vmap(rl.sin, in_dims=2)(x)
    with pytest.raises(ValueError, match="type int; only tensors"):
        vmap(lambda a, b: a)(x, 3)
    with pytest.raises(ValueError, match="in_dims is not nested like the inputs"):
        vmap(rl.add, in_dims=(0, 0, 0))(x, x)
    with pytest.raises(ValueError, match="expected in_dims to be an int or a tuple"):
        vmap(rl.sin, in_dims=[0])(x)
    with pytest.raises(ValueError, match="must only return tensors, got type float"):
        vmap(lambda a: 1.0)(x)
    with pytest.raises(ValueError, match="out_dims is not nested like the outputs"):
        vmap(rl.sin, out_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="out_dim cannot be None"):
        vmap(rl.sin, out_dims=None)(x)
    with pytest.raises(IndexError, match="out_dim 2 is out of range"):
        vmap(rl.sin, out_dims=2)(x)
    with pytest.raises(RuntimeError, match="randomness is"):
        vmap(rl.sin, randomness="maybe")
    with pytest.raises(ValueError, match="chunk_size"):
        vmap(rl.sin, chunk_size=0)


@pytest.mark.parametrize(
    "read",
    [
        lambda a: a.sum().item(),
        lambda a: a if a.sum() > 0 else -a,
        lambda a: a.tolist(),
        lambda a: a.numpy(),
        lambda a: float(a[0]),
        lambda a: rl.nonzero(a),
        lambda a: rl.unique(a),
        lambda a: a[a > 0],
        lambda a: rl.masked_select(a, a > 0),
        lambda a: rl.allclose(a, a),
        lambda a: a.backward(),
    ],
)
def test_elements_of_examples_are_not_read(read):
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(read)(draw(4, 3))


def test_a_value_does_not_outlive_its_vmap():
    kept = []
    vmap(lambda a: kept.append(a) or a)(draw(4, 3))
    for use in (rl.sin, lambda a: a + 1, lambda a: a.sum(), lambda a: a.reshape(3, 1), lambda a: rl.matmul(a, a)):
        with pytest.raises(RuntimeError, match="vmap that has ended"):
            use(kept[0])
        with pytest.raises(RuntimeError, match="vmap that has ended"):
            vmap(lambda b, use=use: use(kept[0]))(draw(4, 3))


def test_a_handle_shows_its_batch():
    shown = []
    vmap(lambda a: shown.append(repr(a)) or a)(draw(4, 3))
    assert "BatchedTensor" in shown[0] and "shape=[3]" in shown[0]


# ---- random numbers ----


@pytest.mark.parametrize("name", ["rand", "dropout", "bernoulli", "normal_", "gamma", "permutation"])
def test_randomness(name):
    x = draw(4, 50).abs() + 0.5

    def f(a):
        if name == "rand":
            return a * 0 + rl.rand(50)
        if name == "dropout":
            return F.dropout(a * 0 + 1, 0.5)
        if name == "bernoulli":
            return rl.bernoulli(a * 0 + 0.5)
        if name == "normal_":
            return a.clone().normal_()
        if name == "gamma":
            return rl._standard_gamma(rl.ones(50)) + a * 0
        return rl.randperm(50) + a * 0

    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(f)(x)
    rl.manual_seed(3)
    alike = vmap(f, randomness="same")(x)
    rl.manual_seed(3)
    same(alike[0], f(x[0]))
    assert all(bool((alike[i] == alike[0]).all()) for i in range(4))
    rl.manual_seed(3)
    others = vmap(f, randomness="different")(x)
    after = rl.rand(1).item()
    assert not any(bool((others[i] == others[j]).all()) for i in range(4) for j in range(i))
    rl.manual_seed(3)
    same(vmap(f, randomness="different")(x), others, 0)
    assert rl.rand(1).item() == after  # as many numbers were taken


def test_randomness_of_nested_levels():
    x = draw(4, 3)
    inner = vmap(lambda a: rl.rand(5) + a * 0, randomness="same")
    out = vmap(inner, randomness="different")(x)
    assert bool((out[:, 0] == out[:, 1]).all()) and not bool((out[0] == out[1]).all())


def test_gradient_of_dropout_inside():
    x = draw(4, 50)
    rl.manual_seed(5)
    kept = vmap(lambda a: F.dropout(a * 0 + 1, 0.5), randomness="different")(x)
    rl.manual_seed(5)
    got = vmap(grad(lambda a: F.dropout(a * 0 + 1 + a, 0.5).sum()), randomness="different")(x)
    same(got, kept)
    # cotangents batched, the numbers drawn outside
    y, pull = vjp(lambda a: F.dropout(a, 0.5), rl.ones(6))
    same(vmap(pull)(rl.eye(6))[0], rl.diag(y))


# ---- work ----


def test_work_does_not_grow_with_the_batch(monkeypatch):
    """The plans that run are as many for a batch of 2 as for one of 64."""
    model = rl.nn.Sequential(rl.nn.Linear(3, 8), rl.nn.LayerNorm(8), rl.nn.GELU(), rl.nn.Linear(8, 3))
    params = {k: v.detach() for k, v in model.named_parameters()}

    def one(params, x, t):
        return F.cross_entropy(functional_call(model, params, (x,)), t)

    counts = {}
    run, launch_at = tape_call.run, tape_call.launch_at
    for size in (2, 64):
        x, t = draw(size, 3), rl.zeros(size, dtype=rl.int64)
        count = [0]

        def counted(f, count=count):
            def inner(*args, **named):
                count[0] += 1
                return f(*args, **named)

            return inner

        monkeypatch.setattr(tape_call, "run", counted(run))
        monkeypatch.setattr(tape_call, "launch_at", counted(launch_at))
        vmap(grad(one), (None, 0, 0))(params, x, t)
        monkeypatch.undo()
        counts[size] = count[0]
    assert counts[2] == counts[64] > 10


# ---- user functions ----


class Cube(rl.autograd.Function):
    """x ** 3 * w, whose backward speaks of one example."""

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
    both = grad(lambda x: vmap(vmap(cubed, (0, None)), (None, 0))(x, draw(2, 3, dtype="float64")).sum())(x)
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
            order = np.argsort(x.detach().numpy(), dim)  # no op: it needs all of the elements on the host
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


# ---- kernel families with rules that the catalog's types do not reach ----


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


@pytest.mark.parametrize("name", ["poisson", "binomial", "_sample_dirichlet", "multinomial", "dropout2d", "normal"])
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
    if name in ("poisson", "binomial", "_sample_dirichlet"):
        with pytest.raises(RuntimeError, match="randomness='same'"):
            vmap(f, randomness="same")(p)
    else:
        alike = vmap(f, randomness="same")(p[:1].expand(4, 30, 2))
        assert bool((alike[0] == alike[1]).all())


def test_attention_with_dropout():
    q, k, v = (draw(3, 2, 2, 5, 4, seed=s) for s in range(3))
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # noqa: E731
    rl.manual_seed(2)
    got = vmap(f, randomness="different")(q, k, v)
    rl.manual_seed(2)
    same(got, F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    with pytest.raises(RuntimeError, match="randomness='same'"):
        vmap(f, randomness="same")(q, k, v)


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
    same(vmap(lambda a: a.clone().fill_diagonal_(0.0))(x), looped(lambda a: a.clone().fill_diagonal_(0.0), x))
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda a: a.resize_(7))(x)
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda a: a.set_(a[0]))(x)
