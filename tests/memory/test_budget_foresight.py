"""A step that repeats is planned by the record of the one before. See Note [Foresight]."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import rushlight as rl
from rushlight import memory
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import region, replay
from rushlight.tape.memory.foresight import FORESIGHT, MOST_STEPS, NEVER, STEADY, Drop, Foresight
from rushlight.tape.memory.recipe import UNTIMED
from rushlight.tape.record import call as record_call
from rushlight.tape.record.state import WALK
from tests.memory.training_step import Model, bits, plain


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
    assert all(w >= 0 for w in known[1])  # 0: for the derivative that runs
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
    pool = SimpleNamespace(limit=None)


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


class FakeMark:
    """A mark of a device's queue; `at` is the time at which it is reached, in milliseconds."""

    clock = 0.0

    def __init__(self, timed: bool) -> None:
        assert timed
        self.at = FakeMark.clock

    def done(self) -> bool:
        return self.at < 1e6

    def since(self, first: FakeMark) -> float:
        return self.at - first.at


def test_marks_time_the_second_step_on_a_device_with_queues():
    """The launches take 3 ms and 1 ms; the marks of the last are not reached when the step ends."""
    foresight, plans = Foresight(), [FakePlan(), FakePlan(), FakePlan()]
    queues = SimpleNamespace(main=SimpleNamespace(mark=FakeMark))
    pool: Any = SimpleNamespace(device=SimpleNamespace(limits=SimpleNamespace(queues=queues)))
    for _ in range(3):
        FakeMark.clock = 0.0
        for plan, taken in zip(plans, (3.0, 1.0, 1e9), strict=True):
            first = foresight.mark(pool)
            FakeMark.clock += taken
            if first is not None:
                foresight.marks[foresight.now + 1] = first, foresight.mark(pool)
            foresight.call(plan)
        foresight.begin()
    first, second, third = [step.seconds for step in foresight.steps]
    assert first == [UNTIMED] * 3
    # The first call finds the record of the step before, after its launch.
    assert second == third == [UNTIMED, 0.001, UNTIMED]
    assert foresight.steps[1].works == [8.0, 8.0, 8.0]


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
    # The first step that is followed may rank for gradients that have no recipes in it.
    assert made[0] and not any(made[STEADY + 1 :])
    assert again[-1] and len(set(again[STEADY + 1 :])) == 1
    with memory.budget(limit - (limit - memory.allocated()) // 8):  # other requests
        Rankings.made = 0
        model.step()
        assert Rankings.made


class FakeRecipe:
    """A recipe with one result of 64 bytes."""

    def __init__(self, foresight: Foresight, call: int) -> None:
        self.record, self.call, self.wanted, self.fleeting = foresight.record, call, 0, False
        self.room, self.recipe = 64, self  # of the result

    def present(self, index: int) -> Any:
        return self


def planned_step(pool: Any, uses: list[list[int]], calls: list[int]) -> tuple[Any, list[Any]]:
    """A followed step before its calls, and its values: those of call i are dropped at calls[i]."""
    foresight, a = Foresight(), FakePlan()
    for _ in range(STEADY):
        for call in range(len(uses)):
            foresight.call(a)
            foresight.record.uses[call][:] = uses[call]
        foresight.record.drops = [
            Drop(call, id(pool), ((i, 0),)) for i, call in sorted(enumerate(calls))
        ]
        foresight.begin()
    foresight.call(a)
    recipes = [FakeRecipe(foresight, i) for i in range(len(uses))]
    foresight.kept = {i: weakref.ref(recipe) for i, recipe in enumerate(recipes)}
    return foresight, recipes


def test_a_planned_drop_of_what_is_not_there_is_left():
    foresight, pool, a = Foresight(), pool_of("cpu"), FakePlan()
    for _ in range(STEADY):
        foresight.call(a)
        foresight.record.drops.append(Drop(0, id(pool), ((3, 0),)))
        foresight.begin()
    foresight.call(a)
    assert foresight.drops is not None
    assert foresight.planned(pool, 64, 64, set()) == []


def test_a_request_gets_what_was_dropped_up_to_its_call_as_far_as_it_needs():
    pool = pool_of("cpu")
    foresight, recipes = planned_step(pool, [[3], [3], [3], []], [0, 0, 1, 3])
    first, second, third, _ = recipes
    assert foresight.planned(pool, 256, 32, set()) == [first]
    foresight.now = 2
    assert foresight.planned(pool, 256, 64, {second}) == [third]  # the other is pinned


def test_a_request_that_needs_more_gets_what_is_dropped_later_and_not_used_before():
    pool = pool_of("cpu")
    foresight, recipes = planned_step(pool, [[], [1, 3], [3], [3]], [0, 2, 2, 2])
    first, _, third, fourth = recipes
    assert foresight.planned(pool, 256, 192, set()) == [first, third, fourth]


def test_of_equal_steps_the_one_that_ran_least_again_is_the_plan():
    foresight, pool, a = Foresight(), pool_of("cpu"), FakePlan()
    for number in range(STEADY):
        for _ in range(2):
            foresight.call(a)
        foresight.record.again += [0] * abs(number - 1)
        foresight.record.drops.append(Drop(0, id(pool), ((number, 0),)))
        foresight.begin()
    foresight.call(a)
    assert foresight.drops == [Drop(0, id(pool), ((1, 0),))]


def test_a_followed_step_that_ends_early_or_goes_on_is_recorded_as_it_is():
    foresight, a, b = Foresight(), FakePlan(), FakePlan()
    for plans in (*[[a, b, a]] * STEADY, [a, b], [a, b, a, b]):
        for plan in plans:
            foresight.call(plan)
        foresight.begin()
    assert [len(step.plans) for step in foresight.steps] == [3, 3, 2, 4]
    assert [step.repeats for step in foresight.steps] == [STEADY - 1, STEADY, 1, 1]


def quiet_steps(model: Model, limit: int, count: int) -> list[list[bool]]:
    """Inside a budget: for each step, whether gradients that a hook sees have recipes."""
    found: list[list[bool]] = []
    with memory.budget(limit):
        for _ in range(count):
            found.append([])
            handles = [
                p.register_hook(lambda g: found[-1].append(g._memory.recipe is not None))
                for p in model.weights
            ]
            model.step()
            for handle in handles:
                handle.remove()
    return found


def test_gradients_of_a_steady_step_need_no_recipes(monkeypatch):
    monkeypatch.setattr(FORESIGHT, "steps", [])
    _, _, peak = plain()
    model = Model()
    memory.empty_cache()
    found = quiet_steps(model, memory.allocated() + int(0.6 * peak), STEADY + 3)
    assert all(any(step) for step in found[: STEADY - 1])
    assert not any(found[-1])


def test_a_step_that_leaves_its_record_before_backward_gives_gradients_recipes(monkeypatch):
    monkeypatch.setattr(FORESIGHT, "steps", [])
    _, _, peak = plain()
    model, seen = Model(), []
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(0.6 * peak)):
        for _ in range(STEADY + 3):
            model.step()
        assert FORESIGHT.is_plain
        model.weights[0].register_hook(lambda g: seen.append(g._memory.recipe is not None))
        model.loss(rl.randn(64, 64)).mul(2.0).backward()  # one call more
    assert seen == [True]


def test_a_step_that_leaves_its_record_in_backward_is_not_one():
    """Uses of gradients that have no recipes are not known."""
    foresight, a, b = Foresight(), FakePlan(), FakePlan()
    walk = SimpleNamespace(create=False, by_node=False)
    for last in (*[a] * STEADY, b):
        foresight.call(a)
        token = WALK.set(walk)
        for plan in (a, last):
            foresight.call(plan)
        WALK.reset(token)
        foresight.begin()
    assert len(foresight.steps) == STEADY == foresight.steps[-1].repeats
    assert foresight.steps[-1].late  # the next one is not quiet


def test_another_limit_is_learned_anew():
    foresight = Foresight()
    a = FakePlan()
    for limit in [100] * STEADY + [50]:
        a.pool = SimpleNamespace(limit=limit)
        foresight.call(a)
        is_followed = bool(foresight.followed)
        foresight.begin()
    assert [step.repeats for step in foresight.steps][-2:] == [STEADY, 1]
    assert not is_followed


def test_values_of_other_steps_are_not_in_a_record_but_dropped_gradients_count():
    foresight, pool = Foresight(), pool_of("cpu")
    foresight.call(FakePlan())
    for fleeting in (False, True):
        recipe = SimpleNamespace(record=None, fleeting=fleeting)
        foresight.note_drop(pool, [SimpleNamespace(recipe=recipe)])
        assert foresight.record.drops == []
        assert foresight.record.late is fleeting


def test_a_step_is_not_quiet_where_one_with_the_same_beginning_dropped_gradients():
    foresight, a, b, c = Foresight(), FakePlan(), FakePlan(), FakePlan()
    for last in (*[b, c] * STEADY, b):
        foresight.call(a)
        if not foresight.followed:  # it would be left
            foresight.call(last)
        foresight.record.late = last is c
        foresight.begin()
    foresight.call(a)
    assert foresight.followed
    assert not foresight.is_quiet and not foresight.is_plain


def test_a_result_over_an_input_without_a_recipe_has_none():
    """A recipe would read the old bits: a step can end between the choice and the call."""
    x = rl.rand(64, 64)
    with memory.budget(1 << 30) as budget:
        plan = x.sin()._memory.recipe.plan
        (made,) = replay.run_over(plan, [x], (), budget, 0)
        assert made is x._memory and made.recipe is None


def test_calls_of_a_followed_step_take_the_short_way(monkeypatch):
    """From the `STEADY`-th equal step on; a call that differs, and those after it, do not."""
    taken: list[str] = []
    following = replay.following

    def counting(*counts):
        def counted(plan, *args):
            made = following(*counts)(plan, *args)
            if made is not None:
                taken.append(plan.op.name)
            return made

        return counted

    monkeypatch.setattr(replay, "following", counting)
    monkeypatch.setattr(record_call, "following", counting)
    x = rl.ones(64, 64, requires_grad=True)

    def step(second=rl.exp):
        taken.clear()
        x.grad = None
        y = rl.nn.functional.layer_norm(second(x.sin().tanh()), (64,))
        (y * x).sum().backward()
        return list(taken), bits(x.grad)

    want = step()[1]
    other = step(rl.cos)[1]
    with memory.budget(1 << 30):
        for _ in range(STEADY - 1):
            assert step() == ([], want)
        names, got = step()
        assert got == want and {"tanh", "exp", "mul"} <= set(names)
        assert step(rl.cos) == (["tanh"], other)
