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
import sys
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
    for _ in range(int(sys.argv[1])):
        step(32)
print(limit, resident("VmHWM") - before, memory.recomputed()["calls"])
"""


@pytest.mark.parametrize("steps", [3, 40])  # after some equal steps their blocks have places
def test_a_process_inside_a_budget_grows_no_further_than_the_budget(steps):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(steps)], capture_output=True, text=True, timeout=300
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
    "unet": """
down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
low = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU())
up = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
net = nn.ModuleList([down, low, up])
x, limit = rl.randn(8, 3, 64, 64), 16_000_000

def step():
    a = down(x)
    b = low(nn.functional.max_pool2d(a, 2))
    larger = nn.functional.interpolate(b, scale_factor=2, mode="bilinear")
    nn.functional.dropout(up(rl.cat([larger, a], 1)), 0.1).square().mean().backward()
""",
    "lstm": """
net = nn.ModuleList([nn.EmbeddingBag(500, 128), nn.LSTM(128, 256, 2, batch_first=True)])
x, limit = rl.arange(32 * 64 * 4).reshape(32 * 64, 4) % 500, 24_000_000
optimizer = rl.optim.AdamW(net.parameters())

def step():
    net[1](net[0](x).reshape(32, 64, 128))[0].square().mean().backward()
    optimizer.step()
""",
    "sorts": """
net = nn.Identity()
x, limit = rl.randn(1 << 20), 36_000_000

def step():
    rl.sort(x)
    rl.unique(x[: 1 << 18].round(decimals=2), return_inverse=True)
    rl.topk(x.reshape(1024, 1024), 64)
""",
    "halves": """
net = nn.Identity()
x, limit = rl.randn(24576, 512).to(rl.bfloat16), 10_000_000

def step():
    x.T @ x  # float32 copies of all factors would be 100 MB
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


LIBRARIES = {
    "solve": "rl.linalg.solve(x, x)",
    "inv": "rl.linalg.inv(x)",
    "det": "rl.linalg.det(x)",
    "cholesky": "rl.linalg.cholesky(positive)",
    "qr": "rl.linalg.qr(x)",
    "svd": "rl.linalg.svd(small)",
    "svd of a batch": "rl.linalg.svd(batch)",
    "pinv": "rl.linalg.pinv(small)",
    "eigh": "rl.linalg.eigh(positive)",
    "eig": "rl.linalg.eig(small)",
    "lstsq": "rl.linalg.lstsq(small, small)",
    "ldl": "rl.linalg.ldl_factor(positive)",
    "fft": "rl.fft.fft(line)",
    "fft of a prime length": "rl.fft.fft(line[:1000003])",
    "fft of a length with small factors": "rl.fft.fft(line[:1000000])",
    "rfft of lines": "rl.fft.irfft(rl.fft.rfft(line.reshape(64, -1)))",
    "fft in double precision": "rl.fft.ifft(line.double())",
    "a printed tensor": "str(x)",
}

OF_LIBRARIES = """
import rushlight as rl
from rushlight import memory

def resident(kind):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))

x, small = rl.randn(1200, 1200), rl.randn(500, 500)
batch, line = rl.randn(64, 96, 96), rl.randn(1 << 20)
positive = x @ x.T + 1200 * rl.eye(1200)
rl.linalg.solve(small, small)  # OpenBLAS has its own memory
for name, code in {libraries!r}.items():
    with memory.budget("1GiB"):
        memory.empty_cache()
        memory.reset_peak()
        open("/proc/self/clear_refs", "w").write("5")
        before, counted = resident("VmRSS"), memory.allocated()
        exec(code)
        print(name, resident("VmHWM") - before, memory.peak() - counted, sep="|")
"""


def test_what_libraries_take_is_counted():
    text = OF_LIBRARIES.format(libraries=LIBRARIES)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"RUSHLIGHT_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
    rows = [row.split("|") for row in done.stdout.splitlines()]
    assert len(rows) == len(LIBRARIES)
    too_much = [row for row in rows if int(row[1]) > 1.1 * int(row[2]) + 6_000_000]
    assert not too_much


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
def test_parts_of_a_block_are_freed_page_by_page():
    page, whole = 1 << 12, 1 << 17
    address = cpu_memory.allocate(whole)
    ctypes.memset(address, 7, whole)
    for at in range(page, whole, 2 * page):
        cpu_memory.release(address + at, page)
    for at in range(0, whole, 2 * page):
        assert ctypes.string_at(address + at, page) == b"\7" * page
        cpu_memory.release(address + at, page)
    small = [cpu_memory.allocate(page) for _ in range(300)]  # told from parts by the address
    assert all(address % page and not address % 64 for address in small)
    for address in small:
        ctypes.memset(address, 7, page)
    for address in small:
        assert ctypes.string_at(address, page) == b"\7" * page
        cpu_memory.release(address, page)


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


def test_blocks_of_the_c_library_are_not_cut_or_joined(monkeypatch):
    pool = Pool(pool_of("cpu").device)
    taken = [(pool.take(1 << 12), 1 << 12) for _ in range(64)]
    own = {address for address, _ in taken}
    held = pool.held
    pool.give_all(taken)
    monkeypatch.setattr(Pool, "bound", staticmethod(lambda _: held))
    large = pool.take(1 << 17)
    ctypes.memset(large, 1, 1 << 17)
    assert large not in own and pool.held <= held and len(pool.free[1 << 12]) == 32
    small = [(pool.take(1 << 12), 1 << 12) for _ in range(32)]
    assert {address for address, _ in small} <= own and pool.held == pool.live == held
    pool.give_all([(large, 1 << 17), *small])
    parts = [(pool.take(1 << 12), 1 << 12) for _ in range(40)]  # 8 are parts of the large one
    pool.give_all(parts)
    assert pool.trim() == held and pool.held == 0
