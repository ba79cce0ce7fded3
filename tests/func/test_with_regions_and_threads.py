"""rushlight.func with vmap, checkpoints, budgets, threads and memory; trees; rearrange."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    rearrange,
    stack_module_state,
    vjp,
    vmap,
)
from rushlight.utils import _pytree as trees
from rushlight.utils.checkpoint import checkpoint


def doubles(*shape: int, seed: int = 0) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, shape))


def close(a, b, tolerance: float = 1e-12) -> None:
    assert a.shape == b.shape
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


# ---- vmap ----


def test_gradients_per_sample(device):
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
    params = {name: p.detach() for name, p in model.named_parameters()}
    x = rl.randn(5, 3).to(device)

    def loss(params, x):
        return functional_call(model, params, (x,)).square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(params, x)
    for i in range(5):
        alone = grad(loss)(params, x[i])
        for name in params:
            assert rl.allclose(each[name][i], alone[name], atol=1e-5), name


def test_derivatives_inside_and_outside_of_vmap():
    x, t = doubles(4, 3), doubles(4, 3, seed=1)
    w = doubles(3, seed=2)
    f = lambda x: (w * x.exp()).sin()  # noqa: E731
    rows = lambda made: rl.stack([made(x[i], t[i]) for i in range(4)])  # noqa: E731
    close(vmap(lambda x, t: jvp(f, (x,), (t,))[1])(x, t), rows(lambda x, t: jvp(f, (x,), (t,))[1]))
    close(vmap(lambda x, t: vjp(f, x)[1](t)[0])(x, t), rows(lambda x, t: vjp(f, x)[1](t)[0]))
    close(vmap(lambda x, t: jacrev(f)(x))(x, t), rows(lambda x, t: jacrev(f)(x)))
    close(vmap(lambda x, t: jacfwd(f)(x) @ t)(x, t), rows(lambda x, t: jacfwd(f)(x) @ t))
    close(
        vmap(hessian(lambda x: f(x).sum()))(x), rows(lambda x, t: hessian(lambda x: f(x).sum())(x))
    )
    close(
        vmap(lambda t: linearize(f, x[0])[1](t))(t), rl.stack([jvp(f, (x[0],), (v,))[1] for v in t])
    )
    whole = lambda x: vmap(grad(lambda x: f(x).sum()))(x)  # noqa: E731
    close(
        grad(lambda x: whole(x).square().sum())(x),
        grad(lambda x: (w * x.exp() * (w * x.exp()).cos()).square().sum())(x),
    )
    close(
        jvp(whole, (x,), (t,))[1], jvp(lambda x: w * x.exp() * (w * x.exp()).cos(), (x,), (t,))[1]
    )


def test_a_gradient_per_example_of_what_all_share():
    w, x = doubles(3), doubles(4, 3, seed=1)
    # w is the function's own, not mapped over.
    each = vmap(lambda x: grad(lambda w: (w * w * x).sum())(w))(x)
    close(each, 2 * w * x)
    v = w.clone().requires_grad_()
    vmap(grad(lambda x: (v * x * x).sum()))(x).sum().backward()
    close(v.grad, 2 * x.sum(0))


def test_an_ensemble():
    rl.manual_seed(0)
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, _ = stack_module_state(models)
    x = rl.randn(5, 3)
    out = vmap(lambda p: functional_call(models[0], p, (x,)))(params)
    assert rl.allclose(out, rl.stack([m(x) for m in models]), atol=1e-6)
    out.sum().backward()
    models[2](x).sum().backward()
    assert rl.allclose(params["weight"].grad[2], models[2].weight.grad, atol=1e-5)


# ---- the tape's modes ----


def test_checkpoints_and_budgets_change_no_bits():
    rl.manual_seed(0)
    x, w = rl.randn(32, 32), rl.randn(32, 32) / 6

    def f(x):
        for _ in range(12):
            x = rl.tanh(x @ w)
        return x.sum()

    want = grad(f)(x), jvp(grad(f), (x,), (x,))[1]
    before = rl.memory.recomputed()["calls"]
    with rl.memory.budget(rl.memory.allocated() + 176 * 1024):
        got = grad(f)(x), jvp(grad(f), (x,), (x,))[1]
    assert rl.memory.recomputed()["calls"] > before
    assert rl.equal(got[0], want[0]) and rl.equal(got[1], want[1])
    got = grad(lambda x: checkpoint(f, x))(x)
    assert rl.equal(got, want[0])
    y = doubles(4)
    g = lambda y: y.exp().sin()  # noqa: E731
    assert rl.equal(jacrev(lambda y: checkpoint(g, y))(y), jacrev(g)(y))
    assert rl.equal(hessian(lambda y: checkpoint(g, y).sum())(y), hessian(lambda y: g(y).sum())(y))


def test_threads_do_not_meet():
    found = {}

    def work(i: int) -> None:
        x = rl.full((3,), 2.0, dtype=rl.float64)
        for _ in range(10):
            h = hessian(lambda x: i * (x**3).sum())(x)
            found[i] = h.sum().item(), grad(grad(lambda t: i * t**3))(x[0]).item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: (36.0 * i, 12.0 * i) for i in range(6)}


def test_nothing_is_kept_and_nothing_waits_for_the_collector():
    x = rl.randn(50, 50)
    f = lambda x: x.sin() * x  # noqa: E731
    calls = [
        lambda: grad(lambda x: f(x).sum())(x),
        lambda: grad(lambda x: grad(lambda x: f(x).sum())(x).sum())(x),
        lambda: vjp(f, x)[1](x),
        lambda: jvp(f, (x,), (x,)),
        lambda: linearize(f, x)[1](x),
        lambda: hessian(lambda x: f(x).sum())(x[0]),
        lambda: vmap(grad(lambda x: f(x).sum()))(x),
        lambda: rl.autograd.functional.hvp(lambda x: f(x).sum(), x, x),
    ]
    for call in calls:
        call()
    gc.collect()
    gc.disable()
    try:
        before = rl.memory.allocated("cpu")
        for call in calls:
            call()
        assert rl.memory.allocated("cpu") == before
    finally:
        gc.enable()


# ---- trees ----

Point = namedtuple("Point", "x y")


class Box:
    def __init__(self, content, label):
        self.content, self.label = content, label


trees.register_pytree_node(
    Box, lambda b: ([b.content], b.label), lambda parts, label: Box(*parts, label)
)


def test_trees_come_apart_and_together():
    tree = {
        "a": [1, (2, None)],
        "b": Point(3, OrderedDict(c=4)),
        "d": defaultdict(list, e=5),
        "f": deque([6, 7], 3),
    }
    leaves, spec = trees.tree_flatten(tree)
    assert leaves == [1, 2, None, 3, 4, 5, 6, 7] and spec.num_leaves == 8
    again = trees.tree_unflatten(leaves, spec)
    assert (
        again == tree
        and type(again["b"]) is Point
        and again["d"].default_factory is list
        and again["f"].maxlen == 3
    )
    assert trees.tree_structure(again) == spec and trees.tree_structure(
        [1]
    ) != trees.tree_structure((1,))
    assert trees.tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"y": [20], "x": 10}) == {
        "x": 11,
        "y": [22],
    }
    assert trees.tree_map_only(int, lambda x: -x, [1, "a"]) == [-1, "a"]
    assert trees.tree_all(lambda x: x > 0, [1, [2]]) and trees.tree_any(lambda x: x > 1, [1, [2]])
    shown = trees.treespec_pprint(trees.tree_structure({"a": (1,), "b": [2]}))
    assert shown == "{'a': (*,), 'b': [*]}"
    for bad in ([1], (1, 2), {"x": 1}):
        with pytest.raises(ValueError, match="needed, got"):
            trees.tree_structure([1, 2] if bad != {"x": 1} else {"y": 1}).flatten_up_to(bad)
    with pytest.raises(ValueError, match="3 leaves for a tree that has 2"):
        trees.tree_unflatten([1, 2, 3], trees.tree_structure((1, 2)))
    with pytest.raises(ValueError, match="registered already"):
        trees.register_pytree_node(Box, lambda b: ([], None), lambda parts, label: None)


def test_a_class_of_ones_own_is_differentiated():
    g = grad(lambda b: (b.content**2).sum())(Box(rl.tensor([1.0, 2.0]), "name"))
    assert isinstance(g, Box) and g.label == "name" and g.content.tolist() == [2.0, 4.0]


# ---- the rest of torch.func ----


def test_rearrange():
    x = rl.arange(24.0).reshape(2, 3, 4)
    a = x.numpy()
    assert rearrange(x, "b h w -> b w h").tolist() == a.transpose(0, 2, 1).tolist()
    assert rearrange(x, "b h (p q) -> (b p) h q", p=2).tolist() == (
        a.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3).reshape(4, 3, 2).tolist()
    )
    assert rearrange(x, "... w -> w ...").shape == (4, 2, 3)
    assert rearrange(x, "b ... -> b (...)").shape == (2, 12)
    assert rearrange(x, "b h w -> b 1 h w ()").shape == (2, 1, 3, 4, 1)
    assert rearrange(x[:, :1], "b 1 w -> w b").shape == (4, 2)
    assert rearrange([x, x], "s b h w -> b h w s").shape == (2, 3, 4, 2)
    assert vmap(lambda x: rearrange(x, "h w -> (w h)"))(x).shape == (2, 12)
    assert grad(lambda x: (rearrange(x, "b h w -> (h b) w")[0] ** 2).sum())(x)[0, 0].tolist() == [
        0.0,
        2.0,
        4.0,
        6.0,
    ]


@pytest.mark.parametrize(
    "pattern, lengths, words",
    [
        ("b h w -> b h", {}, "w on one side only"),
        ("b h -> h b", {}, "names 2 dimensions"),
        ("b (h c) w -> b c h w", {}, "give the size of h or c"),
        ("b (h c) w -> b c h w", {"c": 2}, "does not make a dimension of 3"),
        ("b b w -> b w", {}, "more than once"),
        ("b h w", {}, "one '->'"),
        ("b h w -> w h b", {"q": 1}, "q is not in"),
        ("(b ...) -> b ...", {}, "left side"),
        ("b h (w -> b h w", {}, "not closed"),
        ("b h w) -> b h w", {}, "not opened"),
        ("b ((h) w) -> b h w", {}, "inside parentheses"),
        ("b h % -> b h %", {}, "no meaning"),
    ],
)
def test_rearrange_refuses(pattern, lengths, words):
    with pytest.raises(ValueError, match=words):
        rearrange(rl.zeros(2, 3, 4), pattern, **lengths)


def test_names_kept_for_pytorchs_sake():
    f = lambda x: x.clone().mul_(2)  # noqa: E731
    assert functionalize(f)(rl.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="remove"):
        functionalize(f, remove="all")
    seen = []
    vmap(lambda x: (seen.append(debug_unwrap(x).shape), x)[1])(rl.ones(3, 2))
    assert seen == [(3, 2)]
