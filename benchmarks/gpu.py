"""The GPU table: Rushlight on `cuda` (and `webgpu`) against PyTorch on the same GPU, in one run.

python benchmarks/gpu.py [--webgpu]      exit code 1 if a bar is missed

Needs an NVIDIA GPU, CuPy and PyTorch.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import workloads as w
from compare import Row, compare, table

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

STEPS = 20


def synced(lib: Any, work: Callable[[], object]) -> Callable[[], object]:
    """The work, synchronised."""
    finish = torch.cuda.synchronize if lib is torch else pool_of("cuda").device.synchronize

    def run() -> None:
        work()
        finish()

    return run


def chain_row() -> Row:
    name = "chain of 100 ops of 8 floats on cuda, forward and backward, per op"
    ours, theirs = (synced(lib, w.chain(lib, "cuda")) for lib in (rl, torch))
    return compare(name, ours, theirs, 0.7, 100)


def gpt_row() -> Row:
    ours, theirs = (synced(lib, w.gpt_step(lib, "cuda", 64)[0]) for lib in (rl, torch))
    return compare("demo GPT step on cuda, batch 64", ours, theirs, float("inf"))


def bandwidth() -> tuple[float, float]:
    """Bytes per second of an add of 1 GiB and of a device-to-device copy of 1 GiB, the best of
    many.
    """
    n = 1 << 28
    finish = pool_of("cuda").device.synchronize
    a, b = (rl.ones(n, device="cuda") for _ in range(2))
    source = torch.ones(n, device="cuda")
    target = torch.empty_like(source)

    def best(work: Callable[[], object], wait: Callable[[], object]) -> float:
        times = []
        for _ in range(30):
            wait()
            start = time.perf_counter()
            for _ in range(10):
                work()
            wait()
            times.append((time.perf_counter() - start) / 10)
        return min(times)

    add = best(lambda: a + b, finish)
    copy = best(lambda: target.copy_(source), torch.cuda.synchronize)
    return 3 * 4 * n / add, 2 * 4 * n / copy


def losses(device: str) -> list[float]:
    step, _ = w.gpt_step(rl, device)
    return [step() for _ in range(STEPS)]


def main() -> int:
    devices = ["cpu", "cuda"] + (["webgpu"] if "--webgpu" in sys.argv else [])
    print(f"{datetime.date.today()}, PyTorch {torch.__version__}")
    for name in devices:
        print(f"{name}: {pool_of(name).device.limits.description}")
    rows = [chain_row(), gpt_row()]
    print()
    print(table(rows, "PyTorch"))
    add, copy = bandwidth()
    print(
        f"\nadd of 1 GiB: {add / 1e9:.0f} GB/s, copy {copy / 1e9:.0f} GB/s: {100 * add / copy:.0f} "
        "% (bar 85 %)"
    )
    right = all(r.reached for r in rows) and add >= 0.85 * copy
    curves = {name: losses(name) for name in devices}
    print(f"\nLosses of the demo's GPT over {STEPS} steps from one seed:")
    for name, curve in curves.items():
        away = max(abs(x - y) for x, y in zip(curve, curves["cpu"], strict=True))
        right = right and away < 1e-3 * curves["cpu"][0]
        print(
            f"{name}: {' '.join(f'{x:.5f}' for x in curve[::5])} ... {curve[-1]:.5f}; at most "
            f"{away:.1e} from the CPU's"
        )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
