"""The size of a record, and the peak of a step. `benchmarks/tape.py` compares with PyTorch."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory

MILLION = """
import gc
import rushlight as rl


def peak():
    # Not getrusage: what it tells of a new process begins with the peak of the one that started it.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


gc.disable()
x, one = rl.ones(8, requires_grad=True), rl.ones(8)
y = x
before = peak()
for i in range(500_000):
    y = {binary}
    y = {unary}
y.backward(one)
assert x.grad.tolist() == {want}, x.grad
del y
assert rl.memory.allocated() < 10_000
print(peak(), before)
"""
CHAINS = {
    "nothing saved": {"binary": "y + one", "unary": "-y", "want": [1.0] * 8},
    "every operand or result saved": {
        "binary": "y * one",
        "unary": "rl.relu(y)",
        "want": [1.0] * 8,
    },
}


@pytest.mark.parametrize(
    "name", ["every operand or result saved", pytest.param("nothing saved", marks=pytest.mark.slow)]
)
def test_a_million_nodes_in_less_than_a_gigabyte(name):
    """Built, walked and destroyed, with the source line and module path of each."""
    code = MILLION.format(**CHAINS[name])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    peak, start = map(int, done.stdout.split())
    assert peak < 1_000_000_000
    assert peak - start < 900_000_000


@pytest.mark.parametrize(("op", "most"), [("neg", 300), ("relu", 450), ("tanh", 450), ("exp", 450)])
def test_bytes_of_a_record(op, most):
    """Node, edges and saves of a chain of 8 elements each, without the elements (64 bytes)."""
    function = getattr(rl, op)
    x = rl.ones(8, requires_grad=True)
    function(function(x)).sum().backward()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y = x
        for _ in range(2000):
            y = function(y)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / 2000 < most
    del y


# ---- peaks ----


def peak_of(function, device: str = "cpu") -> int:
    gc.collect()
    start = memory.allocated(device)
    memory.reset_peak(device)
    function()
    return memory.peak(device) - start


@pytest.mark.parametrize("link", ["elementwise", "view", "product", "mixed"])
def test_backward_holds_two_gradients_at_a_time(link, device):
    """The incoming and the outgoing gradient; gradients that were passed on are freed."""
    x = rl.ones(64, 64, device=device, requires_grad=True)
    w = rl.ones(64, 64, device=device)
    links = {
        "elementwise": lambda y: y * 2.0,
        "view": lambda y: (y * 2.0).t() * 2.0,
        "product": lambda y: y @ w,
        "mixed": lambda y: (((y @ w) * 2.0).reshape(4096) + 1.0).reshape(64, 64),
    }
    y = x
    for _ in range(6):
        y = links[link](y)
    g = rl.ones(64, 64, device=device)
    assert peak_of(lambda: y.backward(g), device) <= 2 * x.nbytes


def test_the_gradient_of_gather_is_one_buffer(device):
    x = rl.ones(64, 64, device=device, requires_grad=True)
    index = rl.zeros(64, 1, dtype=rl.int64, device=device)
    y = x.gather(1, index).sum()
    assert peak_of(y.backward, device) <= x.nbytes + 1024
    y = F.max_pool2d(x.reshape(1, 1, 64, 64), 2).sum()
    x.grad = None
    assert peak_of(y.backward, device) <= 2 * x.nbytes + 4096 + 1024


def test_max_pool_keeps_four_bytes_a_window(device):
    x = rl.ones(1, 4, 64, 64, device=device, requires_grad=True)
    start = memory.allocated(device)
    y = F.max_pool2d(x, 2)
    assert memory.allocated(device) - start == 2 * y.nbytes
