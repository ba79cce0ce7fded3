"""The gain of `backward(workers=2)` over `backward()` on independent branches, as a Markdown table.

python benchmarks/parallel.py [--threads N]      with PyTorch's backward where it is installed

The first line is the gain of two threads of plain hashing on this machine at this moment: 0.5 where
two cores are free. Each workload sums a few branches that share nothing but a leaf. Backward alone
is timed, on the clock, both ways in turn, and the least of several runs is shown; gradients must
have the same bits, or the program ends. `--threads` is the number of threads of one kernel (1 by
default, for PyTorch too): with as many as there are cores a large elementwise kernel fills the
machine by itself, and workers gain only on ops that run on one core, such as LAPACK's.
"""

from __future__ import annotations

import argparse
import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

try:
    import torch
except ModuleNotFoundError:
    torch = None

BRANCHES = 4
RUNS = 15
Branch = Callable[[Any, Any, int], Any]  # library, leaf, number


def elementwise(lib: Any, x: Any, number: int) -> Any:
    for _ in range(6):
        x = lib.sin(x) * 1.01 + lib.exp(-x * x)
    return x.sum()


def products(lib: Any, x: Any, number: int) -> Any:
    h = x
    for _ in range(4):
        h = lib.tanh(h @ x * 0.01)
    return h.sum()


def sums_along(lib: Any, x: Any, number: int) -> Any:
    for _ in range(4):
        x = lib.cumsum(x, 0) * 0.001
    return x.sum()


def inverses(lib: Any, x: Any, number: int) -> Any:
    return lib.linalg.inv(x @ x.t() + 50.0 * lib.eye(x.shape[0])).sum()


def small(lib: Any, x: Any, number: int) -> Any:
    for _ in range(40):
        x = lib.sin(x) * 1.01
    return x.sum()


WORKLOADS: list[tuple[str, Branch, tuple[int, ...]]] = [
    ("elementwise, 2^20 elements", elementwise, (1 << 20,)),
    ("elementwise, 2^17 elements", elementwise, (1 << 17,)),
    ("matmul, 512 x 512", products, (512, 512)),
    ("cumsum, one row of 2^20", sums_along, (1 << 20,)),
    ("inverse, 300 x 300", inverses, (300, 300)),
    ("elementwise, 1024 elements", small, (1024,)),
]


def backward_time(lib: Any, branch: Branch, x: Any, **options: Any) -> float:
    """Seconds of one backward, each after a new forward."""
    root = branch(lib, x * 1.0, 0)
    for number in range(1, BRANCHES):
        root = root + branch(lib, x * (1.0 + 0.1 * number), number)
    x.grad = None
    start = time.perf_counter()
    root.backward(**options)
    return time.perf_counter() - start


def free_cores() -> float:
    """Two digests by two threads, against one after the other."""
    content = bytes(1 << 25)

    def digest() -> None:
        hashlib.sha256(content).digest()

    together, after = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        digest()
        digest()
        middle = time.perf_counter()
        other = threading.Thread(target=digest)
        other.start()
        digest()
        other.join()
        after.append(middle - start)
        together.append(time.perf_counter() - middle)
    return min(together) / min(after)


def row(name: str, branch: Branch, shape: tuple[int, ...]) -> str:
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = rl.tensor(numbers, requires_grad=True)
    backward_time(rl, branch, x)
    alone = x.grad.numpy().tobytes()
    one, two, other = [], [], []
    theirs = None if torch is None else torch.tensor(numbers, requires_grad=True)
    for _ in range(RUNS):
        one.append(backward_time(rl, branch, x))
        two.append(backward_time(rl, branch, x, workers=2))
        assert x.grad.numpy().tobytes() == alone, name
        if theirs is not None:
            other.append(backward_time(torch, branch, theirs))
    peer = f"{min(other) * 1e3:.2f}" if other else "-"
    return (
        f"| {name} | {min(one) * 1e3:.2f} | {min(two) * 1e3:.2f} | {min(two) / min(one):.2f} | "
        f"{peer} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that one kernel may use")
    threads = parser.parse_args().threads
    pool_of("cpu").device.set_num_threads(threads)  # type: ignore[attr-defined]
    if torch is not None:
        torch.set_num_threads(threads)
    print(
        f"{BRANCHES} branches, {threads} thread(s) for a kernel; milliseconds of backward; two "
        f"plain threads: {free_cores():.2f}\n"
    )
    print("| branches of | workers=1 | workers=2 | two over one | PyTorch |\n|---|---|---|---|---|")
    for name, branch, shape in WORKLOADS:
        print(row(name, branch, shape), flush=True)


if __name__ == "__main__":
    main()
