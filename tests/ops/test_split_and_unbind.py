"""split, chunk, unbind and iteration: views recorded once; the gradient of many is linear work."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import memory
from rushlight.utils.checkpoint import checkpoint

WAYS = {
    "split": lambda x: x.split(2, 1),
    "uneven split": lambda x: x.split([1, 0, 3, 2], 1),
    "chunk": lambda x: x.chunk(4, 1),
    "tensor_split": lambda x: x.tensor_split((1, 4), 1),
    "hsplit": lambda x: x.hsplit(3),
    "unbind": lambda x: x.unbind(1),
    "iteration": list,
}


def matrix(device: str, **named) -> rl.Tensor:
    return rl.arange(18.0, device=device).reshape(3, 6).requires_grad_(**named)


@pytest.mark.parametrize("name", list(WAYS))
def test_gradients_are_put_together_once(name, device):
    x = matrix(device)
    parts = WAYS[name](x)
    assert len({id(p._node.node) for p in parts}) == 1
    total = sum(((i + 1) * p * p).sum() for i, p in enumerate(parts))
    (g,) = rl.autograd.grad(total, x, create_graph=True)
    weight = rl.zeros(3, 6, device=device)
    for i, p in enumerate(WAYS[name](weight)):
        p.fill_(i + 1)
    assert g.tolist() == (2 * x.detach() * weight).tolist()
    (g * g).sum().backward()
    assert x.grad.tolist() == (8 * x.detach() * weight * weight).tolist()


@pytest.mark.parametrize("used", [[0], [1, 2], [3], [0, 3], []], ids=str)
@pytest.mark.parametrize("name", ["uneven split", "unbind"])
def test_what_is_not_used_gets_zero(name, used, device):
    x = matrix(device)
    parts = WAYS[name](x)
    total = sum([parts[i].sum() for i in used], x.sum() * 0)
    total.backward()
    want = rl.zeros(3, 6)
    for i in used:
        WAYS[name](want)[i].fill_(1)
    assert x.grad.tolist() == want.tolist()


@pytest.mark.parametrize(
    "way", [lambda x: x.split(6, 1), lambda x: x.chunk(1000, 1), lambda x: x.unbind(1)]
)
def test_the_gradient_of_many_takes_no_more_memory_than_one(way):
    x = rl.ones(3, 6000, requires_grad=True)
    loss = rl.stack([p.sum() for p in way(x)]).sum()
    start = memory.allocated()
    memory.reset_peak()
    loss.backward()
    small = 64 * 6000  # a block per sum's gradient
    assert memory.peak() - start <= 1.2 * x.nbytes + small


def test_writes_to_parts_reach_the_whole(device):
    leaf = matrix(device)
    x = leaf * 1.0
    first, second, third = x.chunk(3, 1)
    first.mul_(2.0)
    second.zero_()
    (x.sum() + third.sum() * 10 + first.sum()).backward()
    assert leaf.grad.tolist() == [[4.0, 4.0, 0.0, 0.0, 11.0, 11.0]] * 3


def test_writes_to_the_whole_reach_the_parts(device):
    leaf = matrix(device)
    x = leaf * 1.0
    parts = x.unbind(0)
    x.mul_(3.0)
    (parts[0].sum() + 2 * parts[2].sum()).backward()
    assert leaf.grad.tolist() == [[3.0] * 6, [0.0] * 6, [6.0] * 6]


def test_in_a_checkpoint(device):
    def block(x):
        a, b, c = x.exp().chunk(3, 1)
        return (a * b.sin() + c).exp().sum()

    x = rl.ones(4, 6, device=device, requires_grad=True)
    block(x).backward()
    want, x.grad = x.grad, None
    checkpoint(block, x).backward()
    assert x.grad.tolist() == want.tolist()


def test_the_gradient_of_cat_is_taken_apart_once():
    x, y = rl.ones(2, 3, requires_grad=True), rl.ones(4, 3, requires_grad=True)
    g = rl.arange(18.0).reshape(6, 3).requires_grad_()
    first, second = rl.autograd.grad(rl.cat([x, y]), (x, y), g, create_graph=True)
    assert first._node.node is second._node.node
    ((first * first).sum() + second.sum()).backward()
    np.testing.assert_array_equal(g.grad.numpy(), [[0, 2, 4], [6, 8, 10], *[[1, 1, 1]] * 4])


def test_one_part_and_none(device):
    x = matrix(device)
    assert x.split(6, 1)[0].tolist() == x.tolist()
    assert rl.zeros(0, 3, device=device).unbind(0) == ()
    (row,) = rl.ones(1, 3, device=device, requires_grad=True).unbind(0)
    assert row.shape == (3,)
    assert [p.shape for p in rl.zeros(0, 3, device=device).chunk(2)] == [(0, 3), (0, 3)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("dim", [0, 1])
def test_neighbours_that_lie_alike_are_joined_at_once(device, count, dim):
    made = [np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * i for i in range(count)]
    parts = [rl.tensor(a, device=device) for a in made]
    assert rl.cat(parts, dim).tolist() == np.concatenate(made, dim).tolist()
    turned = [rl.tensor(np.ascontiguousarray(a.T), device=device).t() for a in made]
    mixed = [pair[i % 2] for i, pair in enumerate(zip(parts, turned, strict=True))]
    assert (
        rl.cat(turned, dim).tolist()
        == rl.cat(mixed, dim).tolist()
        == np.concatenate(made, dim).tolist()
    )
    assert (
        rl.cat([parts[0]] * count, dim).tolist() == np.concatenate(made[:1] * count, dim).tolist()
    )
