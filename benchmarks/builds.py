"""How long the CPU takes to build one kernel, cold and from the disk cache, as a Markdown table.

python benchmarks/builds.py      bars: 40 ms cold, 2 ms from disk; the exit code is 1 if the median or a row is over

Every row is the first call of an op in an empty cache: all kernels that call builds, timed one by one, and the slowest
of them shown. Times are of this thread's processor time, so that other work on the machine does not count.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["RUSHLIGHT_CACHE"] = tempfile.mkdtemp(prefix="rushlight-builds-")

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.devices.registry import pool_of
from rushlight.kernel.shapes import Kernel

COLD, WARM = 0.040, 0.002
CALLS: dict[str, Callable[[], object]] = {
    "add": lambda: rl.rand(8) + rl.rand(8),
    "exp": lambda: rl.exp(rl.rand(8)),
    "tanh": lambda: rl.tanh(rl.rand(8)),
    "gelu": lambda: F.gelu(rl.rand(8)),
    "pow": lambda: rl.rand(8) ** rl.rand(8),
    "sin": lambda: rl.sin(rl.rand(8)),
    "lgamma": lambda: rl.lgamma(rl.rand(8)),
    "randn": lambda: rl.randn(8),
    "dropout": lambda: F.dropout(rl.rand(8), 0.5),
    "strided add": lambda: rl.rand(4, 5).t() + rl.rand(5, 4),
    "sum": lambda: rl.rand(4, 8).sum(1),
    "softmax": lambda: rl.softmax(rl.rand(4, 8), -1),
    "softmax along columns": lambda: rl.softmax(rl.rand(4, 8), 0),
    "layer_norm": lambda: F.layer_norm(rl.rand(4, 8), (8,), rl.ones(8), rl.zeros(8)),
    "cross_entropy": lambda: F.cross_entropy(rl.rand(4, 8), rl.zeros(4, dtype=rl.int64)),
    "cumsum": lambda: rl.rand(4, 8).cumsum(1),
    "sort": lambda: rl.rand(4, 8).sort(1),
    "gather": lambda: rl.rand(4, 8).gather(1, rl.zeros(4, 8, dtype=rl.int64)),
    "scatter_add": lambda: rl.zeros(4, 8).scatter_add(1, rl.zeros(4, 8, dtype=rl.int64), rl.rand(4, 8)),
    "matmul": lambda: rl.rand(4, 8) @ rl.rand(8, 4),
    "matmul of bfloat16": lambda: rl.rand(4, 8).bfloat16() @ rl.rand(8, 4).bfloat16(),
    "conv2d": lambda: F.conv2d(rl.rand(1, 4, 8, 8), rl.rand(4, 4, 3, 3), padding=1),
    "attention": lambda: F.scaled_dot_product_attention(*(rl.rand(1, 1, 8, 8) for _ in range(3))),
    "complex product": lambda: rl.complex(rl.rand(4), rl.rand(4)) * 2j,
}


def main() -> int:
    device = pool_of("cpu").device
    build = device.build
    seen: list[tuple[Kernel, float]] = []

    def timed(kernel: Kernel) -> object:
        start = time.thread_time()
        launch = build(kernel)
        seen.append((kernel, time.thread_time() - start))
        return launch

    # Starts LLVM, the thread pool and the BLAS library, which happens once.
    (rl.zeros(8, dtype=rl.int32) * 2).sum()
    rl.zeros(2, 2, dtype=rl.float64) @ rl.zeros(2, 2, dtype=rl.float64)
    device.build = timed  # type: ignore[method-assign]
    slowest: list[tuple[str, str, float, float]] = []
    try:
        for name, act in CALLS.items():
            before = len(seen)
            act()
            for kernel, cold in seen[before:]:
                start = time.thread_time()
                build(kernel)
                slowest.append((name, type(kernel).__name__, cold, time.thread_time() - start))
    finally:
        shutil.rmtree(os.environ["RUSHLIGHT_CACHE"], ignore_errors=True)
    print("| first built by | kernel | cold | from disk |\n|---|---|---|---|")
    for name, kind, cold, warm in slowest:
        print(f"| {name} | {kind} | {cold * 1e3:.1f} ms | {warm * 1e3:.1f} ms |")
    for place, bar, title in ((2, COLD, "cold"), (3, WARM, "from disk")):
        times = [float(row[place]) for row in slowest]
        over = sum(t > bar for t in times)
        middle, most = statistics.median(times) * 1e3, max(times) * 1e3
        print(
            f"\n{title}: median {middle:.1f} ms, largest {most:.1f} ms; {over} of {len(times)} over {bar * 1e3:.0f} ms"
        )
    return int(any(row[2] > COLD or row[3] > WARM for row in slowest))


if __name__ == "__main__":
    sys.exit(main())
