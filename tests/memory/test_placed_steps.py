"""Steps whose blocks have planned places have the bits of others: Note [Layout]."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.core import cache
from rushlight.devices.cpu import memory as cpu_memory
from rushlight.devices.shared import registry
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.layout import Layout
from tests.devices.driver_of_streams import CardOfStreams
from tests.memory import training_step
from tests.memory.training_step import Model

STEPS = 14


class HostMemory:
    """The CPU's memory as a driver's; freed bytes are overwritten, as other blocks would."""

    def __init__(self) -> None:
        self.takes = 0

    def take(self, nbytes: int) -> int:
        self.takes += nbytes >= 1 << 16
        return cpu_memory.allocate(nbytes)

    def give(self, address: int, nbytes: int) -> None:
        cpu_memory.release(address, nbytes)

    def shrink(self) -> None:
        pass


class PlacedCpu:
    """The CPU's device with a layout in place of joined blocks."""

    def __init__(self) -> None:
        self.device: Any = registry.pool_of("cpu").device
        self.memory = HostMemory()
        self.layout = Layout(self.memory)
        self.limits = replace(self.device.limits, join=None, steps=self.layout.begin_step)

    def alloc(self, nbytes: int) -> int:
        return self.layout.take(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        self.layout.give(address, nbytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


class PlacedCard(CardOfStreams):
    """A card whose driver's allocations are counted."""

    def __init__(self) -> None:
        super().__init__(seed=3)
        self.takes = 0
        malloc = self.runtime.malloc

        def counted(nbytes: int) -> int:
            self.takes += nbytes >= 1 << 16
            return malloc(nbytes)

        self.runtime.malloc = counted  # type: ignore[method-assign]


@pytest.fixture(params=["cpu", "cuda"])
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A device with a layout, under its name; values have 128 KiB."""
    made: Any = PlacedCpu() if request.param == "cpu" else PlacedCard()
    made.counter = made.memory if request.param == "cpu" else made
    made.of = request.param
    cache.forget()
    monkeypatch.setitem(registry._POOLS, request.param, Pool(made))
    monkeypatch.setattr(training_step, "ROWS", 512)
    yield made
    cache.forget()
    gc.collect()


def whole(device: str) -> tuple[list, int, int]:
    """The bits of `STEPS` steps without a budget, the bytes before them and the peak above."""
    model = Model(device)
    base = memory.allocated(device)
    memory.reset_peak(device)
    want = [model.step() for _ in range(STEPS)]
    return want, base, memory.peak(device) - base


@pytest.mark.parametrize("share", [100, 70, 50])
def test_bits_of_steps_with_planned_places(placed, share):
    want, base, peak = whole(placed.of)
    model = Model(placed.of)
    memory.empty_cache(placed.of)
    got, takes = [], []
    with memory.budget(base + peak * share // 100, placed.of):
        for _ in range(STEPS):
            placed.counter.takes = 0
            got.append(model.step())
            takes.append(placed.counter.takes)
        assert placed.layout.plan is not None
        # On the CPU the choice of what is dropped goes by measured times, so steps may differ.
        assert placed.of == "cpu" or takes.count(0) >= 4
        assert memory.reserved(placed.of) <= base + peak * share // 100
    assert got == want


def test_bits_where_other_work_comes_between(placed):
    """Another value after each fifth step, which stays."""
    want, base, peak = whole(placed.of)
    model = Model(placed.of)
    memory.empty_cache(placed.of)
    kept, seen, got = [], [], []
    with memory.budget(base + peak * 80 // 100, placed.of):
        for number in range(STEPS):
            got.append(model.step())
            seen.append(placed.layout.now)
            if number % 5 == 4:
                with rl.no_grad():
                    kept.append(rl.ones(700, training_step.WIDTH, device=placed.of).mul_(number))
    assert max(seen) > 0 > min(seen)
    assert got == want
    assert [bool((value == 4 + 5 * number).all()) for number, value in enumerate(kept)] == [
        True
    ] * 2


@pytest.mark.skipif(not cpu_memory.joins, reason="the system does not move pages")
def test_the_cpu_joins_blocks_until_a_step_has_repeated(monkeypatch):
    monkeypatch.setattr(training_step, "ROWS", 512)
    pool = registry.pool_of("cpu")
    layout = pool.device.layout  # type: ignore[attr-defined]
    layout.patience, layout.plans = 1, []
    model = Model()
    memory.empty_cache("cpu")
    base = memory.allocated("cpu")
    memory.reset_peak("cpu")
    want = [model.step() for _ in range(80)]
    limit = base + (memory.peak("cpu") - base) * 8 // 10
    model, got, planned = Model(), [], 0
    memory.empty_cache("cpu")
    with memory.budget(limit, "cpu"):
        for _ in range(80):
            got.append(model.step())
            assert memory.reserved("cpu") <= limit
            planned += layout.now >= 0
            assert pool.joins is not layout.learns
    assert got == want
    assert planned > 4
    memory.empty_cache("cpu")
    rl.ones(1 << 20)  # what no plan expects
    assert pool.joins
    assert not layout.regions
    assert not layout.learns


def test_a_step_that_begins_on_another_device_is_planned():
    """Its first call is on the CPU, which has no limit."""
    card = PlacedCard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._POOLS, "cuda", Pool(card))
        patch.setattr(training_step, "ROWS", 512)
        _, base, peak = whole("cuda")
        model = Model("cuda")
        with memory.budget(base + peak * 70 // 100, "cuda"):
            for _ in range(8):
                rl.ones(3).sum()
                model.step()
        assert card.layout.now > 0
        cache.forget()
    gc.collect()


def test_an_error_in_a_planned_step_loses_nothing(placed):
    want, base, peak = whole(placed.of)
    model = Model(placed.of)
    memory.empty_cache(placed.of)
    got = []
    with memory.budget(base + peak * 70 // 100, placed.of):
        for number in range(STEPS):
            got.append(model.step())
            if number == 8:
                with pytest.raises(rl.BudgetError):
                    rl.ones(peak, device=placed.of)
    assert got == want
