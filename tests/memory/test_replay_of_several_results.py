"""Ops with several results under a budget: room for one result never drops another in use."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as rl
from rushlight import BudgetError, memory
from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.shared.allocator import Pool
from tests.memory.training_step import bits

SIDE = 128


def _sorted(x: Any) -> list[Any]:
    s, i = x.sort(1)
    for k in range(6):
        y = x * (k + 1.0)
        a = s + 1.0
        z = (y * y).exp()
        del y
        j = i + 1
    return [s, i, a, z, j]


def _topped(x: Any) -> list[Any]:
    t, i = x.topk(100, 1)
    for k in range(6):
        y = x * (k + 1.0)
        a = t * 2.0
        z = y.tanh() + x
        del y
        j = i + 1
    return [t, i, a, z, j]


def _multiplied(x: Any) -> list[Any]:
    """The derivative of a product is one launch with two results."""
    u, v = (x * c for c in (0.5, 2.0))
    u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
    y = u
    for _ in range(5):
        y = (y * v).sin() * u
    y.sum().backward()
    return [u.grad, v.grad, y]


@pytest.mark.parametrize("program", [_sorted, _topped, _multiplied])
def test_the_same_bits_or_a_clean_refusal_at_every_limit(program: Callable[[Any], list[Any]]):
    x = rl.randn(SIDE, SIDE)
    want = bits(*program(x))
    gc.collect()
    start = memory.allocated()
    ended = refused = 0
    for limit in range(120_000, 1_620_000, 6_000):  # 250 of them
        memory.empty_cache()
        try:
            with memory.budget(start + limit):
                made = program(x)
                assert memory.reserved() <= start + limit
                got = bits(*made)
        except BudgetError as error:
            assert error.least > start + limit
            refused += 1
            continue
        finally:
            made = None
        assert got == want, limit
        ended += 1
    assert memory.allocated() == start
    assert ended > 100 and refused > 5


def test_results_that_are_there_stay_while_the_others_are_made_again(monkeypatch):
    """The scratch of a launch asks for room too: the device is full whenever a block is
    requested.
    """
    x = rl.randn(SIDE, SIDE)
    want = bits(*x.sort(1))
    with memory.budget(1 << 40):
        s, i = x.sort(1)
        pool: Any = s._memory.pool
        others = [x * float(k) for k in range(8)]  # what can be dropped instead
        s._memory.recipe.used = -100  # not touched for long
        assert pool.reclaim(pool, s._memory.room)  # one of them, of that size
        assert s._memory.present_address is None or i._memory.present_address is None
        alloc, refused = type(pool.device).alloc, []

        def full(device: Any, nbytes: int) -> int:
            if not refused:
                refused.append(nbytes)
                raise OutOfMemoryError("simulated")
            refused.clear()
            return alloc(device, nbytes)

        memory.empty_cache()
        monkeypatch.setattr(type(pool.device), "alloc", full)
        assert bits(s, i) == want
        assert any(v._memory.present_address is None for v in others)


def test_what_a_write_would_disturb_is_known_after_a_refusal(monkeypatch):
    """A write first rebuilds values made from the old bits.

    If that fails, the next try rebuilds them too.
    """
    x = rl.randn(SIDE, SIDE)
    want = bits(x * 2.0)
    with memory.budget(1 << 40):
        y = x * 2.0
        pool: Any = y._memory.pool
        assert pool.reclaim(pool, 1 << 40)
        memory.empty_cache()
        with monkeypatch.context() as patched:

            def none(pool: Pool, room: int) -> int:
                raise OutOfMemoryError("simulated")

            patched.setattr(Pool, "fresh", none)
            with pytest.raises(OutOfMemoryError):
                x.zero_()
        x.zero_()
        assert bits(y) == want
