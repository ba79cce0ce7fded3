"""A budget bounds the process: memory that the pool frees goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from rushlight.devices.cpu import memory as cpu_memory

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


def test_pages_of_a_block_given_back_go_to_the_next_one():
    cpu_memory._keep_spare(0)  # what other tests left
    block = cpu_memory.allocate(1 << 20)
    ctypes.memset(block, 7, 1 << 20)
    cpu_memory.release(block, 1 << 20)
    smaller = cpu_memory.allocate(1 << 18)
    # The same pages, without new page faults.
    assert ctypes.string_at(smaller, 1 << 18) == b"\7" * (1 << 18)
    larger = cpu_memory.allocate((1 << 20) + (1 << 19))  # of the rest, grown
    ctypes.memset(larger, 1, (1 << 20) + (1 << 19))
    assert ctypes.string_at(smaller, 1 << 18) == b"\7" * (1 << 18)
    cpu_memory.release(smaller, 1 << 18)
    cpu_memory.release(larger, (1 << 20) + (1 << 19))
    assert sum(room for _, room in cpu_memory._spare) <= cpu_memory.KEPT + (1 << 20) + (1 << 19)
