"""Budget policies: the lowest score is dropped first, and no order changes a bit."""

from __future__ import annotations

from collections import Counter

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import rebuild, region
from rushlight.tape.memory.foresight import STEADY
from rushlight.tape.memory.recipe import Recipe
from tests.memory.training_step import Model, bits, plain

SIZE = 1 << 14


class ByOp:
    """Drops results of the given ops first, in that order."""

    def __init__(self, *ops: str) -> None:
        self.ops = ops

    def score(self, storage: memory.Candidate) -> float:
        return self.ops.index(storage.op) if storage.op in self.ops else len(self.ops)


class OldestFirst:
    def score(self, storage: memory.Candidate) -> float:
        return -storage.age


class NewestFirst:
    def score(self, storage: memory.Candidate) -> float:
        return storage.age


class LargestFirst:
    def score(self, storage: memory.Candidate) -> float:
        return -storage.nbytes


class Worst(memory.LeastWork):
    def score(self, storage: memory.Candidate) -> float:
        return -super().score(storage)


@pytest.fixture
def drops(monkeypatch):
    """The ops whose results are dropped, in order."""
    found: list[str] = []
    drop = region.drop

    def noted(storage, handed=None):
        found.append(storage.recipe.plan.op.name)
        drop(storage, handed)

    monkeypatch.setattr(region, "drop", noted)
    return found


def drop_three(policy: memory.Policy | None) -> None:
    x = rl.rand(SIZE)
    with memory.budget(1 << 30, policy=policy):
        kept = x.sin(), x.cos(), x.exp()
        while region.reclaim(pool_of("cpu"), 1 << 12):
            pass
        del kept


@pytest.mark.parametrize("order", [("cos", "exp", "sin"), ("exp", "sin", "cos")])
def test_the_lowest_score_is_dropped_first(order, drops):
    drop_three(ByOp(*order))
    assert tuple(drops) == order


@pytest.mark.parametrize("policy, want", [(OldestFirst(), "sin"), (NewestFirst(), "exp")])
def test_age_counts_calls_since_the_last_use(policy, want, drops):
    drop_three(policy)
    assert drops[0] == want


def test_equal_scores_go_in_the_order_of_making(drops):
    drop_three(ByOp())
    assert drops == ["sin", "cos", "exp"]


def test_the_default_is_the_least_work(drops):
    drop_three(None)
    drop_three(memory.LeastWork())
    assert drops[:3] == drops[3:]
    drops.clear()
    x = rl.rand(SIZE)
    with memory.budget(1 << 30):
        light, heavy = x * 2.0, (x.sin() * 3.0).lgamma()
        region.reclaim(pool_of("cpu"), SIZE)
        assert drops == ["mul"]
        del light, heavy


@pytest.mark.parametrize("policy", [OldestFirst, NewestFirst, LargestFirst, Worst, ByOp])
def test_no_order_changes_a_bit(device, policy):
    want, _, peak = plain(device)
    model = Model(device)
    memory.empty_cache(device)
    before = memory.recomputed()["calls"]
    limit = memory.allocated(device) + int(0.7 * peak)
    with memory.budget(limit, device, policy=policy()):
        assert [model.step(), model.step()] == want
        assert memory.reserved(device) <= limit
    assert memory.recomputed()["calls"] > before


def test_a_candidate_says_what_it_costs():
    seen: dict[str, memory.Candidate] = {}

    class Look:
        def score(self, storage):
            seen[storage.op] = storage
            return storage.op != "mul"

    x = rl.rand(SIZE)
    with memory.budget(1 << 30, policy=Look()):
        a = x * 2.0
        b, c = a.exp(), x.cos()
        region.reclaim(pool_of("cpu"), 4 * SIZE)
    assert {s.nbytes for s in seen.values()} == {4 * SIZE} and all(s.fits for s in seen.values())
    assert [seen[op].age for op in ("mul", "exp", "cos")] == [1, 1, 0]  # exp used the product
    whole = seen["exp"].work
    with memory.budget(1 << 30, policy=Look()):
        region.reclaim(pool_of("cpu"), SIZE)  # the product is dropped by now
    assert seen["exp"].work > whole and not seen["exp"].fits
    del a, b, c


def test_the_innermost_policy_is_asked(drops):
    x = rl.rand(SIZE)
    with memory.budget(1 << 30, policy=ByOp("exp")):
        kept = x.sin(), x.exp()
        with memory.budget(1 << 29, policy=ByOp("sin")):
            region.reclaim(pool_of("cpu"), 1 << 12)
        with memory.budget(1 << 29):
            region.reclaim(pool_of("cpu"), 1 << 12)
    assert drops == ["sin", "exp"]
    del kept


def test_a_policy_that_fails_changes_nothing():
    class Broken:
        def score(self, storage):
            raise ZeroDivisionError("on purpose")

    x = rl.rand(SIZE)
    memory.empty_cache()
    limit = memory.reserved() + 3 * 4 * SIZE
    with memory.budget(limit, policy=Broken()):
        made = [x * 2.0, x * 3.0]
        with pytest.raises(ZeroDivisionError):
            made += [x * 4.0, x * 5.0, x * 6.0]
    assert made[0].tolist()[:3] == (x * 2.0).tolist()[:3]


def test_what_is_no_policy_is_refused():
    with pytest.raises(TypeError, match=r"a method score\(storage\)"):
        memory.budget("1MiB", policy=len)


class Noting(memory.LeastWork):
    """Keeps the candidates by op."""

    def __init__(self) -> None:
        self.seen: dict[str, memory.Candidate] = {}

    def score(self, storage: memory.Candidate) -> float:
        self.seen[storage.op] = storage
        return super().score(storage)


def test_what_a_dropped_value_is_made_from_is_used_with_it():
    x, policy = rl.rand(SIZE), Noting()
    with memory.budget(1 << 30, policy=policy):
        a = x * 2.0
        b, c = a.exp(), x.cos()
        used = b.sin()  # some calls after the last use of the product
        region.drop(b._memory)
        region.reclaim(pool_of("cpu"), SIZE)
    assert policy.seen["mul"].age == policy.seen["sin"].age == 0
    assert policy.seen["cos"].age == 1
    policy.seen.clear()  # a ranking keeps the policy
    del a, c, used


def test_a_value_that_was_rebuilt_is_dropped_later():
    x, policy = rl.rand(SIZE), Noting()
    with memory.budget(1 << 30, policy=policy):
        a = x * 2.0
        for _ in range(2):
            region.drop(a._memory)
            assert (a + 1.0).numel() == SIZE
        region.reclaim(pool_of("cpu"), SIZE)
    seen = policy.seen.pop("mul")
    assert seen.runs == 2
    score = policy.score(seen)
    seen.runs = 0
    assert policy.score(seen) < score
    policy.seen.clear()
    del a, seen


def test_what_was_rebuilt_a_few_times_goes_last(drops):
    x = rl.rand(SIZE)
    with memory.budget(1 << 30, policy=ByOp("sin", "cos")):
        often, seldom = x.sin(), x.cos()
        often._memory.recipe.runs = region.OFTEN
        region.reclaim(pool_of("cpu"), 1 << 12)
        assert drops == ["cos"]
        region.reclaim(pool_of("cpu"), 1 << 12)
        assert drops == ["cos", "sin"]
        del often, seldom


@pytest.mark.parametrize("share", [0.5, 0.35, 0.25])
def test_no_value_is_rebuilt_more_than_a_few_times_in_a_step(share, monkeypatch):
    runs: Counter[Recipe] = Counter()
    count = rebuild.Rebuild._count

    def counted(self, recipe):
        runs[recipe] += 1
        return count(self, recipe)

    monkeypatch.setattr(rebuild.Rebuild, "_count", counted)
    weights = [(rl.randn(64, 64) * 0.1).requires_grad_() for _ in range(24)]
    x = rl.randn(256, 64)

    def step():
        h = x
        for w in weights:
            h = h + (h @ w).tanh()
        h.sum().backward()
        found = bits(*[w.grad for w in weights])
        for w in weights:
            w.grad = None
        return found

    memory.empty_cache()
    memory.reset_peak()
    base = memory.allocated()
    want, peak = step(), memory.peak() - base
    memory.empty_cache()
    with memory.budget(base + int(share * peak)):
        for i in range(STEADY + 1):
            runs.clear()
            assert step() == want
            # Steps that are learned from try several orders.
            assert 1 <= max(runs.values()) <= (1 if i >= STEADY else 3) * region.OFTEN
