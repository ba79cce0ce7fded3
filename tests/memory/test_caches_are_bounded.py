"""A program with ever new shapes: caches do not grow without limit."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.core.cache import Cache, cached, forget
from rushlight.core.shapes import _SPECS, Spec
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.record.op import Op


def step(n: int) -> float:
    """Some of everything, on rows of n."""
    x = rl.ones(2, n, requires_grad=True)
    y = F.softmax((x * 2.0 + x).tanh(), -1)
    z = rl.cat([y, y[:, :1]], 1)
    loss = z.sum() + (y @ y.t()).mean() + F.layer_norm(y, (n,)).reshape(n, 2).amax()
    loss.backward()
    with rl.no_grad():
        x.sub_(x.grad * 0.1)
    return loss.item()


def small_step(n: int) -> None:
    x = rl.ones(n, requires_grad=True)
    (x * 2.0 + x).tanh().sum().backward()
    with rl.no_grad():
        x.sub_(x.grad)


@pytest.fixture(autouse=True)
def every_object():
    """`gc.get_objects()` leaves out what was frozen after pytest's collection: the ops too."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def largest_table() -> int:
    ops = [o for o in gc.get_objects() if isinstance(o, Op)]
    return max(len(table) for o in ops for table in (o.plans, *o.number_plans.values()))


def test_tables_stay_small(monkeypatch):
    monkeypatch.setattr(Cache, "MOST", 50)
    first = step(3)
    step(4)
    gc.collect()
    before = len(_SPECS), len(gc.get_objects())
    for start in (1000, 1060, 1120):
        for n in range(start, start + 60):
            step(n)
        gc.collect()
        assert len(_SPECS) - before[0] < 600  # without a limit 9 more for each shape
        assert len(gc.get_objects()) - before[1] < 60_000  # and 800
    touched = [
        o
        for o in gc.get_objects()
        if isinstance(o, Op) and o.name in ("tanh", "softmax", "cat", "matmul")
    ]
    assert {o.name for o in touched} == {"tanh", "softmax", "cat", "matmul"}
    assert all(len(o.plans) <= 50 for o in touched)
    assert step(3) == first


def test_a_cached_function_is_bounded_and_forgets(monkeypatch):
    monkeypatch.setattr(Cache, "MOST", 3)
    seen = []

    @cached
    def twice(n):
        seen.append(n)
        return None if n == 0 else 2 * n

    assert [twice(n) for n in (0, 1, 0, 1)] == [None, 2, None, 2]
    assert seen == [0, 1]
    twice(2)
    twice(3)  # the cache is full and cleared
    assert (twice(3), twice(0), seen) == (6, None, [0, 1, 2, 3, 0])
    forget()
    assert (twice(3), seen) == (6, [0, 1, 2, 3, 0, 3])


def test_a_spec_goes_with_its_last_holder():
    x = rl.ones(12345, 3)
    spec = x._spec
    assert Spec.of(spec.device, spec.dtype, spec.shape) is spec
    key = (spec.device, spec.dtype, (777, 778, 779), (1, 2, 3))
    made = Spec.of(*key)
    assert key in _SPECS
    del made
    assert key not in _SPECS
    assert Spec.of(*key).shape == (777, 778, 779)


def test_cached_blocks_do_not_grow_for_ever(monkeypatch):
    pool = pool_of("cpu")
    memory.empty_cache()
    memory.reset_peak()
    monkeypatch.setattr("rushlight.devices.shared.allocator.SPARE", 1 << 20)
    for n in range(200):
        rl.ones((100 + n) * 1024)  # half a megabyte to a whole, each of another size
    assert pool.held - pool.live <= 2 * pool.peak + (1 << 20)
    x = [rl.ones(300 * 1024) for _ in range(2)]
    del x
    held = pool.held
    x = [rl.ones(300 * 1024) for _ in range(2)]
    assert pool.held == held  # what is used again stays
    del x


@pytest.mark.slow
def test_twenty_thousand_shapes():
    program = """
import sys
from tests.memory.test_caches_are_bounded import largest_table, small_step
from rushlight.core.shapes import _SPECS
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
for n in range(3, 5003):
    small_step(n)
middle = resident()
for n in range(5003, 20003):
    small_step(n)
print(resident() - middle, largest_table(), len(_SPECS))
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr
    grown, table, specs = map(int, done.stdout.split())
    assert table <= 2048
    assert specs < 12_000
    assert grown < 150 << 20
