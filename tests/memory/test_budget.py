"""Budgets: the limit is never crossed, the bits are the same, dropped values are rebuilt."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, memory
from rushlight.devices.shared import registry
from rushlight.devices.shared.allocator import Pool
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory.recipe import Recipe
from rushlight.utils.checkpoint import checkpoint
from tests.memory.training_step import Model, bits, plain

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    yield
    gc.collect()


@pytest.fixture
def limit_checked(monkeypatch):
    """After every new block, what is held must be inside the limit."""
    fresh = Pool.fresh

    def checked(self, room, *reading):
        address = fresh(self, room, *reading)
        assert self.limit is None or self.held <= self.limit
        return address

    monkeypatch.setattr(Pool, "fresh", checked)


def drop_everything(device: str = "cpu") -> None:
    """Drop all that can be dropped, as a tight budget would."""
    pool = resolve_pool(device)
    if pool.reclaim is not None:
        while pool.reclaim(pool, 1 << 40):
            pass


# ---- same bits ----


@pytest.mark.parametrize("share", [1.0, 0.8, 0.6, 0.5])
def test_the_same_bits_at_each_limit(device, share, limit_checked):
    want, _, peak = plain(device)
    model = Model(device)
    memory.empty_cache(device)
    before = memory.recomputed()["calls"]
    with memory.budget(memory.allocated(device) + int(share * peak), device):
        got = [model.step(), model.step()]
    assert got == want
    assert memory.recomputed()["calls"] > before or share == 1


def test_the_errors_limit_suffices_for_the_whole_step(limit_checked):
    want, _, peak = plain()
    model = Model()
    memory.empty_cache()
    start = memory.allocated()
    with pytest.raises(BudgetError) as caught, memory.budget(start + int(0.2 * peak)):
        model.step()
    limit = caught.value.required_bytes
    del caught
    model = Model()
    memory.empty_cache()
    with memory.budget(limit):
        assert [model.step(), model.step()] == want
    assert limit - start < peak


def test_checkpoint_inside_a_budget(limit_checked):
    want, _, peak = plain()
    model = Model()
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(0.5 * peak)):
        got = [model.step(checkpoint), model.step(checkpoint)]
    assert got == want


def test_a_budget_inside_a_checkpoint():
    want, _, peak = plain()
    model = Model()

    def limited(*args):
        with memory.budget(memory.allocated() + peak):
            return model.block(*args)

    assert [model.step(lambda f, *a: checkpoint(limited, *a)) for _ in range(2)] == want


def test_second_order_under_a_budget():
    results = []
    for limit in (None, 20):
        x = rl.full((64, 64), 0.01, requires_grad=True)
        memory.empty_cache()
        with memory.budget(memory.allocated() + (limit or 1000) * x.nbytes):
            y = (x @ x).tanh().exp().sum()
            (g,) = rl.autograd.grad(y, x, create_graph=True)
            (g * g).sum().backward()
        results.append(bits(g, x.grad))
    assert results[0] == results[1]


# ---- dropped values come back ----


def values_in_a_budget(device: str) -> tuple[rl.Tensor, list[rl.Tensor], list[np.ndarray]]:
    rl.manual_seed(2)
    x = rl.randn(64, 64, device=device)
    with memory.budget(1 << 30, device):
        noise = F.dropout(x.exp(), 0.5) + rl.rand(64, 64, device=device)
        y, _ = (noise @ x).chunk(2)
        z = rl.layer_norm(noise, (64,)).mul_(2.0)
        made = [noise, y, z]
        want = [t.detach().numpy(force=True).copy() for t in made]
    return x, made, want


def test_dropped_values_are_rebuilt_on_use(device):
    _, made, want = values_in_a_budget(device)
    for t, array in zip(made, want, strict=True):
        drop_everything(device)
        assert t._memory.address is None
        np.testing.assert_array_equal(t.numpy(force=True), array)
        drop_everything(device)
        assert t[3, 5].item() == array[3, 5]
        drop_everything(device)
        assert t.tolist() == array.tolist()
        drop_everything(device)
        assert repr(t).startswith("tensor([[")
        drop_everything(device)
        np.testing.assert_array_equal((t + t).numpy(), array + array)
        drop_everything(device)
        np.testing.assert_array_equal(t.neg().numpy(), -array)
        drop_everything(device)
        np.testing.assert_array_equal(t.clone().numpy(), array)


def test_dropped_values_move_between_devices(device):
    _, made, want = values_in_a_budget("cpu")
    drop_everything()
    np.testing.assert_array_equal(made[0].to(device).numpy(force=True), want[0])


def test_dropped_values_survive_a_write_to_what_they_were_made_of(device):
    x, made, want = values_in_a_budget(device)
    drop_everything(device)
    x.zero_()
    for t, array in zip(made, want, strict=True):
        np.testing.assert_array_equal(t.numpy(force=True), array)


def test_a_value_whose_ancestor_was_overwritten_and_its_parent_freed():
    """w -> h -> c: after a write to w and the end of h nothing could rebuild c: it is not
    dropped.
    """
    w = rl.randn(64, 64)
    with memory.budget(1 << 30):
        h = w * 2.0
        c = h * 3.0
        want = c.tolist()
        w.zero_()
        drop_everything()
        del h
        drop_everything()
        assert c.tolist() == want


def test_values_on_another_device_survive_a_write(device):
    x = rl.randn(64, 64)
    with memory.budget(1 << 30), memory.budget(1 << 30, device):
        there = x.to(device).exp()
    want = there.numpy(force=True).copy()
    drop_everything(device)
    x.zero_()
    np.testing.assert_array_equal(there.numpy(force=True), want)


def test_a_dropped_value_may_be_written(device):
    _, made, want = values_in_a_budget(device)
    drop_everything(device)
    made[0].add_(1.0)
    np.testing.assert_array_equal(made[0].numpy(force=True), want[0] + 1)
    with memory.budget(1 << 30, device):
        drop_everything(device)
        made[2].mul_(3.0)
        drop_everything(device)
    np.testing.assert_array_equal(made[2].numpy(force=True), want[2] * 3)


def test_memory_lent_to_numpy_stays():
    with memory.budget(1 << 30):
        y = rl.ones(64, 64) * 2.0
        lent = y.numpy()
        y.mul_(2.0)
        drop_everything()
    lent[0, 0] = 9.0
    assert y[0, 0].item() == 9.0
    assert y[1, 1].item() == 4.0


def test_backward_after_the_budget_and_a_drop(device):
    (w,) = (rl.full((64, 64), 0.01, device=device, requires_grad=True),)
    results = []
    for dropped in (False, True):
        w.grad = None
        with memory.budget(1 << 30, device):
            loss = F.dropout((w @ w).tanh(), 0.0).exp().sum()
        if dropped:
            drop_everything(device)
        loss.backward()
        results.append(bits(w.grad))
    assert results[0] == results[1]


# ---- what a budget keeps alive ----


def test_a_running_total_keeps_nothing_else():
    w = rl.full((64, 64), 0.01, requires_grad=True)
    total = rl.zeros(())
    start = None
    with memory.budget(memory.allocated() + 4 * MIB):
        for _ in range(5):
            x = rl.tensor(np.ones((64, 64), np.float32))
            loss = (x @ w).tanh().sum()
            loss.backward()
            w.grad = None
            total = total + loss.detach()
            del x, loss
            if start is None:
                start = memory.allocated()
    assert memory.allocated() == start


def test_a_gradient_keeps_nothing_else():
    gc.disable()
    try:
        w = rl.full((64, 64), 0.01, requires_grad=True)
        start = memory.allocated()
        with memory.budget(start + 4 * MIB):
            x = rl.tensor(np.ones((64, 64), np.float32))
            (x @ w).tanh().sum().backward()
            del x
        assert memory.allocated() == start + w.nbytes
    finally:
        gc.enable()


def test_a_chain_of_recipes_ends():
    """A value carried from step to step does not keep its whole past."""
    with memory.budget(memory.allocated() + 64 * MIB):
        gc.collect()
        h = rl.zeros(32, 64)
        for _ in range(20_000):
            h = h + 1.0
    recipe, length = h._memory.recipe, 0
    while recipe is not None:
        length += 1
        recipe = recipe.sources[0][0] if recipe.sources else None
        recipe = recipe if isinstance(recipe, Recipe) else None
    assert length <= 4096
    drop_everything()
    assert h[0, 0].item() == 20_000


def test_a_very_deep_rebuild():
    with memory.budget(memory.allocated() + 8 * MIB):
        h = rl.zeros(32, 64)
        kept = []
        for i in range(10_000):
            h = h + 1.0
            if i % 1000 == 0:
                kept.append(h)
        drop_everything()
        assert [t[0, 0].item() for t in kept] == [1.0 + 1000 * i for i in range(10)]
    assert h[0, 0].item() == 10_000


# ---- limits ----


def test_nested_budgets_take_the_smaller():
    pool = resolve_pool("cpu")
    start = memory.allocated()
    with memory.budget(start + 8 * MIB):
        with memory.budget(start + 64 * MIB):
            assert pool.limit == start + 8 * MIB
        with memory.budget(start + 4 * MIB):
            assert pool.limit == start + 4 * MIB
            with pytest.raises(BudgetError):
                rl.zeros(2 * MIB)
        assert pool.limit == start + 8 * MIB
        rl.zeros(MIB)
    assert pool.limit is None


def test_a_budget_object_used_twice():
    once = memory.budget(memory.allocated() + 64 * MIB)
    for _ in range(2):
        with once:
            rl.zeros(MIB)
        assert resolve_pool("cpu").limit is None


def test_a_budget_names_the_least_sufficient_limit(device):
    memory.empty_cache(device)
    kept = rl.zeros(MIB, device=device)
    with (
        pytest.raises(BudgetError, match="least sufficient budget") as error,
        memory.budget(6 * MIB, device),
    ):
        kept + 1.0
    with memory.budget(error.value.least, device):
        assert (kept + 1.0)[0].item() == 1.0
    assert memory.allocated(device) >= kept.nbytes


def test_cached_blocks_count():
    memory.empty_cache()
    rl.zeros(4 * MIB)
    assert memory.reserved() >= 16 * MIB
    with memory.budget(memory.allocated() + 8 * MIB):
        assert memory.reserved() <= memory.allocated() + 8 * MIB
        rl.zeros(MIB)


def test_bad_limits():
    for limit in (0, -1, "lots", "12 parsecs", ""):
        with pytest.raises(ValueError):
            memory.budget(limit)
    assert memory.parse_bytes("1.5KiB") == 1536
    assert memory.parse_bytes("2 GB") == 2 * 1000**3
    assert memory.parse_bytes(77) == 77
    assert memory.parse_bytes(np.int64(77)) == memory.parse_bytes(77.5) == 77
    for wrong in (None, True, [1], math.nan):
        error = ValueError if wrong is math.nan else TypeError
        with pytest.raises(error, match="a size is a number of bytes or like '64MiB'"):
            memory.budget(wrong)


# ---- counters ----


def test_allocated_peak_and_reserved(device):
    memory.empty_cache(device)
    start = memory.allocated(device)
    memory.reset_peak(device)
    x = rl.zeros(1000, device=device)
    assert memory.allocated(device) == start + 4032  # a multiple of 64
    y = x + 1.0
    del x, y
    assert memory.allocated(device) == start
    assert memory.peak(device) == start + 2 * 4032
    assert memory.reserved(device) >= start + 2 * 4032
    memory.empty_cache(device)
    assert memory.reserved(device) < start + 2 * 4032
    memory.reset_peak(device)
    assert memory.peak(device) == start


def test_recomputed_counts_calls_and_bytes():
    with memory.budget(1 << 30):
        y = (rl.ones(64, 64) * 2.0).exp()
    drop_everything()
    before = memory.recomputed()
    y.sum()
    after = memory.recomputed()
    assert after["calls"] - before["calls"] == 3  # ones, mul, exp
    assert after["bytes"] - before["bytes"] == 3 * 64 * 64 * 4


def test_a_device_opened_inside_a_budget_is_limited(monkeypatch):
    monkeypatch.delitem(registry._POOLS, "null", raising=False)
    start = memory.allocated()
    with memory.budget(start + 8 * MIB):
        assert registry.pool_of("null").limit == start + 8 * MIB
    assert registry.pool_of("null").limit is None
    monkeypatch.delitem(registry._POOLS, "null")
    with memory.budget(start + 8 * MIB, "cpu"):
        assert registry.pool_of("null").limit is None


def test_a_step_fits_into_its_own_peak():
    """Small values that only recipes hold are freed before the budget gives up."""
    rl.manual_seed(0)
    model = rl.nn.Sequential(rl.nn.Linear(784, 256), rl.nn.ReLU(), rl.nn.Linear(256, 10))
    x, y = rl.randn(32, 784), rl.randint(0, 10, (32,))

    def step():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        return bits(*[p.grad for p in model.parameters()])

    want = step()
    model.zero_grad()
    memory.empty_cache()
    memory.reset_peak()
    base = memory.allocated()
    step()
    peak = memory.peak() - base
    model.zero_grad()
    memory.empty_cache()
    memory.reset_peak()
    with memory.budget(base + peak):
        assert step() == want == step()
    assert memory.peak() <= base + peak


def test_a_budget_inside_begins_by_dropping_what_is_beyond_it(device):
    """A block of what was dropped for a request is no way around the limit."""
    memory.empty_cache(device)
    start, size = memory.allocated(device), 1 << 20
    with memory.budget(start + 8 * size, device):
        held = [rl.full((size // 4,), float(i), device=device) * 2.0 for i in range(4)]
        with memory.budget(start + 2 * size, device):
            assert memory.reserved(device) <= start + 2 * size
            with pytest.raises(rl.BudgetError):
                rl.zeros(size, device=device)  # as much as all four
            assert [value[0].item() for value in held] == [0.0, 2.0, 4.0, 6.0]
            assert memory.reserved(device) <= start + 2 * size
        assert [value[-1].item() for value in held] == [0.0, 2.0, 4.0, 6.0]
