"""Places for the blocks of a step that repeats: `devices/shared/layout.py`."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import rushlight as rl
from rushlight import OutOfMemoryError
from rushlight.devices.shared.allocator import PAGED, Pool, Storage
from rushlight.devices.shared.layout import Layout, Stay, arrange, pair
from rushlight.devices.shared.protocol import Limits
from rushlight.memory import counters, text
from tests.fuzz.programs import Interrupting

MIB = 1 << 20


class Driver:
    """A driver that knows what it gave, and counts what a layout asks for."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.next = self.takes = self.shrinks = 0
        self.most = 1 << 50

    def take(self, nbytes: int) -> int:
        if self.held + nbytes > self.most:
            raise OutOfMemoryError("no room")
        self.next += 1 << 40
        self.takes += nbytes >= PAGED
        self.sizes[self.next] = nbytes
        return self.next

    def give(self, address: int, nbytes: int) -> None:
        assert self.sizes.pop(address) == nbytes

    def shrink(self) -> None:
        self.shrinks += 1

    @property
    def held(self) -> int:
        return sum(self.sizes.values())


class Placed:
    """A device that has memory only, with a layout; no two of its blocks may ever meet."""

    name = "placed"

    def __init__(self) -> None:
        self.driver = Driver()
        self.layout = Layout(self.driver)
        self.limits = replace(
            Limits((), False, True, 1 << 40, "counts blocks"), steps=self.layout.begin_step
        )

    def alloc(self, nbytes: int) -> int:
        address = self.layout.take(nbytes)
        assert any(
            start <= address and address + nbytes <= start + size
            for start, size in list(self.driver.sizes.items())
        )
        return address

    def free(self, address: int, nbytes: int) -> None:
        self.layout.give(address, nbytes)


class Program:
    """A step of values, each with its size, when it is made and when it goes; `keeps` stay."""

    def __init__(self, seed: int, count: int = 60) -> None:
        dice = random.Random(seed)
        sizes = [4096 * dice.randint(17, 2000) for _ in range(7)] + [512]
        self.events: list[tuple[int, int, int]] = []
        for number in range(count):
            begin = dice.randint(0, 200)
            end = begin + dice.choice([1, 5, 40, 150])
            nbytes = dice.choice(sizes)
            self.events += [(begin, number, nbytes), (end, number, -nbytes)]
        self.events.sort(key=lambda event: (event[0], event[2] > 0))
        live = most = 0
        for _, _, nbytes in self.events:
            live += nbytes
            most = max(most, live)
        self.peak = most

    def run(self, pool: Pool, held: dict[int, tuple[int, int]]) -> None:
        """One step; no value may lie where another is."""
        pool.device.limits.steps(pool)  # type: ignore[misc]
        for _, number, nbytes in self.events:
            if nbytes < 0:
                pool.give(*held.pop(number))
                continue
            address = pool.take(nbytes)
            for other, size in held.values():
                assert address + nbytes <= other or other + size <= address
            held[number] = address, nbytes


@contextmanager
def limited(limit: int) -> Iterator[None]:
    before = Pool.bound
    Pool.bound = staticmethod(lambda _: limit)
    try:
        yield
    finally:
        Pool.bound = before


def made() -> tuple[Any, Any]:
    device = Placed()
    return device, Pool(device)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_places_of_blocks_do_not_meet_while_both_are_there(seed):
    dice = random.Random(seed)
    events = list(range(2 * dice.randint(1, 40)))
    dice.shuffle(events)
    stays = [Stay(dice.randint(1, 9), *events[2 * i : 2 * i + 2]) for i in range(len(events) // 2)]
    offsets, end = arrange(stays)

    def there(stay: Stay) -> set[int]:
        """The times, as those before the events."""
        count = (stay.given - stay.taken) % len(events)
        return {(stay.taken + k) % len(events) for k in range(count)}

    most = max(sum(s.nbytes for s in stays if at in there(s)) for at in range(len(events)))
    assert most <= end == max(o + s.nbytes for o, s in zip(offsets, stays, strict=True))
    for i, (one, first) in enumerate(zip(stays, offsets, strict=True)):
        for two, second in list(zip(stays, offsets, strict=True))[:i]:
            if there(one) & there(two):
                assert first + one.nbytes <= second or second + two.nbytes <= first


def test_blocks_that_are_there_for_more_than_a_step_have_two_places():
    lap = [8, -8]  # the block of the step before goes after this step's was taken
    assert pair(lap, [-1, ~0]) == ([Stay(8, 0, 3), Stay(8, 2, 1)], 2)
    assert pair([-8, 8], [~0, -1]) == ([Stay(8, 1, 0)], 1)
    assert pair(lap, [-1, 0]) == ([Stay(8, 0, 1)], 1)


@pytest.mark.parametrize("seed", range(40))
def test_a_step_that_repeats_asks_the_driver_for_nothing(seed):
    device, pool = made()
    program, driver = Program(seed), device.driver
    limit = program.peak + MIB * (seed % 3)
    with limited(limit):
        for _ in range(12):
            program.run(pool, {})
        driver.takes = 0
        for _ in range(6):
            program.run(pool, {})
            assert pool.held <= limit
    assert driver.takes == 0
    if device.layout.plan is not None:
        assert driver.held <= 1.35 * limit  # random sizes; of models see docs/memory.md
    pool.trim()
    assert pool.held == 0
    assert driver.held == 0
    assert not device.layout.regions


def test_most_programs_have_exchanged_blocks():
    """Or the test above would show nothing."""
    planned = 0
    for seed in range(12):
        device, pool = made()
        program = Program(seed)
        with limited(program.peak):
            for _ in range(8):
                program.run(pool, {})
        planned += device.layout.plan is not None
    assert planned >= 9


@pytest.mark.parametrize("seed", range(30))
def test_steps_that_change_lose_no_block(seed):
    """Other steps come between, values stay over steps, and the limit changes."""
    device, pool = made()
    dice, driver = random.Random(seed), device.driver
    programs = [Program(seed), Program(seed + 1000, 20)]
    kept: dict[int, tuple[int, int]] = {}
    most = max(program.peak for program in programs)
    for round_ in range(6):
        with limited(most + sum(size for _, size in kept.values()) + MIB * dice.randint(0, 40)):
            for _ in range(dice.randint(1, 7)):
                held = {-number: block for number, block in kept.items()}
                programs[dice.random() < 0.1].run(pool, held)
            nbytes = 4096 * dice.randint(17, 200)
            kept[round_ + 1] = pool.take(nbytes), nbytes
        if dice.random() < 0.3:
            pool.trim()
        if kept and dice.random() < 0.4:
            pool.give(*kept.pop(dice.choice(list(kept))))
    for block in kept.values():
        pool.give(*block)
    pool.trim()
    assert pool.held == pool.live == 0
    assert driver.held == 0


def test_a_value_that_stays_over_the_plans_begin_keeps_its_block():
    device, pool = made()
    program = Program(3)
    with limited(program.peak + 10 * MIB):
        value = pool.take(10 * MIB)
        for number in range(14):
            program.run(pool, {-1: (value, 10 * MIB)})
            if number == 9:
                pool.give(value, 10 * MIB)
                value = pool.take(10 * MIB)
    assert device.layout.plan is not None


def test_without_room_for_a_region_steps_go_on():
    device, pool = made()
    program = Program(5)
    with limited(program.peak):
        device.driver.most = program.peak
        for _ in range(10):
            program.run(pool, {})
    assert device.driver.shrinks  # it was tried
    pool.trim()
    assert pool.held == device.driver.held == 0


def test_a_region_without_room_is_asked_for_again_later():
    """Each time all cached blocks go back, and the device is waited for."""
    device, pool = made()
    program = Program(5)
    with limited(program.peak):
        device.driver.most = program.peak
        for _ in range(60):
            program.run(pool, {})
    assert 0 < device.driver.shrinks <= 5


def test_a_step_without_events_leaves_no_plan():
    """Such as that of an estimate, whose values are on a stand-in."""
    device, pool = made()
    program = Program(3)
    with limited(program.peak):
        for number in range(12):
            program.run(pool, {})
            if number > 8:
                device.layout.begin_step(pool)
                assert device.layout.now >= 0
        device.driver.takes = 0
        program.run(pool, {})
    assert device.driver.takes == 0


def test_what_another_thread_takes_while_a_plan_begins_counts():
    """Then the device is waited for, and the cached blocks have gone back: there is room."""
    device, pool = made()
    program = Program(3)
    taken: list[tuple[int, int]] = []
    held: list[int] = []

    def shrink() -> None:
        while pool.held + MIB <= program.peak:
            taken.append((pool.take(MIB), MIB))

    def begin_step(pool: Pool) -> None:
        device.layout.begin_step(pool)
        if taken:
            held.append(pool.held)
            pool.give_all(taken)

    device.driver.shrink = shrink
    device.limits = replace(device.limits, steps=begin_step)
    with limited(program.peak):
        for _ in range(12):
            program.run(pool, {})
    assert held
    assert max(held) <= program.peak
    pool.trim()
    assert pool.held == device.driver.held == 0


def test_steps_begin_while_other_threads_make_blocks_of_new_sizes():
    device, pool = made()
    stop = threading.Event()

    def make_sizes() -> None:
        for room in range(PAGED, PAGED + (64 << 18), 64):
            pool.blocks(room)
            if stop.is_set():
                break

    other, before = threading.Thread(target=make_sizes), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other.start()
    try:
        for _ in range(20):
            device.layout.begin_step(pool)
    finally:
        stop.set()
        other.join()
        sys.setswitchinterval(before)


def test_a_plan_that_served_few_steps_is_begun_again_later():
    """Two programs by turns, three steps each: to begin a plan costs more than it saves."""
    device, pool = made()
    programs = Program(3), Program(1003)
    with limited(max(program.peak for program in programs)):
        begun = device.driver.shrinks
        for number in range(120):
            programs[number // 3 % 2].run(pool, {})
        assert device.driver.shrinks - begun <= 2
        for _ in range(8):
            programs[0].run(pool, {})
        assert device.layout.now >= 0
        for _ in range(20):
            programs[0].run(pool, {})
        programs[1].run(pool, {})
    assert device.layout.patience == 1  # that plan has served
    assert len(device.layout.plans) <= 4


def test_a_step_that_trades_sizes_is_not_planned():
    """Equal steps, and no bytes more; but it takes two small blocks for each large one."""
    device, pool = made()
    large = [device.alloc(2 * MIB) for _ in range(8)]
    with limited(64 * MIB):
        for address in large:
            device.layout.begin_step(pool)
            for _ in range(2):
                device.alloc(MIB)
            device.free(address, 2 * MIB)
    assert device.layout.plan is None
    assert device.layout.equal == 0


def test_small_blocks_are_the_drivers():
    device, _ = made()
    address = device.alloc(PAGED - 64)
    assert device.driver.sizes == {address: PAGED - 64}
    assert device.layout.events == []


def test_a_region_goes_back_with_its_last_block():
    device, pool = made()
    program = Program(7)
    with limited(program.peak):
        for _ in range(10):
            program.run(pool, {})
        region = device.layout.regions[-1]
        value = pool.take(program.events[0][2])  # a cached block, or what no plan expects
        pool.trim()
    assert (
        region.start in device.driver.sizes
        or not region.start <= value < region.start + region.size
    )
    pool.give(value, program.events[0][2])
    pool.trim()
    assert device.driver.held == 0


def test_threads_that_take_blocks_beside_a_plan_get_their_own():
    device, pool = made()
    program = Program(11)
    taken: list[tuple[int, int]] = []
    stop = threading.Event()

    def take_and_give() -> None:
        while not stop.is_set():
            taken.append((pool.take(123 * 4096), 123 * 4096))
            pool.give(*taken.pop())

    other = threading.Thread(target=take_and_give)
    with limited(program.peak + 20 * MIB):
        for _ in range(6):
            program.run(pool, {})
        other.start()
        try:
            for _ in range(40):
                program.run(pool, {})
        finally:
            stop.set()
            other.join()
    pool.trim()
    assert pool.held == device.driver.held == 0


def test_what_the_driver_holds_is_told_and_given_back(monkeypatch):
    """`given` counts what lies between blocks; `empty_cache` lets the driver part with it."""
    device, pool = made()
    calls: list[str] = []
    driver = SimpleNamespace(reserved=lambda: 50 * MIB, shrink=lambda: calls.append("shrink"))
    device.limits = replace(device.limits, driver=driver)
    monkeypatch.setattr(counters, "resolve_pool", lambda name: pool)
    pool.give(pool.take(MIB), MIB)
    assert rl.memory.given("cuda") == 50 * MIB
    assert rl.memory.reserved("cuda") == MIB
    assert "the driver's   50.0 MiB" in text.counters_text(pool)
    rl.memory.empty_cache("cuda")
    assert calls == ["shrink"]


@pytest.mark.parametrize("warm, step", [(2, 3), (3, 401), (6, 1)])
def test_ctrl_c_at_any_place_loses_no_block(warm, step):
    """At checks for signals in a step before a plan, where one begins, and in one."""
    at, heard = 1, True
    while heard:
        device, pool = made()
        device.alloc, device.free = device.layout.take, device.layout.give
        program, held = Program(1, 8), {}
        with limited(program.peak):
            for _ in range(warm):
                program.run(pool, {})
            heard = False
            try:
                with Interrupting(at):
                    steps_of_storages(program, pool, held)
            except KeyboardInterrupt:
                heard = True
            held.clear()
            program.run(pool, {})
        pool.trim()
        assert pool.held == pool.live == 0
        # Smaller ones are the driver's, without a layout.
        assert max(device.driver.sizes.values(), default=0) < PAGED, at
        at += step
    assert at > 60


def steps_of_storages(program: Program, pool: Pool, held: dict[int, Storage]) -> None:
    """A step of values that free themselves."""
    pool.device.limits.steps(pool)  # type: ignore[misc]
    for _, number, nbytes in program.events:
        if nbytes < 0:
            del held[number]
        else:
            held[number] = Storage(pool, nbytes)
