"""The graph in memory: its depth, and when it is freed."""

from __future__ import annotations

import contextlib
import gc
import threading

import pytest

import rushlight as rl
from rushlight import memory


@pytest.fixture
def no_collector():
    """Reference counting alone: the collector is off while the test runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def network(device: str) -> tuple[list[rl.Tensor], rl.Tensor]:
    w = [rl.rand(64, 64, device=device, requires_grad=True) for _ in range(3)]
    x = rl.rand(64, 64, device=device)
    return w, x


def loss_of(w: list[rl.Tensor], x: rl.Tensor) -> rl.Tensor:
    h = x
    for part in w:
        h = rl.layer_norm((h @ part).tanh() + h, (64,))
    return rl.softmax(h.reshape(-1, 8), -1)[:, 1:].exp().mean()


def test_a_graph_goes_after_backward(device, no_collector):
    w, x = network(device)
    loss_of(w, x).backward()
    for part in w:
        part.grad = None
    start = memory.allocated(device)
    loss = loss_of(w, x)
    assert memory.allocated(device) > start + 3 * 64 * 64 * 4
    loss.backward()
    for part in w:
        part.grad = None
    assert memory.allocated(device) <= start + 64  # the loss itself
    del loss
    assert memory.allocated(device) == start


def test_a_graph_goes_without_backward(device, no_collector):
    w, x = network(device)
    start = memory.allocated(device)
    loss = loss_of(w, x)
    del loss
    assert memory.allocated(device) == start


def test_a_second_order_graph_goes(no_collector):
    x = rl.rand(1000, requires_grad=True)
    start = memory.allocated()
    y = (x * x).exp().sum()
    (g,) = rl.autograd.grad(y, x, create_graph=True)
    (h,) = rl.autograd.grad((g * g).sum(), x)
    del y, g, h
    assert memory.allocated() == start


def test_inplace_graphs_go(no_collector):
    w = rl.rand(1000, requires_grad=True)
    start = memory.allocated()
    h = rl.zeros(1000)
    part = h[100:200]
    h.add_(w).mul_(w).exp_()
    part.mul_(2.0)
    total = (h * w).sum() + part.sum()
    del h, part, total
    assert memory.allocated() == start


def test_what_is_not_saved_is_not_kept(no_collector):
    x = rl.rand(1000, requires_grad=True)
    start = memory.allocated()
    y = ((x + 1) + 2) + 3
    assert memory.allocated() == start + y.nbytes + (-y.nbytes % 64)


def test_a_hook_that_raises_gives_memory_back(no_collector):
    w, x = network("cpu")
    start = memory.allocated()
    loss = loss_of(w, x)

    def fail(g):
        raise ValueError

    w[0].register_hook(fail)
    with contextlib.suppress(ValueError):
        loss.backward()
    del loss
    for part in w:
        part.grad = None
    assert memory.allocated() == start


@pytest.mark.parametrize("saves", [False, True])
def test_a_very_deep_graph(saves, no_collector):
    x = rl.ones(1, requires_grad=True)
    one = rl.ones(1)
    start = memory.allocated()
    y = x
    for _ in range(200_000):
        y = y * one if saves else y + one
    y.backward()
    assert x.grad.item() == 1.0
    x.grad = None
    del y
    assert memory.allocated() == start


@pytest.mark.parametrize("link", ["view", "inplace", "several"])
def test_a_very_deep_graph_of_other_links(link, no_collector):
    x = rl.ones(2, 3, requires_grad=True)
    start = memory.allocated()
    y = x * 1
    for _ in range(20_000):
        if link == "view":
            y = y[:2]
            y = y.reshape(2, 3) if y.shape == (6,) else y.reshape(6)[:6].reshape(2, 3)
        elif link == "inplace":
            y.add_(1.0)
        else:
            y = rl.cat(y.split(1), 0)
    y.sum().backward()
    assert x.grad.flatten().tolist() == [1.0] * 6
    x.grad = None
    del y
    assert memory.allocated() == start


def test_a_very_deep_graph_is_destroyed_without_backward(no_collector):
    x = rl.ones(1, requires_grad=True)
    start = memory.allocated()
    y = x
    for _ in range(200_000):
        y = y.exp()
    del y
    assert memory.allocated() == start


def test_threads_have_their_own_grad_mode():
    x = rl.ones(1, requires_grad=True)
    seen = []
    with rl.no_grad():
        thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]


def test_backward_in_several_threads():
    w = [rl.rand(50, requires_grad=True) for _ in range(4)]

    def work(part):
        for _ in range(50):
            (part * part).sum().backward()

    threads = [threading.Thread(target=work, args=(part,)) for part in w]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in w:
        assert rl.all((part.grad - part * 100).abs() < 1e-3)
