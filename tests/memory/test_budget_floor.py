"""Random graphs inside a limit of 1.1 of their floor, or more: they fit, with the same bits.

The floor (Note [Floor]) is computed here, from the recipes of a run without a limit.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import InplaceError, memory, nn
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory import replay
from rushlight.tape.memory.recipe import Recipe, with_recipe
from rushlight.tape.program.derivative import Derivative
from rushlight.tape.record.op import Plan
from rushlight.tape.walk import parallel
from tests.memory.training_step import bits

SIZE = 48  # a tensor is 9216 bytes


# ---- the floor ----


# The most scratch that a launch of a plan took, without a limit.
SCRATCH: WeakKeyDictionary[Plan, int] = WeakKeyDictionary()


def rooms_of(plan: Plan, rooms: Sequence[int]) -> int:
    return sum(rooms) + SCRATCH.get(plan, 0)


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
            most = max(
                most, held + need(list(below), rooms_of(recipe.plan, recipe.rooms), pinned, known)
            )
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
            pool, storages = self.pool, [v._memory for v in inputs]
            before = pool.peak = pool.live
            looks = self.looks(storages)
            made = run(plan, inputs, *rest)
            taken = pool.peak - before - sum(plan.rooms)
            SCRATCH[plan] = max(taken, SCRATCH.get(plan, 0))
            looks(rooms_of(plan, plan.rooms))
            return made

        def watched_bring(inputs: Any, pins: Any) -> Any:  # of a write
            self.looks([v._memory for v in inputs])(0)
            return bring(inputs, pins)

        monkeypatch.setattr(replay, "run_in_region", watched_run)
        monkeypatch.setattr(replay, "bring", watched_bring)
        # Every call is seen: derivatives run by their rules.
        monkeypatch.setattr(Derivative, "run_in_region", lambda *_: None)

    def looks(self, storages: Sequence[Any]) -> Callable[[int], None]:
        """Notes, of a call that reads these and fills blocks of some rooms, what it needs here."""
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

        def note(rooms: int) -> None:
            self.most = max(self.most, static + need(list(keys), rooms, fleeting, {}))

        return note


# ---- graphs ----


def _partial(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    z = x * 1.5
    z[:, ::2] *= 0.5
    z.add_(y)
    z[3:7].t()[1:] += 1.0
    return z


def _written_through_a_view(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    z = y * 0.5
    row = z.view(-1)[SIZE : 3 * SIZE]
    row.mul_(2.0)
    z.t()[1] += x[:, 2]
    return z.exp_() * 0.1


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
    lambda x, y: x.log_softmax(1) * y,
    lambda x, y: F.batch_norm(x, None, None, training=True) + y,
    lambda x, y: F.relu(x[rl.arange(SIZE - 1, -1, -1, device=x.device)]),
    lambda x, y: x.view(SIZE // 2, -1)[:, ::2].reshape(SIZE, -1).repeat(1, 2).mul(y),
    lambda x, y: sum(part.square() for part in x.chunk(2)).repeat(2, 1) + y,
    _written_through_a_view,
]


# ---- of several sizes ----


def _like(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    """As many rows of y as x has."""
    rows = x.shape[0]
    return y[:rows] if y.shape[0] >= rows else y.repeat(-(-rows // y.shape[0]), 1)[:rows]


def _views_of_views(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    z = _like(x, y) * 0.5
    part = z[2:8].view(-1)[SIZE:].view(-1, SIZE)
    part[1:3, ::3].copy_(part[0:2, 1::3].detach())
    z.t()[1].add_(x[:, 2])
    return z


def _attended(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    q, k = (v.view(1, 1, -1, SIZE) for v in (x, y))
    return F.scaled_dot_product_attention(q, k, k).view(-1, SIZE)


def _convolved(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    kernel = rl.full((SIZE, SIZE, 3), 0.01, device=x.device)
    return F.conv1d(x.t().reshape(1, SIZE, -1), kernel, padding=1)[0].t().contiguous()


SIZES: list[Callable[[rl.Tensor, rl.Tensor], rl.Tensor]] = [
    lambda x, y: x * _like(x, y),
    lambda x, y: rl.cat([x, y])[:192],
    lambda x, y: x[: max(12, x.shape[0] // 2)],
    lambda x, y: F.dropout(x, 0.3) + _like(x, y),
    lambda x, y: (x @ (y.t() @ y).tanh()) * 0.1,
    lambda x, y: F.softmax(x @ y.t(), 1) @ y,
    lambda x, y: rl.layer_norm(x, (SIZE,)),
    lambda x, y: F.embedding(rl.arange(x.shape[0], device=x.device) % y.shape[0], y) + x,
    lambda x, y: x.cumsum(0) * 0.1,
    lambda x, y: x.sort(1).values,
    lambda x, y: rl.stack([x, _like(x, y)]).amax(0),
    lambda x, y: rl.cat(x.split(SIZE // 2, 1)[::-1], 1),
    _views_of_views,
    _attended,
    _convolved,
]


def values_of(seed: int, leaves: Sequence[rl.Tensor]) -> list[rl.Tensor]:
    """The results of random steps, for every other seed of several sizes."""
    choose = random.Random(seed)
    rl.manual_seed(seed)
    values = [leaf * 1.0 for leaf in leaves]
    for _ in range(choose.randint(4, 9)):
        x, y = choose.choice(values), choose.choice(values[-3:])
        values.append(choose.choice(SIZES if seed % 2 else STEPS)(x, y))
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
    loss = values_of(seed, leaves)[-1].mean()
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


def check(
    work: Callable,
    seed: int,
    device: str,
    share: float = 1.1,
    bound: Callable | None = None,
) -> bool:
    """Whether the graph ran, in `share` of its floor; False if it is an error anyhow.

    `bound` runs inside the limit, if that is not `work`.
    """
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
    if bound is not None:
        del leaves, leaf
        leaves, run = result(bound, seed, device)
    gc.collect()
    memory.empty_cache(device)
    before = memory.recomputed()["calls"]
    assert memory.allocated(device) == start
    most = floor.most - start
    with memory.budget(start + int(share * most), device):
        assert run() == want, f"seed {seed}"
    again = memory.recomputed()["calls"] - before
    assert again < 3000, f"seed {seed}: {again} calls run again"
    # Larger limits fit too, also by what earlier steps have told.
    for more in (1.1, 1.2, 1.5, 2.0):
        with memory.budget(start + int(more * most), device):
            assert run() == want, f"seed {seed}, {more} of the floor"
    return True


@pytest.mark.parametrize("work", [once, twice, second_order])
def test_it_fits_into_the_floor(work):
    found = [check(work, seed, "cpu", 1.1 if seed % 2 else 1.0) for seed in range(32)]
    assert sum(found) > 24


def test_it_fits_on_every_device(device):
    for seed in range(3):
        assert check(once, seed, device)


def test_far_below_the_floor_is_refused():
    with pytest.raises(rl.BudgetError):
        for seed in range(4):
            check(once, seed, "cpu", share=0.5)


def test_workers_fit_too(monkeypatch):
    monkeypatch.setattr(parallel, "LONG", 1)

    def by_workers(seed: int, leaves: Sequence[rl.Tensor]) -> None:
        values = values_of(seed, leaves)
        loss = sum((v * (i + 1.0)).mean() for i, v in enumerate(values))
        loss.backward(workers=3)

    for seed in range(12):
        assert check(once, seed, "cpu", bound=by_workers), seed


# ---- images ----


class Residual:
    """Two residual blocks of convolutions and batch norms, after a first one without a skip."""

    def __init__(self) -> None:
        rl.manual_seed(0)
        wide = 16
        self.first = nn.Sequential(nn.Conv2d(3, wide, 3, padding=1), nn.BatchNorm2d(wide))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()),
                *(nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide)),
            )
            for _ in range(2)
        )
        self.parameters = [*self.first.parameters(), *self.blocks.parameters()]
        self.images = rl.randn(16, 3, 24, 24)
        self.seed = rl.randn(16, wide, 24, 24)  # of the last gradient

    def step(self) -> list:
        for p in self.parameters:
            p.grad = None
        x = self.first(self.images).relu()
        for block in self.blocks:
            x = (block(x) + x).relu()
        x.backward(self.seed)
        return bits(*[p.grad for p in self.parameters])


def test_a_residual_net_needs_four_images():
    """The gradients of skip and branch, and two to rebuild the branch's input; one is copied."""
    net = Residual()
    want = net.step()
    grads = sum(p.grad.nbytes for p in net.parameters)
    for p in net.parameters:
        p.grad = None
    gc.collect()
    memory.empty_cache()
    start, image = memory.allocated(), net.seed.nbytes
    with memory.budget(start + grads + 4 * image + (1 << 17)):
        assert net.step() == want and net.step() == want


def test_a_convolution_lies_over_its_input():
    rl.manual_seed(0)
    weights = [rl.randn(16, 16, 3, 3) * 0.1 for _ in range(3)]
    x = rl.randn(16, 16, 24, 24)

    def run() -> list:
        y = x * 0.5
        for w in weights:
            y = F.conv2d(y, w, padding=1)
        return bits(y)

    want = run()
    gc.collect()
    memory.empty_cache()
    with memory.budget(memory.allocated() + x.nbytes + (1 << 17)):
        assert run() == want
