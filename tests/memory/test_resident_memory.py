"""A budget bounds the process: memory that the pool frees goes back to the system."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from rushlight.core.errors import BudgetError
from rushlight.devices.cpu import memory as cpu_memory
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import pool_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")

PROGRAM = """
import rushlight as rl
from rushlight import memory, nn

def resident(kind):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))

layers = [nn.Conv2d(3, 16, 3, padding=1)]
for _ in range(8):
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
optimizer = rl.optim.SGD(net.parameters(), 0.01)

def step(count):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(rl.randn(count, 3, 32, 32)), rl.arange(count) % 10)
    loss.backward()
    optimizer.step()

step(2)
step(2)  # code is built, libraries have their own memory
memory.empty_cache()
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts anew
before, limit = resident("VmRSS"), 30_000_000
with memory.budget(memory.allocated() + limit):
    for _ in range(3):
        step(32)
print(limit, resident("VmHWM") - before, memory.recomputed()["calls"])
"""


def test_a_process_inside_a_budget_grows_no_further_than_the_budget():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    limit, grown, recomputed = map(int, done.stdout.split())
    assert recomputed > 0  # the budget was in force
    assert grown <= 1.1 * limit


MODELS = {
    "resnet": """
layers = [nn.Conv2d(3, 16, 3, padding=1)]
for _ in range(6):
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
x, y, limit = rl.randn(32, 3, 32, 32), rl.arange(32) % 10, 30_000_000

def step():
    nn.functional.cross_entropy(net(x), y).backward()
""",
    "gpt": """
layer = nn.TransformerEncoderLayer(64, 4, 256, 0.1, batch_first=True)
net = nn.Sequential(nn.Embedding(100, 64), nn.TransformerEncoder(layer, 4), nn.Linear(64, 100))
x, limit = rl.arange(16 * 128).reshape(16, 128) % 100, 40_000_000

def step():
    nn.functional.cross_entropy(net(x).reshape(-1, 100), x.reshape(-1)).backward()
""",
    "halves": """
net = nn.Identity()
x, limit = rl.randn(24576, 512).to(rl.bfloat16), 80_000_000

def step():
    x.T @ x  # with float32 copies of 75 MB in each of two threads
""",
}

GROWTH = """
import rushlight as rl
from rushlight import memory, nn

def resident(kind):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))
{model}
memory.empty_cache()
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts anew
before = resident("VmRSS")
with memory.budget(memory.allocated() + limit):
    for _ in range(2):
        net.zero_grad()
        step()
print(limit, resident("VmHWM") - before, memory.reserved())
"""


@pytest.mark.parametrize("model", MODELS)
def test_a_fresh_process_grows_by_the_budget_and_its_libraries(model):
    text = GROWTH.format(model=MODELS[model])
    for _ in range(2):  # the second finds every kernel's code on disk
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"RUSHLIGHT_THREADS": "2"},
        )
        assert done.returncode == 0, done.stderr
    limit, grown, held = map(int, done.stdout.split())
    assert held > 0.8 * limit  # the budget was in force
    assert grown <= 1.1 * limit + 16_000_000


def test_large_blocks_go_back_to_the_system():
    text = """
import rushlight as rl

def resident():
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))

rl.zeros(1 << 16).sum().item()
before = resident()
kept = [rl.ones(1 << 16) for _ in range(400)]  # 256 KiB each
small = [rl.ones(16) for _ in range(400)]  # blocks of the C library's, between and behind them
assert resident() - before > 90 << 20
del kept
rl.memory.empty_cache()
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 << 20


@pytest.mark.skipif(not cpu_memory.joins, reason="mremap moves no pages here")
def test_a_block_is_made_of_the_pages_of_others():
    sizes = [1 << 20, 1 << 17, 3 << 18]
    blocks = [(cpu_memory.allocate(size), size) for size in sizes]
    for i, (address, size) in enumerate(blocks):
        ctypes.memset(address, i + 1, size)
    less = sum(sizes) - (1 << 16)
    made = cpu_memory.join(blocks, less)
    assert not blocks  # used up
    assert (
        ctypes.string_at(made, less)
        == b"".join(bytes([i + 1]) * size for i, size in enumerate(sizes))[:less]
    )
    more = less + (5 << 20)
    larger = cpu_memory.join([(made, less)], more)  # the rest is new
    ctypes.memset(larger, 9, more)
    assert ctypes.string_at(larger + more - 8, 8) == b"\t" * 8
    cpu_memory.release(larger, more)


@pytest.mark.skipif(not cpu_memory.joins, reason="mremap moves no pages here")
def test_a_request_at_the_limit_takes_cached_pages_and_none_of_the_system():
    pool = Pool(pool_of("cpu").device)
    rooms = [1 << 20, 1 << 17, 3 << 18]
    taken = [(pool.take(room), room) for room in rooms]
    pool.give_all(taken)
    held = pool.held
    bound = Pool.bound
    Pool.bound = staticmethod(lambda pool: held)
    try:
        small = pool.take(1 << 16)  # cut from the smallest that suffices
        assert pool.held == held and len(pool.free[1 << 16]) == 1
        rest = held - (1 << 16)
        large = pool.take(rest)
        assert pool.held == pool.live == held
        with pytest.raises(BudgetError) as raised:
            pool.take(1 << 16)
        assert raised.value.least == held + (1 << 16)
        ctypes.memset(large, 1, rest)
        pool.give(large, rest)
        pool.give(small, 1 << 16)
        assert pool.held == held
        assert pool.trim() == held and pool.held == 0
    finally:
        Pool.bound = staticmethod(bound)
