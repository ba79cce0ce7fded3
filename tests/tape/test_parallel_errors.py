"""Parallel backward ends when a node raises or gets no gradient.

Sums and modes are those of one thread.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import rushlight as rl
from rushlight.tape.walk import parallel
from tests.devices.services import got
from tests.time_limit import time_limit as time_limit

WORKERS = (2, 4)


@pytest.fixture(autouse=True)
def every_node_is_worth_a_thread(monkeypatch):
    monkeypatch.setattr(parallel, "LONG", 0)


class Told(rl.autograd.Function):
    """The identity; its backward calls what it was given."""

    @staticmethod
    def forward(ctx, x, tell):
        ctx.tell = tell
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return ctx.tell(g), None


def branches(x: rl.Tensor, tell, count: int = 6) -> rl.Tensor:
    return rl.stack([Told.apply(x * float(i + 1), tell(i)).exp() for i in range(count)]).sum()


@pytest.mark.parametrize("workers", WORKERS)
def test_it_does_not_hang_when_a_node_raises(workers):

    def tell(i):
        def backward(g):
            if i == 2:
                raise ArithmeticError("node 2")
            return g

        return backward

    x = rl.full((8,), 0.1, requires_grad=True)
    for _ in range(20):
        with pytest.raises(ArithmeticError, match="node 2"):
            branches(x, tell).backward(workers=workers)
    x.grad = None
    branches(x, lambda i: lambda g: g).backward(workers=workers)
    assert x.grad is not None


@pytest.mark.parametrize("workers", WORKERS)
def test_it_does_not_hang_when_a_node_gets_no_gradient(workers):
    for _ in range(20):
        x = rl.full((8,), 0.1, requires_grad=True)
        branches(x, lambda i: lambda g: None if i % 2 else g).backward(workers=workers)
        want = sum((i + 1) * np.exp(np.float32(0.1) * (i + 1)) for i in (0, 2, 4))
        np.testing.assert_allclose(got(x.grad), np.full(8, want), rtol=1e-5)


@pytest.mark.parametrize("workers", WORKERS)
def test_no_wake_up_is_lost(workers):
    """Many short walks, whose nodes end at the same time."""
    x = rl.full((4,), 0.1, requires_grad=True)
    for turn in range(300):
        pause = 0.0 if turn % 3 else 1e-4

        def tell(i, pause=pause):
            return lambda g: (time.sleep(pause * (i % 2)), g)[1]

        branches(x, tell, 3).backward(workers=workers)


def test_leaf_sums_do_not_depend_on_thread_order():
    sizes = 10.0 ** np.arange(-3, 3)
    found = set()
    for turn in range(12):
        x = rl.tensor(np.linspace(0.1, 1.3, 50).astype(np.float32), requires_grad=True)

        def tell(i, turn=turn):
            return lambda g: (time.sleep(0.002 * ((i * 7 + turn * 5) % 6)), g * sizes[i])[1]

        branches(x, tell).backward(workers=1 if turn == 0 else 4)
        found.add(got(x.grad).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("workers", WORKERS)
def test_grad_mode_and_autocast_reach_the_workers(workers):
    seen = []
    x, w = rl.ones(8, 8, requires_grad=True), rl.ones(8, 8)

    def tell(i):
        def backward(g):
            time.sleep(0.01)
            seen.append((threading.get_ident(), rl.is_grad_enabled(), (g @ w).dtype))
            return g

        return backward

    with rl.autocast("cpu", dtype=rl.bfloat16):
        branches(x, tell, 8).backward(workers=workers, create_graph=True)
    assert {state[1:] for state in seen} == {(True, rl.bfloat16)}
    assert len({state[0] for state in seen}) > 1
    seen.clear()
    branches(x, tell, 8).backward(workers=workers)
    assert {state[1:] for state in seen} == {(False, rl.float32)}
