"""A failed backward pass changes no `.grad`; the same pass again gives the usual bits."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import OutOfMemoryError, memory
from rushlight.utils.checkpoint import checkpoint
from tests.memory.failing_allocations import Failing, fail_at_every_allocation
from tests.memory.training_step import Model, bits


@pytest.fixture
def failing(monkeypatch) -> Failing:
    return Failing(monkeypatch)


def started(device: str = "cpu", passes: int = 0, hooks: bool = False) -> Any:
    """A model after so many passes, and the loss of the next one."""
    model: Any = Model(device)
    rl.manual_seed(5)
    model.x = rl.randn(64, 64, device=device)
    model.seen = []
    if hooks:
        for p in model.parameters:
            p.register_post_accumulate_grad_hook(lambda p: model.seen.append(bits(p.grad)[0]))
    for _ in range(passes):
        model.loss(model.x).backward()
    model.seen.clear()
    model.mean.zero_()
    model.var.fill_(1.0)
    return model


def one_pass(model: Any, **options: Any) -> None:
    rl.manual_seed(6)
    loss = model.loss(model.x, model.wrap) if hasattr(model, "wrap") else model.loss(model.x)
    loss.backward(**options)


def gradients(model: Any) -> Any:
    return bits(*[p.grad for p in model.parameters])


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("passes", [0, 1])
def test_memory_that_ends_in_a_pass(failing, passes, hooks):
    def make() -> Any:
        return started(passes=passes, hooks=hooks)

    assert fail_at_every_allocation(failing, make, one_pass, gradients) > 10


def test_memory_that_ends_in_a_pass_by_several_threads(failing):
    def make() -> Any:
        return started(passes=1)

    def act(model: Any) -> None:
        one_pass(model, workers=2)

    assert fail_at_every_allocation(failing, make, act, gradients) > 10


@pytest.mark.parametrize("kind", ["checkpoint", "budget"])
def test_memory_that_ends_in_a_pass_of_a_region(failing, kind):
    def make() -> Any:
        model = started(passes=1)
        if kind == "checkpoint":
            model.wrap = checkpoint
        return model

    def act(model: Any) -> None:
        with memory.budget(1 << 30) if kind == "budget" else contextlib.nullcontext():
            one_pass(model)

    assert fail_at_every_allocation(failing, make, act, gradients) > 10


def test_memory_that_ends_in_a_pass_on_webgpu(failing, require_device):
    device = require_device("webgpu")

    def make() -> Any:
        x = rl.ones(8, 8, device=device, requires_grad=True)
        w = rl.ones(8, 8, device=device, requires_grad=True)
        (x @ w).sum().backward()
        return x, w

    def act(pair: Any) -> None:
        (pair[0] @ pair[1]).tanh().exp().sum().backward()

    def look(pair: Any) -> Any:
        return bits(*[p.grad for p in pair])

    assert fail_at_every_allocation(failing, make, act, look, device)


def test_memory_that_ends_in_a_pass_of_sparse_gradients(failing):
    def make() -> Any:
        rl.manual_seed(2)
        dense, sparse = (rl.randn(6, 2).requires_grad_() for _ in range(2))
        dense.sum().backward()
        F.embedding(rl.tensor([1, 2]), sparse, sparse=True).sum().backward()
        return dense, sparse, rl.randn(6, 2).requires_grad_()

    def act(tables: Any) -> None:
        sum(
            F.embedding(rl.tensor([4, 1, 4]), t, sparse=True).square().sum() for t in tables
        ).backward()

    def look(tables: Any) -> Any:
        return bits(
            *[
                None if t.grad is None else t.grad.to_dense() if t.grad.is_sparse else t.grad
                for t in tables
            ]
        )

    assert fail_at_every_allocation(failing, make, act, look)


@pytest.mark.parametrize("passes", [0, 1])
def test_gradients_that_are_kept_are_as_before_too(failing, passes):
    def make() -> Any:
        x = rl.ones(4, requires_grad=True)
        y = x * 2
        y.retain_grad()
        z = y.exp().sum()
        for _ in range(passes):
            z.backward(retain_graph=True)
        return x, y, z

    def look(made: Any) -> Any:
        return bits(made[0].grad, made[1].grad)

    assert fail_at_every_allocation(
        failing, make, lambda made: made[2].backward(retain_graph=True), look
    )


@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_hook_that_raises_changes_no_gradient(passes, workers):
    """Other leaves have their gradients by then; so has one with a hook that saw the sum."""
    a, b, c = (rl.full((4,), float(i), requires_grad=True) for i in (1, 2, 3))
    seen = []
    b.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    for _ in range(passes):
        (a * b * c).sum().backward()
    before = bits(a.grad, b.grad, c.grad)
    same = b.grad
    h = a * 2

    def fail(g: Any) -> None:
        raise ZeroDivisionError

    h.register_hook(fail)
    last = (h.exp() * b * c).sum()
    seen.clear()
    with pytest.raises(ZeroDivisionError):
        last.backward(workers=workers)
    assert seen
    assert bits(a.grad, b.grad, c.grad) == before
    assert b.grad is same or not passes


def test_a_rule_that_raises_changes_no_gradient():
    class Fails(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ZeroDivisionError

    a, b = rl.ones(3, requires_grad=True), rl.ones(3, requires_grad=True)
    a.grad = rl.full((3,), 5.0)
    with pytest.raises(ZeroDivisionError):
        (Fails.apply(b) * a * 2).sum().backward()
    assert a.grad.tolist() == [5.0] * 3
    assert b.grad is None


def test_gradients_are_added_where_they_lie():
    x = rl.ones(3, requires_grad=True)
    x.sum().backward()
    first, address = x.grad, x.grad._memory.address
    (x * 2).sum().backward()
    assert x.grad is first
    assert first._memory.address == address
    assert first.tolist() == [3.0] * 3


def test_a_gradient_that_a_hook_takes_away_is_given_anew():
    a, b = rl.ones(3, requires_grad=True), rl.ones(3, requires_grad=True)
    a.grad = rl.full((3,), 5.0)
    h = b * 1

    def forget(g: Any) -> None:
        a.grad = None

    h.register_hook(forget)
    (h.exp() * a).sum().backward()
    assert a.grad is not None
    assert bits(a.grad) == bits(b.detach().exp())


def test_ctrl_c_in_a_pass_changes_no_gradient(failing):
    failing.error = KeyboardInterrupt
    made = fail_at_every_allocation(
        failing, lambda: started(passes=1), one_pass, gradients, error=KeyboardInterrupt
    )
    assert made > 10


def test_memory_that_a_failed_pass_held_is_given_back(failing):
    model = started(passes=1)
    start = memory.allocated()
    memory.empty_cache()
    failing.start(15)
    with pytest.raises(OutOfMemoryError):
        one_pass(model)
    failing.start(0)
    assert memory.allocated() == start
