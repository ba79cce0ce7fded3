"""Random graphs inside a limit of their floor, or 1.1 of it: they fit, with the same bits.

The floor (Note [Floor]) is computed here, from the recipes of a run without a limit.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import InplaceError, memory
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory import replay
from rushlight.tape.memory.recipe import Recipe, with_recipe
from rushlight.tape.program.derivative import Derivative
from rushlight.tape.walk import parallel
from tests.memory.training_step import bits

SIZE = 48  # a tensor is 9216 bytes


# ---- the floor ----


def need(
    keys: Sequence[tuple[Recipe, int]], rooms: int, pinned: frozenset[Any], known: dict
) -> int:
    """Bytes beside `pinned` for a call that reads these results and fills blocks of `rooms`."""
    key = (tuple(keys), rooms, pinned)
    if key not in known:
        held, most = 0, 0
        for recipe, index in sorted(keys, key=lambda key: key[0].serial):
            if (recipe, index) in pinned:
                continue
            below = {(o, i) for o, i, _ in recipe.sources if isinstance(o, Recipe)}
            most = max(most, held + need(list(below), sum(recipe.rooms), pinned, known))
            pinned |= {(recipe, index)}
            held += recipe.rooms[index]
        known[key] = max(most, held + rooms)
    return known[key]


class Floor:
    """Watches the calls of a run without a limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
        self.pool = resolve_pool(device)
        self.most = 0
        run, bring = replay.run_in_region, replay.bring

        def watched_run(plan: Any, inputs: Any, *rest: Any) -> Any:
            self.look([v._memory for v in inputs], sum(plan.rooms))
            return run(plan, inputs, *rest)

        def watched_bring(inputs: Any, pins: Any) -> Any:  # of a write
            self.look([v._memory for v in inputs], 0)
            return bring(inputs, pins)

        monkeypatch.setattr(replay, "run_in_region", watched_run)
        monkeypatch.setattr(replay, "bring", watched_bring)
        # Every call is seen: derivatives run by their rules.
        monkeypatch.setattr(Derivative, "run_in_region", lambda *_: None)

    def look(self, storages: Sequence[Any], rooms: int) -> None:
        # What is plain stays, and so do gradients on their way.
        every = list(with_recipe(self.pool))
        static = self.pool.live - sum(
            s.room for s in every if s.block is not None and not s.recipe.fleeting
        )
        keys = {
            (s.recipe, s.recipe.index_of(s))
            for s in storages
            if s.recipe is not None and not s.recipe.fleeting
        }
        fleeting = frozenset((s.recipe, s.recipe.index_of(s)) for s in every if s.recipe.fleeting)
        self.most = max(self.most, static + need(list(keys), rooms, fleeting, {}))


# ---- graphs ----


def _partial(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    z = x * 1.5
    z[:, ::2] *= 0.5
    z.add_(y)
    z[3:7].t()[1:] += 1.0
    return z


STEPS: list[Callable[[rl.Tensor, rl.Tensor], rl.Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x.tanh(),
    lambda x, y: (x @ y).mul_(0.1),
    lambda x, y: F.dropout(x, 0.5) + y,
    lambda x, y: rl.layer_norm(x, (SIZE,)),
    lambda x, y: rl.cat([x[:10], y[10:]]),
    lambda x, y: x.t() * y,
    lambda x, y: x[:, 1:].sum(1, keepdim=True) + y,
    lambda x, y: x + (x @ y).tanh() * 0.5,
    _partial,
]


def values_of(seed: int, leaves: Sequence[rl.Tensor]) -> list[rl.Tensor]:
    choose = random.Random(seed)
    rl.manual_seed(seed)
    values = [leaf * 1.0 for leaf in leaves]
    for _ in range(choose.randint(4, 9)):
        x, y = choose.choice(values), choose.choice(values[-3:])
        values.append(choose.choice(STEPS)(x, y))
        if choose.random() < 0.4:  # not everything is kept
            del values[choose.randrange(len(values) - 1)]
    return values


def once(seed: int, leaves: Sequence[rl.Tensor]) -> None:
    values = values_of(seed, leaves)
    sum((v * (i + 1.0)).mean() for i, v in enumerate(values)).backward()


def twice(seed: int, leaves: Sequence[rl.Tensor]) -> None:
    loss = values_of(seed, leaves)[-1].mean()
    loss.backward(retain_graph=True)
    (loss * 2.0).backward()


def second_order(seed: int, leaves: Sequence[rl.Tensor]) -> None:
    loss = values_of(seed % 7, leaves)[-1].mean()
    grads = rl.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    sum((g * g).mean() for g in grads if g is not None).backward()


def result(work: Callable, seed: int, device: str) -> tuple[list, Callable[[], list]]:
    rl.manual_seed(seed)
    leaves = [(rl.randn(SIZE, SIZE, device=device) * 0.3).requires_grad_() for _ in range(2)]

    def run() -> list:
        for leaf in leaves:
            leaf.grad = None
        work(seed, leaves)
        return bits(*[leaf.grad for leaf in leaves])

    return leaves, run


def check(work: Callable, seed: int, device: str, share: float = 1.1) -> bool:
    """Whether the graph ran, in `share` of its floor; False if it is an error anyhow."""
    leaves, run = result(work, seed, device)
    try:
        want = run()
    except InplaceError:
        return False
    for leaf in leaves:
        leaf.grad = None
    gc.collect()
    with pytest.MonkeyPatch.context() as patch, memory.budget(1 << 40, device):
        floor = Floor(patch, device)
        start = memory.allocated(device)
        assert run() == want
    for leaf in leaves:
        leaf.grad = None
    gc.collect()
    memory.empty_cache(device)
    before = memory.recomputed()["calls"]
    assert memory.allocated(device) == start
    with memory.budget(start + int(share * (floor.most - start)), device):
        assert run() == want, f"seed {seed}"
    again = memory.recomputed()["calls"] - before
    assert again < 3000, f"seed {seed}: {again} calls run again"
    return True


@pytest.mark.parametrize("work", [once, twice, second_order])
def test_it_fits_into_the_floor(work):
    assert sum(check(work, seed, "cpu", share=1.0) for seed in range(16)) > 8


def test_it_fits_on_every_device(device):
    for seed in range(3):
        assert check(once, seed, device)


def test_far_below_the_floor_is_refused():
    with pytest.raises(rl.BudgetError):
        for seed in range(4):
            check(once, seed, "cpu", share=0.5)


def test_workers_fit_too(monkeypatch):
    """Several gradients are on their way at once, so the limit is that of the errors."""
    monkeypatch.setattr(parallel, "LONG", 1)

    def by_workers(seed: int, leaves: Sequence[rl.Tensor]) -> None:
        values = values_of(seed, leaves)
        loss = sum((v * (i + 1.0)).mean() for i, v in enumerate(values))
        loss.backward(workers=3)

    for seed in range(6):
        want = result(once, seed, "cpu")[1]()
        leaves, run = result(by_workers, seed, "cpu")
        memory.empty_cache()
        limit = memory.allocated() + 12 * SIZE * SIZE * 4
        for _ in range(50):
            try:
                with memory.budget(limit):
                    assert run() == want
                break
            except rl.BudgetError as error:
                limit = error.least
        else:
            pytest.fail(f"seed {seed} fits into no limit")
        del leaves
