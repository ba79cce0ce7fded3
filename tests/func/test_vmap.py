"""`vmap` against a loop over the examples: arguments, errors, randomness, writes in place, work."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import pytest

import rushlight as rl
from rushlight.func import functional_call, grad, vjp, vmap
from rushlight.nn import functional as F
from rushlight.tape.record import call as tape_call
from tests.func.vmap_cases import draw, looped, same

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
        return OrderedDict(
            sum=tree["a"][0].sum() + tree["b"].right.sum(),
            rest=[tree["a"][0] * scale, tree["b"].left],
        )

    tree = {"a": (x,), "b": Pair(draw(5), y)}
    dims = ({"a": (0,), "b": Pair(None, 1)}, None)
    out = vmap(f, in_dims=dims, out_dims=0)(tree, 2.0)
    assert type(out) is OrderedDict
    same(out["sum"], x.sum(1) + y.sum(0))
    same(out["rest"][0], x * 2)
    same(out["rest"][1], draw(5).expand(4, 5))
    prefix = vmap(
        f, in_dims=({"a": 0, "b": Pair(None, 1)}, None), out_dims=OrderedDict(sum=0, rest=[1, None])
    )
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
    want = rl.stack(
        [rl.stack([rl.matmul(a, b) for b in draw(3, 2, 2)]) for a in draw(4, 2, 2, seed=1)]
    )
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


# ---- promotion, writes in place ----


def test_numbers_of_examples_do_not_widen():
    x, y = draw(3), draw(4, dtype="float64", seed=1)
    assert vmap(lambda b: x + b)(y).dtype is rl.float32
    assert (
        vmap(lambda b: rl.where(b > 0, x, b))(y).dtype
        is vmap(lambda b: x * b)(y).dtype
        is rl.float32
    )
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
    for use in (
        rl.sin,
        lambda a: a + 1,
        lambda a: a.sum(),
        lambda a: a.reshape(3, 1),
        lambda a: rl.matmul(a, a),
    ):
        with pytest.raises(RuntimeError, match="vmap that has ended"):
            use(kept[0])
        with pytest.raises(RuntimeError, match="vmap that has ended"):
            vmap(lambda b, use=use: use(kept[0]))(draw(4, 3))


def test_a_handle_shows_its_batch():
    shown = []
    vmap(lambda a: shown.append(repr(a)) or a)(draw(4, 3))
    assert "BatchedTensor" in shown[0] and "shape=[3]" in shown[0]


# ---- random numbers ----


@pytest.mark.parametrize(
    "name", ["rand", "dropout", "bernoulli", "normal_", "gamma", "permutation"]
)
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
    """A batch of 2 runs as many plans as a batch of 64."""
    model = rl.nn.Sequential(
        rl.nn.Linear(3, 8), rl.nn.LayerNorm(8), rl.nn.GELU(), rl.nn.Linear(8, 3)
    )
    params = {k: v.detach() for k, v in model.named_parameters()}

    def one(params, x, t):
        return F.cross_entropy(functional_call(model, params, (x,)), t)

    counts = {}
    run, launch_at = tape_call.run, tape_call.launch_at
    for size in (2, 64):
        x, t = draw(size, 3), rl.zeros(size, dtype=rl.int64)
        count = [0]
        for _ in range(3):  # until the calls and their derivatives are cached
            vmap(grad(one), (None, 0, 0))(params, x, t)

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


def test_what_is_learned_of_a_call_is_no_more_than_its_kind():
    """Equal specs: one tensor twice, two tensors, swapped, other numbers, with and without a
    record.
    """
    x, y = draw(4, 3), draw(4, 3, seed=1)
    for _ in range(3):
        same(vmap(lambda a, b: a - a)(x, y), x - x)
        same(vmap(lambda a, b: a - b)(x, y), x - y)
        same(vmap(lambda a, b: b - a)(x, y), y - x)
        for number in (2.0, 3.0):
            same(vmap(lambda a, n=number: (a + n).pow(n))(x), (x + number).pow(number))
        for dim in (0, 1):
            same(vmap(lambda a, d=dim: a.reshape(3, 1).sum(d))(x), x.reshape(4, 3, 1).sum(dim + 1))
        same(vmap(grad(lambda a: (a * a.sum(0)).sum()))(x), 2 * x.sum(1, keepdim=True).expand(4, 3))
        with rl.no_grad():
            assert not vmap(lambda a: rl.softmax(a, 0))(x.detach().requires_grad_()).requires_grad
        assert vmap(lambda a: rl.softmax(a, 0))(x.detach().requires_grad_()).requires_grad


def test_views_by_strides():
    x = rl.arange(60.0).view(3, 4, 5)
    made = vmap(lambda a: a.as_strided((2, 2), (1, 5)))(x)
    assert made.tolist() == [a[:2, :2].t().tolist() for a in x]
    slope = vmap(grad(lambda a: (a.as_strided((2, 2), (1, 5)) ** 2).sum()))(x)
    assert (
        slope[:, :2, :2].tolist() == (2 * x[:, :2, :2]).tolist()
        and slope.sum() == slope[:, :2, :2].sum()
    )
    with pytest.raises(rl.RushlightError, match="outside of a storage"):
        vmap(lambda a: a.as_strided((2, 20), (5, 2)))(x)
