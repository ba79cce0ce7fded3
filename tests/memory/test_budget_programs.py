"""Random programs of ops, views and writes: the same bits when everything droppable is dropped."""

from __future__ import annotations

import random
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import InplaceError, memory
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory import region
from rushlight.tape.program import derivative
from rushlight.tape.walk import backward
from rushlight.utils.checkpoint import checkpoint
from tests.memory.training_step import bits

SIZE = 40  # a tensor is 6400 bytes: large enough to be dropped


def drop_everything() -> None:
    pool = resolve_pool("cpu")
    while pool.reclaim is not None and pool.reclaim(pool, 1 << 40):
        pass


STEPS = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x.tanh(),
    lambda x, y: (x @ y).mul_(0.1),
    lambda x, y: F.dropout(x, 0.5) + y,
    lambda x, y: rl.layer_norm(x, (SIZE,)),
    lambda x, y: rl.cat([x[:10], y[10:]]),
    lambda x, y: x.t().detach() * y,
    lambda x, y: checkpoint(lambda t: (t @ t).tanh().mul_(0.5), x),
    lambda x, y: x[:, 1:].sum(1, keepdim=True) + y,
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(0.5),
    lambda x, y: x[1:3].add_(y[:2]),
    lambda x, y: x.__setitem__(0, y[1]),
    lambda x, y: x.t()[1:].copy_(y[1:]),
    lambda x, y: x.tanh_(),
    lambda x, y: rl.bernoulli(x.detach().sigmoid()) * y,
]


def program(seed: int, disturb: bool) -> list[bytes | None] | str:
    choose = random.Random(seed)
    rl.manual_seed(seed)
    leaves = [(rl.randn(SIZE, SIZE) * 0.3).requires_grad_() for _ in range(2)]
    values = [leaves[0] * 1.0, leaves[1] * 1.0, rl.ones(SIZE, SIZE)]
    try:
        for _ in range(choose.randint(4, 14)):
            step = choose.choice(STEPS)
            x, y = choose.choice(values), choose.choice(values)
            made = step(x, y)
            if (
                made is not None
                and made.shape == (SIZE, SIZE)
                and all(made is not v for v in values)
            ):
                values.append(made)
            if disturb:
                drop_everything()
        loss = sum((v * (i + 1.0)).sum() for i, v in enumerate(values))
        if disturb:
            drop_everything()
        loss.backward()
    except InplaceError:
        return "a saved value was overwritten"
    result = [loss, *[leaf.grad for leaf in leaves], *values]
    with rl.no_grad():
        for leaf in leaves:
            leaf.zero_()
    if disturb:
        drop_everything()
    return bits(*result)


@pytest.mark.parametrize("block", range(4))
def test_the_same_bits_however_much_is_dropped(block):
    outcomes = set()
    for seed in range(40 * block, 40 * block + 40):
        want = program(seed, disturb=False)
        with memory.budget(1 << 40):
            got = program(seed, disturb=True)
        assert got == want, f"seed {seed}"
        outcomes.add(type(want))
    assert outcomes == {list, str}  # both kinds are met


def test_a_tight_limit_on_random_programs():
    for seed in range(20):
        want = program(seed, disturb=False)
        limit = memory.allocated() + 9 * SIZE * SIZE * 4
        for _ in range(200):
            try:
                memory.empty_cache()
                with memory.budget(limit):
                    got = program(seed, disturb=False)
                break
            except rl.BudgetError as error:
                limit = error.least
        assert got == want, f"seed {seed}"


def _gradients(count: int) -> list[Any]:
    """Of a net whose derivatives have several launches: of an inner value, and of parameters."""
    rl.manual_seed(0)
    first, second = rl.nn.Linear(64, 96), rl.nn.Linear(96, 80)
    norm, x = rl.nn.LayerNorm(96), rl.randn(50, 64)
    found: list[Any] = []
    for _ in range(count):
        inner = first(x)
        loss = rl.nn.functional.cross_entropy(second(norm(inner).tanh()), rl.arange(50))
        found = list(rl.autograd.grad(loss, [inner, first.weight, second.weight]))
    return found


def test_derivatives_run_as_programs_inside_a_budget(monkeypatch):
    expected = [g.numpy().tobytes() for g in _gradients(1)]
    rules: list[str] = []
    by_rule = backward._by_rule

    def noted(node: Any, *rest: Any) -> Any:
        rules.append(node.plan.op.name)
        return by_rule(node, *rest)

    monkeypatch.setattr(backward, "_by_rule", noted)
    with memory.budget("1GiB"):
        _gradients(1)  # traces what no test before has traced
        rules.clear()
        found = _gradients(2)
        assert not rules
        for gradient in found:  # each step has its recipe
            assert gradient._memory.recipe is not None
            region.drop(gradient._memory)
        assert [g.numpy().tobytes() for g in found] == expected


def test_a_derivative_that_does_not_fit_as_a_program_runs_call_by_call(monkeypatch):
    expected = [g.numpy().tobytes() for g in _gradients(2)]
    monkeypatch.setattr(derivative.Derivative, "run_in_region", lambda *_: None)
    with memory.budget("1GiB"):
        assert [g.numpy().tobytes() for g in _gradients(2)] == expected
