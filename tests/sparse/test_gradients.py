"""Sparse gradients of dense leaves, and optimisers that use them.

The numbers are PyTorch 2.13's. See Note [Sparse gradients].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import nn, optim

X = rl.tensor([[1, 3], [3, 5]])


def table(device: str = "cpu") -> Any:
    return rl.arange(12.0).reshape(6, 2).to(device).clone()


def embedding(device: str = "cpu", **named: Any) -> Any:
    return nn.Embedding(6, 2, sparse=True, _weight=table(device), **named)


def rows(gradient: Any) -> tuple[list[int], list[list[float]]]:
    whole = gradient.coalesce()
    return whole.indices()[0].tolist(), whole.values().tolist()


def test_the_gradient_is_sparse(device: str) -> None:
    layer, x = embedding(device), X.to(device)
    for turn in (1, 2, 3, 4):
        (layer(x) ** 2).sum().backward()
        assert layer.weight.grad.is_sparse and layer.weight.grad.shape == (6, 2)
        assert layer.weight.grad._nnz() <= 8
        want = [[4.0, 6.0], [24.0, 28.0], [20.0, 22.0]]
        assert rows(layer.weight.grad) == ([1, 3, 5], [[turn * v for v in row] for row in want])


def test_calls_add_up_in_one_pass() -> None:
    layer = embedding()
    (layer(X) + layer(rl.tensor([[0, 1], [1, 1]]))).sum().backward()
    assert rows(layer.weight.grad) == (
        [0, 1, 3, 5],
        [[1.0, 1.0], [4.0, 4.0], [2.0, 2.0], [1.0, 1.0]],
    )


def test_dense_and_sparse_meet() -> None:
    layer = embedding()
    layer(X).sum().backward()
    (layer.weight * 2).sum().backward()  # dense to sparse
    dense = layer.weight.grad
    assert not dense.is_sparse and dense[:, 0].tolist() == [2.0, 3.0, 2.0, 4.0, 2.0, 3.0]
    layer(X).sum().backward()  # sparse to dense, in place
    assert layer.weight.grad is dense and dense[:, 0].tolist() == [2.0, 4.0, 2.0, 6.0, 2.0, 4.0]
    for first in (True, False):  # both in one pass
        layer.weight.grad = None
        parts = [(layer.weight * 2).sum(), layer(X).sum()]
        sum(parts if first else parts[::-1]).backward()
        assert layer.weight.grad[:, 0].tolist() == [2.0, 3.0, 2.0, 4.0, 2.0, 3.0]


def test_padding_and_bags() -> None:
    layer = embedding(padding_idx=3)
    layer(X).sum().backward()
    assert layer.weight.grad._nnz() == 2 and rows(layer.weight.grad) == (
        [1, 5],
        [[1.0, 1.0], [1.0, 1.0]],
    )
    bag = nn.EmbeddingBag(6, 2, mode="mean", sparse=True, _weight=table())
    bag(X).pow(2).sum().backward()
    assert rows(bag.weight.grad) == ([1, 3, 5], [[4.0, 5.0], [12.0, 14.0], [8.0, 9.0]])
    bag = nn.EmbeddingBag(6, 2, mode="sum", sparse=True, _weight=table(), padding_idx=3)
    bag(X).pow(2).sum().backward()
    assert rows(bag.weight.grad) == ([1, 5], [[4.0, 6.0], [20.0, 22.0]])
    with pytest.raises(ValueError, match="max"):
        nn.EmbeddingBag(6, 2, mode="max", sparse=True)(X)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq"):
        embedding(scale_grad_by_freq=True)(X)


def test_whoever_else_asks_gets_the_dense_one() -> None:
    layer = embedding(padding_idx=3)
    want = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    layer(X).sum().backward(workers=2)
    assert layer.weight.grad.to_dense()[:, 0].tolist() == want
    w = table().requires_grad_()
    F.embedding(X, w * 1, sparse=True).sum().backward()  # no leaf is read
    assert not w.grad.is_sparse and w.grad[:, 0].tolist() == [0.0, 1.0, 0.0, 2.0, 0.0, 1.0]
    g = rl.func.grad(lambda w: (F.embedding(X, w, sparse=True) ** 2).sum())(table())
    assert g[1].tolist() == [4.0, 6.0]
    per = rl.vmap(rl.func.grad(lambda w, x: F.embedding(x, w, sparse=True).sum()), (None, 0))(
        table(), X
    )
    assert per[:, :, 0].tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]]


def test_asked_for_by_name() -> None:
    layer = embedding()
    other = rl.ones(2, requires_grad=True)
    g, h = rl.autograd.grad((layer(X) * other).sum(), [layer.weight, other])
    assert g.is_sparse and rows(g)[0] == [1, 3, 5] and h.tolist() == [24.0, 28.0]
    layer(X).sum().backward(inputs=[layer.weight])
    assert layer.weight.grad.is_sparse and other.grad is None
    (g,) = rl.autograd.grad((layer(X) ** 3).sum(), layer.weight, create_graph=True)
    assert g.is_sparse and g.requires_grad
    (second,) = rl.autograd.grad(g.to_dense().sum(), layer.weight)
    assert second.to_dense()[3].tolist() == [2 * 6 * 6.0, 2 * 6 * 7.0]
    (g,) = rl.autograd.grad(layer(X).sum() + layer.weight.sum(), layer.weight)
    assert not g.is_sparse and g[:, 0].tolist() == [1.0, 2.0, 1.0, 3.0, 1.0, 2.0]


def test_hooks_and_assignment() -> None:
    layer = embedding()
    seen: list[Any] = []
    layer.weight.register_hook(lambda g: seen.append(g.is_sparse))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad._nnz()))
    layer(X).sum().backward()
    assert seen == [True, 4]
    other = nn.Embedding(6, 2, _weight=table())
    other.weight.grad = layer.weight.grad
    other(X).sum().backward()
    assert other.weight.grad[:, 0].tolist() == [0.0, 2.0, 0.0, 4.0, 0.0, 2.0]
    with pytest.raises(RuntimeError, match="fit"):
        nn.Embedding(5, 2).weight.grad = layer.weight.grad
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad._nnz() == 0
    layer.zero_grad()
    assert layer.weight.grad is None


STEPS = [
    (
        optim.SparseAdam,
        {"lr": 0.1},
        [
            [0.0, 1.0],
            [1.70904, 2.70911],
            [3.92559, 4.92559],
            [5.81419, 6.81419],
            [8.0, 9.0],
            [9.81418, 10.81417],
        ],
    ),
    (
        optim.SparseAdam,
        {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "maximize": True},
        [
            [0.0, 1.0],
            [2.29583, 3.29551],
            [4.09188, 5.09188],
            [6.20258, 7.20255],
            [8.0, 9.0],
            [10.20248, 11.20247],
        ],
    ),
    (
        optim.SGD,
        {"lr": 0.1},
        [[0.0, 1.0], [0.768, 1.152], [2.4, 3.0], [2.16, 2.52], [8.0, 9.0], [6.4, 7.04]],
    ),
    (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9},
        [[0.0, 1.0], [-0.42, -0.63], [0.96, 1.2], [-1.08, -1.26], [8.0, 9.0], [3.34, 3.674]],
    ),
    (
        optim.Adagrad,
        {"lr": 0.1},
        [
            [0.0, 1.0],
            [1.77264, 2.77164],
            [3.9, 4.9],
            [5.82989, 6.8298],
            [8.0, 9.0],
            [9.82965, 10.82961],
        ],
    ),
]


@pytest.mark.parametrize(("kind", "options", "expected"), STEPS)
def test_steps(kind: Any, options: Any, expected: Any, device: str) -> None:
    layer = embedding(device)
    optimizer = kind(layer.parameters(), **options)
    for index in (X, rl.tensor([[1, 1], [2, 2]]), X):
        optimizer.zero_grad()
        (layer(index.to(device)) ** 2).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(layer.weight.detach().cpu().numpy(), expected, atol=2e-5)


def test_states_go_on() -> None:
    one, two = embedding(), embedding()
    first, second = (
        optim.SparseAdam(one.parameters(), lr=0.1),
        optim.SparseAdam(two.parameters(), lr=0.1),
    )
    for turn in range(4):
        for layer, optimizer in ((one, first), (two, second)):
            optimizer.zero_grad()
            (layer(X) ** 2).sum().backward()
            optimizer.step()
        if turn == 1:
            again = optim.SparseAdam(two.parameters(), lr=0.1)
            again.load_state_dict(second.state_dict())
            second = again
    assert rl.equal(one.weight, two.weight)


def test_who_takes_which() -> None:
    layer = embedding()
    layer(X).sum().backward()
    for kind, options in (
        (optim.Adam, {}),
        (optim.RMSprop, {}),
        (optim.SGD, {"weight_decay": 0.1}),
        (optim.Adagrad, {"weight_decay": 0.1}),
    ):
        with pytest.raises(RuntimeError, match="does not support sparse gradients"):
            kind(layer.parameters(), **options).step()
    dense = nn.Linear(2, 2)
    dense(rl.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optim.SparseAdam(dense.parameters()).step()
    with pytest.raises(ValueError):
        optim.SparseAdam(dense.parameters(), lr=0.0)
    with pytest.raises(ValueError, match="dense parameter"):
        optim.SparseAdam([rl.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True)])


def test_memory_of_its_own() -> None:
    layer, index = embedding(), X.clone()
    layer(index).sum().backward()
    index.zero_()
    assert rows(layer.weight.grad) == ([1, 3, 5], [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]])
    layer.weight.grad._values().mul_(2)
    assert rows(layer.weight.grad)[1] == [[2.0, 2.0], [4.0, 4.0], [2.0, 2.0]]


def test_scaled_gradients() -> None:
    layer, plain = embedding(), embedding()
    scaler = rl.amp.GradScaler(init_scale=1024.0)
    first, second = optim.SparseAdam(layer.parameters()), optim.SparseAdam(plain.parameters())
    scaler.scale((layer(X) ** 2).sum()).backward()
    scaler.step(first)
    scaler.update()
    (plain(X) ** 2).sum().backward()
    second.step()
    assert rl.equal(layer.weight, plain.weight) and not rl.equal(layer.weight, table())


def test_nothing_of_the_tables_size_is_made() -> None:
    layer = nn.Embedding(100_000, 16, sparse=True)
    index = rl.tensor([3, 70_000, 3])
    layer(index).sum().backward()
    layer.weight.grad = None
    before = rl.memory.allocated()
    rl.memory.reset_peak()
    layer(index).sum().backward()
    optim.SGD(layer.parameters(), lr=1.0).step()
    assert rl.memory.peak() - before < 100_000
