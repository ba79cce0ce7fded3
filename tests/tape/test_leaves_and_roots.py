"""Which tensors get gradients, of which shape, how they accumulate, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import GraphFreedError, RushlightError, ShapeError
from tests.devices.services import got, put, sample


def test_hooks_run_once_on_the_sum(device):
    x = put(np.array([2.0], np.float32), device, grad=True)
    y = x * 3
    seen: dict[str, list[float]] = {"leaf": [], "inner": [], "after": []}
    x.register_hook(lambda g: seen["leaf"].append(g.item()))
    y.register_hook(lambda g: seen["inner"].append(g.item()))
    x.register_post_accumulate_grad_hook(lambda leaf: seen["after"].append(leaf.grad.item()))
    (y * y + y + x * x).sum().backward()  # y gets 2 * 6 + 1; x gets 3 * 13 + 2 * 2
    assert seen == {"leaf": [43.0], "inner": [13.0], "after": [43.0]}


def test_backward_on_a_leaf(device):
    x = put(np.array([5.0], np.float32), device, grad=True)
    x.backward()
    assert x.grad.tolist() == [1.0]
    x.backward(rl.full((1,), 2.0, device=device))
    assert x.grad.tolist() == [3.0]


@pytest.mark.parametrize("shape", [(1, 1), (1,), ()])
def test_the_seed_gradient_has_the_root_s_shape(device, shape):
    x = rl.full(shape, 3.0, device=device, requires_grad=True)
    y = x * x
    seen = []
    y.register_hook(lambda g: seen.append(g.shape))
    y.backward()
    assert seen == [shape]
    assert x.grad.shape == shape


def test_frozen_tensors_get_no_gradient(device):
    x, frozen = rl.ones(3, device=device, requires_grad=True), rl.ones(3, device=device)
    y = x * frozen
    y.sum().backward()
    assert frozen.grad is None
    assert y._node.edges[1] is None  # nor is one computed
    assert got(x.grad).tolist() == [1.0] * 3


def test_a_second_backward_adds_the_same_gradient(device):
    x = rl.full((3,), 2.0, device=device, requires_grad=True)
    h = x * x
    loss = (h * h).sum()  # 4 x^3 = 32
    for count in (1, 2, 3):
        loss.backward(retain_graph=True)
        assert got(x.grad).tolist() == [32.0 * count] * 3


def test_only_what_asks_for_a_gradient_gets_one(device):
    x = rl.ones(3, device=device, requires_grad=True)
    constant = rl.ones(3, device=device)
    h = x * constant
    kept = h.exp()
    kept.retain_grad()
    loss = kept.sum()
    loss.backward()
    assert x.grad is not None
    assert kept.grad is not None
    assert h.grad is None
    assert constant.grad is None


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else got(t).tobytes() for t in tensors]


def test_a_functional_gradient_result(device):
    """The gradient of any value; `.grad` is not touched."""
    x = rl.full((3,), 2.0, device=device, requires_grad=True)
    h = x * x
    found = rl.autograd.gradients((h * h).sum())
    assert found[h].tolist() == [8.0] * 3
    assert found[x].tolist() == [32.0] * 3
    assert x.grad is None


def test_an_external_gradient_for_a_root_of_many_elements(device):
    x = rl.ones(3, device=device, requires_grad=True)
    with pytest.raises(RushlightError, match="gradient must be given"):
        (x * 2).backward()
    (x * 2).backward(rl.tensor([1.0, 2.0, 3.0], device=device))
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_gradient_and_post_accumulate_hooks(device):
    x = rl.ones(1, device=device, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.item()))
    (x * 3).backward()
    handle.remove()
    (x * 3).backward()
    assert seen == [30.0, 33.0]


def test_accumulation_in_place_is_safe(device):
    """A gradient that has another owner is not written to."""
    x, y = (
        rl.ones(2, device=device, requires_grad=True),
        rl.ones(2, device=device, requires_grad=True),
    )
    seed = rl.ones(2, device=device)
    (x + y + x).backward(seed)
    assert (x.grad.tolist(), y.grad.tolist(), seed.tolist()) == ([2.0, 2.0], [1.0, 1.0], [1.0, 1.0])


class Wrong(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, what):
        ctx.what = what
        return x + y

    @staticmethod
    def backward(ctx, g):
        return {"count": (g,), "shape": (g.reshape(3, 2)[:2], g, None)}[ctx.what]


@pytest.mark.parametrize("what", ["count", "shape"])
def test_a_wrong_count_or_shape_of_gradients_is_an_error(what, device):
    x, y = (
        rl.ones(2, 3, device=device, requires_grad=True),
        rl.ones(2, 3, device=device, requires_grad=True),
    )
    with pytest.raises((RushlightError, ShapeError), match="Wrong"):
        Wrong.apply(x, y, what).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("workers", [2, 4])
def test_several_threads_give_the_same_bits(workers, device):

    def run(count):
        x = put(sample(64), device, grad=True)
        rl.stack([(x * float(10**i)).sin() for i in range(-3, 4)]).sum().backward(workers=count)
        return bits(x.grad)

    assert run(workers) == run(1)


def test_a_freed_graph_says_so(device):
    x = rl.ones(2, device=device, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    with pytest.raises(GraphFreedError, match="retain_graph"):
        loss.backward()
