"""An allocation that fails anywhere inside a call leaves as many bytes in use as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.core.errors import BudgetError, OutOfMemoryError
from rushlight.devices.shared.allocator import Pool, Scratch
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.record.op import Plans


def _parts(f: Callable[..., Any], *shapes: tuple[int, ...], **named: Any) -> Callable[[], Any]:
    given = [rl.randn(*shape, requires_grad=True) for shape in shapes]

    def run() -> None:
        made = f(*given, **named)
        (made[0] if isinstance(made, tuple) else made).sum().backward()

    def whole() -> None:
        try:
            run()
        finally:
            for value in given:
                value.grad = None

    return whole


def _complex(x: Any, y: Any) -> Any:
    a, b = rl.complex(x, y), rl.complex(y, x)
    return (a.transpose(-1, -2) @ b).real


PROGRAMS: dict[str, Callable[[], Callable[[], Any]]] = {
    "conv2d": lambda: _parts(F.conv2d, (3, 4, 17, 17), (8, 4, 3, 3), padding=1),
    "conv2d with stride": lambda: _parts(F.conv2d, (3, 4, 17, 17), (8, 4, 3, 3), stride=2),
    "depthwise conv2d": lambda: _parts(F.conv2d, (2, 8, 17, 17), (8, 1, 3, 3), groups=8),
    "conv_transpose2d": lambda: _parts(F.conv_transpose2d, (2, 4, 9, 9), (4, 6, 3, 3), stride=2),
    "complex matmul": lambda: _parts(_complex, (2, 20, 30), (2, 20, 30)),
    "sort": lambda: _parts(rl.sort, (30, 70)),
    "topk": lambda: _parts(rl.topk, (30, 70), k=9),
    "long sum": lambda: _parts(lambda x: x.sum(), (1 << 17,)),
    "attention": lambda: _parts(F.scaled_dot_product_attention, *[(1, 2, 70, 16)] * 3),
    "cross_entropy": lambda: _parts(lambda x: F.cross_entropy(x, rl.arange(40) % 30), (40, 30)),
    "binary_cross_entropy": lambda: _parts(
        lambda x: F.binary_cross_entropy(x.sigmoid(), rl.ones(900)), (900,)
    ),
    "searchsorted": lambda: _parts(
        lambda x: rl.searchsorted(rl.linspace(0, 1, 60), x.detach()) * x, (300,)
    ),
    "composed": lambda: _parts(lambda x: F.smooth_l1_loss(F.gelu(x) * x.softmax(-1), x), (40, 50)),
}


@pytest.mark.parametrize("error", [OutOfMemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", PROGRAMS)
def test_at_every_allocation(name, error, monkeypatch):
    run = PROGRAMS[name]()
    run()
    run()
    pool, fresh = pool_of("cpu"), Pool.fresh
    calls = [0, 0]

    def failing(self: Pool, room: int) -> int:
        calls[0] += 1
        if calls[0] == calls[1]:
            raise error("simulated")
        return fresh(self, room)

    monkeypatch.setattr(Pool, "fresh", failing)
    at = 0
    while at < 200:
        at += 1
        memory.empty_cache()
        calls[:] = [0, at]
        before = pool.live
        try:
            run()
        except error:
            pass
        else:
            break
        assert pool.live == before, at
        cached = sum(room * len(blocks) for room, blocks in pool.free.items())
        assert pool.held == pool.live + cached
    assert 3 < at < 200


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_every_limit(name):
    run = PROGRAMS[name]()
    run()
    memory.empty_cache()
    before = memory.allocated()
    memory.reset_peak()
    run()
    most, refused = memory.peak() - before, 0
    for tenths in range(1, 10):
        memory.empty_cache()
        with memory.budget(before + most * tenths // 10):
            try:
                run()
            except BudgetError:
                refused += 1
        assert memory.allocated() == before, tenths
    assert refused


def test_blocks_for_a_launch():
    pool = pool_of("cpu")
    before = pool.live
    with Scratch(pool, 64, 4096) as (a, b):
        assert a != b and pool.live == before + 4160
    assert pool.live == before
    with pytest.raises(OutOfMemoryError), Scratch(pool, 64, 1 << 60):
        pytest.fail("there is no room")
    assert pool.live == before
    with pytest.raises(KeyError), Scratch(pool, 64):
        raise KeyError
    assert pool.live == before


def test_attention_tells_what_it_takes():
    """Room for all of it is made before it runs: a gradient would be dropped for it later."""
    q = rl.randn(4, 2, 127, 32, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    plans = [plan for reference in list(Plans.every.values()) if (plan := reference()) is not None]
    (plan,) = [
        plan
        for plan in plans
        if plan.op.name == "scaled_dot_product_attention_grad"
        and plan.out.shape == q.shape
        and plan.pool is pool_of("cpu")
    ]
    specs = (*plan.outs, *plan.ins)
    with Scratch(pool_of("cpu"), *[max(64, s.nbytes) for s in specs]) as places:
        before = memory.allocated()
        memory.reset_peak()
        plan.launch(*places, *plan.tail, 0.1)
        assert memory.peak() - before == plan.scratch > 0
