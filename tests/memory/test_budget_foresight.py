"""A step that repeats is planned by the record of the one before. See Note [Foresight]."""

from __future__ import annotations

import rushlight as rl
from rushlight import memory
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import region
from rushlight.tape.memory.foresight import FORESIGHT, MOST_STEPS, NEVER, STEADY, Drop, Foresight
from rushlight.tape.memory.recipe import UNTIMED
from tests.memory.training_step import Model, plain


class Watching(memory.LeastWork):
    def __init__(self) -> None:
        self.waits: list[int | None] = []

    def score(self, storage: memory.Candidate) -> float:
        self.waits.append(storage.wait)
        return super().score(storage)


def test_the_second_step_knows_the_next_uses(monkeypatch):
    monkeypatch.setattr(FORESIGHT, "steps", [])
    want, _, peak = plain()
    model, policy = Model(), Watching()
    memory.empty_cache()
    known, again, got = [], [], []
    with memory.budget(memory.allocated() + int(0.5 * peak), policy=policy):
        for _ in range(2):
            before = memory.recomputed()["calls"]
            got.append(model.step())
            again.append(memory.recomputed()["calls"] - before)
            known.append([w for w in policy.waits if w is not None])
            policy.waits.clear()
    assert got == want
    assert not known[0] and known[1]
    assert all(w > 0 for w in known[1])
    assert again[1] <= again[0]


def test_a_step_that_differs_is_not_misled():
    want, _, peak = plain()
    model = Model()
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(0.5 * peak)):
        first = model.step()
        x = rl.randn(64, 64, requires_grad=True)
        (x @ x).tanh().sum().backward()
        assert [first, model.step()] == want


class FakePlan:
    cost = 8.0


def test_records_are_followed_call_by_call():
    foresight = Foresight()
    a, b, c = FakePlan(), FakePlan(), FakePlan()
    for plans in ([a, b, a], [a, c]):
        for plan in plans:
            foresight.call(plan)
        foresight.begin()
    foresight.call(a)
    assert foresight.known is foresight.steps[1]  # the latest with that beginning
    foresight.call(b)
    assert foresight.known is foresight.steps[0]
    foresight.call(c)
    assert foresight.known is None
    for _ in range(2 * MOST_STEPS):
        foresight.begin()
        foresight.call(a)
    assert len(foresight.steps) == MOST_STEPS


def test_what_is_not_used_again_goes_first():
    x = rl.rand(1 << 14)
    policy = Watching()
    with memory.budget(1 << 30, policy=policy):
        for _ in range(2):
            unused, used = x.sin(), x.cos()
            (used.exp() + 1.0).sum()
            leaf = rl.ones(3, requires_grad=True)
            leaf.sum().backward()  # ends the step
        unused, used = x.sin(), x.cos()
        region.reclaim(pool_of("cpu"), 1 << 12)
        assert NEVER in policy.waits
        assert unused._memory.present_address is None
        assert used._memory.present_address is not None


def test_least_times_become_costs_in_the_unit_of_the_estimates():
    foresight = Foresight()
    a, b, c = FakePlan(), FakePlan(), FakePlan()
    for times in ((2.0, 3.0), (1.0, 9.0), (2.0, UNTIMED)):
        for plan, seconds in zip((a, b, c), (*times, UNTIMED), strict=True):
            foresight.call(plan, seconds)
        foresight.begin()
    first, _, last = foresight.steps
    assert first.works == [8.0, 8.0, 8.0]  # one time does not count
    assert last.seconds == [1.0, 3.0, UNTIMED]
    assert last.works == [4.0, 12.0, 8.0]  # as much in all as estimated
    assert last.repeats == 3


class Rankings(region.Ranking):
    made = 0

    def __init__(self, *args: object) -> None:
        Rankings.made += 1
        super().__init__(*args)


def test_a_steady_step_drops_what_the_step_before_dropped(monkeypatch):
    monkeypatch.setattr(FORESIGHT, "steps", [])
    monkeypatch.setattr(region, "Ranking", Rankings)
    want, _, peak = plain()
    model = Model()
    memory.empty_cache()
    made, again, limit = [], [], memory.allocated() + int(0.5 * peak)
    with memory.budget(limit):
        for i in range(2 * STEADY):
            Rankings.made, before = 0, memory.recomputed()["calls"]
            got = model.step()
            assert i >= len(want) or got == want[i]
            made.append(Rankings.made)
            again.append(memory.recomputed()["calls"] - before)
    assert made[0] and not any(made[STEADY:])
    assert again[-1] and len(set(again[STEADY:])) == 1
    with memory.budget(limit - (limit - memory.allocated()) // 8):  # other requests
        Rankings.made = 0
        model.step()
        assert Rankings.made


def test_a_planned_drop_of_what_is_not_there_is_left():
    foresight, pool, a = Foresight(), pool_of("cpu"), FakePlan()
    for _ in range(STEADY):
        foresight.call(a)
        foresight.record.drops.append(Drop(0, id(pool), 64, 64, ((3, 0),)))
        foresight.begin()
    foresight.call(a)
    assert foresight.next_drop == 0
    assert foresight.planned(pool, 64, 64) == []
    assert foresight.next_drop is None
