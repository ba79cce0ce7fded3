"""Callbacks at the end of a pass, and storages whose owner frees them for a time."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.autograd import Variable
from rushlight.tape.memory.vacancy import is_vacant, occupy, vacate
from rushlight.tape.record.state import WALK
from rushlight.utils.checkpoint import checkpoint


def test_a_callback_runs_when_all_nodes_have_run() -> None:
    x = rl.ones(3, requires_grad=True)
    seen = []

    def hook(_: object) -> None:
        Variable._execution_engine.queue_callback(lambda: seen.append(x.grad is not None))

    y = x * 2
    y.register_hook(hook)
    (y * y).sum().backward()
    assert seen == [True]
    with pytest.raises(rl.RushlightError, match="no backward pass is running"):
        Variable._execution_engine.queue_callback(seen.clear)


def test_a_callback_that_fails_undoes_the_pass() -> None:
    x, other = rl.ones(3, requires_grad=True), rl.ones(2, requires_grad=True)

    def fail() -> None:
        WALK.get().deliver(other._node, rl.ones(2))
        assert other.grad is not None
        raise ValueError("of the callback")

    y = x * 2
    y.register_hook(lambda _: WALK.get().callbacks.append(fail))
    with pytest.raises(ValueError, match="of the callback"):
        y.sum().backward()
    assert x.grad is None and other.grad is None


def test_a_gradient_that_is_delivered_adds_up() -> None:
    x, other = rl.ones(3, requires_grad=True), rl.ones(2, requires_grad=True)
    for _ in range(2):
        y = x * 2
        y.register_hook(lambda _: WALK.get().deliver(other._node, rl.ones(2)))
        y.sum().backward()
    assert other.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("again", [False, True])
def test_a_vacant_storage_comes_back_for_backward(again: bool) -> None:
    w, x = rl.randn(64, 64, requires_grad=True), rl.randn(64, 64)
    bits = w.detach().clone()

    def run(x: rl.Tensor) -> rl.Tensor:
        return (x @ w).tanh() @ w

    loss = (checkpoint(run, x) if again else run(x)).sum()
    before = memory.allocated("cpu")
    vacate(w._memory)
    assert is_vacant(w._memory) and memory.allocated("cpu") == before - 64 * 64 * 4
    with pytest.raises(rl.RushlightError, match="resized to 0 bytes"):
        loss.backward(retain_graph=True)
    assert w.grad is None
    made = bits.clone()
    occupy(w._memory, made._memory)
    del made
    loss.backward()
    got, w.grad = w.grad, None
    run(x).sum().backward()
    assert rl.equal(got, w.grad)
