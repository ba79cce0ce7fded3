"""Failing allocations and Ctrl-C at every point of a step: no leaks, right bits, the program goes
on.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, OutOfMemoryError, memory
from rushlight.devices.shared.allocator import Pool
from rushlight.ops.create.creation import resolve_pool
from rushlight.ops.random.random import default_generator
from rushlight.tape.memory.foresight import STEADY
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record.state import STATE
from rushlight.utils.checkpoint import checkpoint
from tests.memory.training_step import Model, bits, plain


@pytest.fixture(autouse=True)
def counted_references():
    """Values of a failed step must be freed by reference counting alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


class Failing:
    """`Pool.fresh` that raises at its n-th call; 0: never, only counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
        self.at = 0
        self.calls = 0
        self.error = error
        fresh = Pool.fresh

        def failing(pool: Pool, room: int, *reading: Any) -> int:
            self.calls += 1
            if self.calls == self.at:
                raise self.error("simulated")
            return fresh(pool, room, *reading)

        monkeypatch.setattr(Pool, "fresh", failing)

    def start(self, at: int) -> None:
        self.at = at
        self.calls = 0


def settings(kind: str, device: str, peak: int):
    """The context of a step, and a wrapper of its blocks."""
    if kind == "budget":
        return memory.budget(memory.allocated(device) + int(0.6 * peak), device), lambda f, *a: f(
            *a
        )
    if kind == "budget and checkpoint":
        return memory.budget(memory.allocated(device) + int(0.6 * peak), device), checkpoint
    return contextlib.nullcontext(), checkpoint if kind == "checkpoint" else lambda f, *a: f(*a)


def forget_gradients(model: Model) -> None:
    for part in model.parameters:
        part.grad = None


def run_step(model: Model, kind: str, peak: int):
    memory.empty_cache(model.device)
    context, wrap = settings(kind, model.device, peak)
    with context:
        return model.step(wrap)


@pytest.mark.parametrize("kind", ["plain", "checkpoint", "budget", "budget and checkpoint"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OutOfMemoryError])
def test_a_failure_at_every_allocation(monkeypatch, kind, error):
    want, _, peak = plain()
    failing = Failing(monkeypatch, error)
    counts = [-1]
    # The first steps of a budget are planned in different ways, one by measured times.
    while len(counts) <= STEADY or counts[-2] != counts[-1]:
        failing.start(0)
        assert run_step(Model(), kind, peak) == want[0]
        counts.append(failing.calls)
    count = counts[-1]
    assert count > 10
    for at in range(1, count + 1):
        failing.start(0)
        model = Model()
        start = memory.allocated()
        failing.start(at)
        with contextlib.suppress(error):
            run_step(model, kind, peak)
        assert failing.calls == at
        failing.start(0)
        assert STATE.get().region is None
        assert rl.is_grad_enabled()
        assert not Pins.pinned()
        assert resolve_pool("cpu").limit is None
        forget_gradients(model)
        assert memory.allocated() == start
        # The same step again: only the running statistics, which the failed one may have changed,
        # are reset.
        model.mean.zero_()
        model.var.fill_(1.0)
        if at % 7 == 1:
            assert run_step(Model(), kind, peak) == want[0]


def test_a_failure_at_every_allocation_on_webgpu(monkeypatch, require_device):
    device = require_device("webgpu")
    want, _, peak = plain(device)
    failing = Failing(monkeypatch, KeyboardInterrupt)
    run_step(Model(device), "budget", peak)
    for at in range(1, failing.calls + 1, 7):
        model = Model(device)
        start = memory.allocated(device)
        failing.start(at)
        with contextlib.suppress(KeyboardInterrupt):
            run_step(model, "budget", peak)
        failing.start(0)
        forget_gradients(model)
        assert memory.allocated(device) == start
    assert run_step(Model(device), "budget", peak) == want[0]


def test_a_device_that_is_really_full(monkeypatch):
    """Cached blocks are freed and rebuildable values dropped before an error is raised."""
    want, _, peak = plain()
    model = Model()
    memory.empty_cache()
    pool = resolve_pool("cpu")
    room = memory.allocated() + int(0.6 * peak)
    alloc = pool.device.alloc

    class Full:
        def __getattr__(self, name):
            return getattr(device, name)

        def alloc(self, nbytes):
            if pool.held + nbytes > room:
                raise OutOfMemoryError("simulated: full")
            return alloc(nbytes)

    device = pool.device
    monkeypatch.setattr(pool, "device", Full())
    with memory.budget(1 << 40):  # leaves recipes, never limits
        assert model.step() == want[0]
    with pytest.raises(OutOfMemoryError, match="full"):
        rl.zeros(room)


def test_a_failed_rebuild_leaves_nothing_half_made(monkeypatch):
    """A norm has three results: with memory for the first only, none of them counts as rebuilt."""
    x = rl.randn(2048, 64)
    with memory.budget(1 << 30):
        y = rl.layer_norm(x, (64,))
        z = F.dropout(y, 0.5)
    want = bits(y, z)
    pool = resolve_pool("cpu")
    for error in (KeyboardInterrupt, OutOfMemoryError):
        failing = Failing(monkeypatch, error)
        for at in (1, 2, 3, 4):
            while pool.reclaim(pool, 1 << 40):
                pass
            memory.empty_cache()
            failing.start(at)
            with contextlib.suppress(error):
                z.sum()
            failing.start(0)
            assert bits(z, y) == want[::-1]


def test_a_failed_launch_leaves_nothing_half_made(monkeypatch):
    with memory.budget(1 << 30):
        y = (rl.ones(64, 64) * 3.0).exp()
    want = bits(y)
    pool = resolve_pool("cpu")
    while pool.reclaim(pool, 1 << 40):
        pass
    plan = y._memory.recipe.plan
    launch = plan.launch

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "launch", fail)
    with pytest.raises(KeyboardInterrupt):
        y.sum()
    monkeypatch.setattr(plan, "launch", launch)
    assert bits(y) == want


def test_a_failed_call_draws_no_random_numbers(device):
    memory.empty_cache(device)
    rl.manual_seed(4)
    x = rl.ones(64, 64, device=device)
    before = default_generator.words
    for draw in (
        lambda: rl.rand(1 << 20, device=device),
        lambda: rl.randn(1 << 20, device=device),
        lambda: rl.randint(0, 9, (1 << 20,), device=device),
        lambda: F.dropout(x.expand(64, 64, 64), 0.5),
    ):
        with (
            pytest.raises(BudgetError),
            memory.budget(memory.allocated(device) + (1 << 16), device),
        ):
            draw()
        assert default_generator.words == before


def test_the_same_call_with_more_room():
    x = rl.randn(256, 256, requires_grad=True)
    memory.empty_cache()
    start = memory.allocated()
    with pytest.raises(BudgetError) as error, memory.budget(start + x.nbytes):
        (x @ x).tanh().exp().sum().backward()
    del error
    assert memory.allocated() == start
    with memory.budget(start + 8 * x.nbytes):
        (x @ x).tanh().exp().sum().backward()
    got = bits(x.grad)
    x.grad = None
    (x @ x).tanh().exp().sum().backward()
    assert bits(x.grad) == got
