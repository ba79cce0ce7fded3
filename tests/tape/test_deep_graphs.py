"""Graphs of 100,000 nodes and of 2^60 paths: walked, replayed and destroyed without recursion.

They are freed without the collector.
"""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.utils.checkpoint import checkpoint

WIDTH = 16


def weights(count: int, device: str) -> list[rl.Tensor]:
    rl.manual_seed(7)
    return [(rl.randn(WIDTH, WIDTH, device=device) * 0.3).requires_grad_() for _ in range(count)]


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def deep(link: str, x: rl.Tensor, depth: int) -> rl.Tensor:
    y = x
    one = rl.ones(1)
    for _ in range(depth):
        y = y + one if link == "add" else y * one if link == "mul" else y.tanh()
    return y


@pytest.mark.parametrize("link", ["add", "mul", "tanh"])
def test_deep_graphs_do_not_overflow_the_stack_when_walked(link, no_collector):
    """A graph of a million nodes is in test_record_size.py."""
    x = rl.ones(1, requires_grad=True)
    deep(link, x, 100_000).backward()
    assert (x.grad.item() == 1.0) is (link != "tanh")


@pytest.mark.parametrize("link", ["add", "mul", "tanh"])
def test_deep_graphs_do_not_overflow_the_stack_when_destroyed(link, no_collector):
    """On a thread with a small stack."""
    x = rl.ones(1, requires_grad=True)
    start = memory.allocated()
    held = [deep(link, x, 100_000)]
    before = threading.stack_size(256 * 1024)
    thread = threading.Thread(target=held.clear)
    threading.stack_size(before)
    thread.start()
    thread.join()
    assert memory.allocated() == start


def test_deep_graphs_are_replayed_without_overflow(no_collector):
    """A checkpoint's recipes are walked without recursion."""
    x = rl.ones(1, requires_grad=True)
    start = memory.allocated()
    y = checkpoint(lambda t: deep("tanh", t, 20_000), x)
    y.backward()
    x.grad = None
    del y
    assert memory.allocated() == start


def test_the_graph_is_freed(device, no_collector):
    (w,) = weights(1, device)
    x = rl.ones(64, WIDTH, device=device)
    start = memory.allocated(device)
    h = (x @ w).tanh()
    loss = (h * h).sum()
    node = weakref.ref(h._node)
    del h
    loss.backward()
    w.grad = None
    # Saved values are freed by the walk, while the loss is alive.
    assert memory.allocated(device) <= start + 64
    del loss
    assert node() is None
    assert memory.allocated(device) == start


def test_kahn_order_without_recursion(device):
    """A node waits for every gradient: with 2^60 paths each is still visited once."""
    x = rl.ones(1, device=device, requires_grad=True)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60
