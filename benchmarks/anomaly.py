"""The cost of `detect_anomaly`: the time of a step with it over the time without, here and in
PyTorch.

    python benchmarks/anomaly.py [--device cpu] [--seconds 3]

Blocks with and without alternate. On the CPU this thread's processor time is measured, elsewhere
the clock's. PyTorch checks gradients for NaN; Rushlight checks every result, forward and backward,
for NaN and infinities.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import workloads

from rushlight.devices.shared.registry import pool_of

Work = Callable[[], object]
BAR = 1.3
BLOCKS = 24


def slowdown(lib: Any, work: Work, seconds: float, clock: Callable[[], float]) -> float:
    """The best block with the mode over the best block without."""
    work()
    with lib.autograd.detect_anomaly():
        work()
        work()
    start = time.perf_counter()
    work()
    calls = max(1, int(seconds / (2 * BLOCKS) / (time.perf_counter() - start)))
    best = {False: float("inf"), True: float("inf")}
    for number in range(2 * BLOCKS):
        on = bool(number % 2)
        with lib.autograd.set_detect_anomaly(on):
            start = clock()
            for _ in range(calls):
                work()
            best[on] = min(best[on], (clock() - start) / calls)
    return best[True] / best[False]


def steps(lib: Any, device: str) -> dict[str, Work]:
    found = {
        "100 ops on 8 floats": workloads.chain(lib, device),
        "GPT step": workloads.gpt_step(lib, device)[0],
    }
    return {"MLP step": workloads.mlp_step(lib), **found} if device == "cpu" else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    clock = time.thread_time if asked.device == "cpu" else time.perf_counter
    warnings.simplefilter("ignore")  # PyTorch warns that the mode is slow
    libraries = {"Rushlight": importlib.import_module("rushlight")}
    with contextlib.suppress(ImportError):
        libraries["PyTorch"] = importlib.import_module("torch")
    # One thread, so that its time is all of the time.
    pool_of("cpu").device.set_num_threads(1)  # type: ignore[attr-defined]
    if "PyTorch" in libraries:
        libraries["PyTorch"].set_num_threads(1)
    rows: dict[str, list[float]] = {}
    for lib in libraries.values():
        for name, work in steps(lib, asked.device).items():
            rows.setdefault(name, []).append(slowdown(lib, work, asked.seconds, clock))
    print(f"| with detect_anomaly over without | {' | '.join(libraries)} | bar |")
    print("|---" * (len(libraries) + 2) + "|")
    for name, factors in rows.items():
        print(f"| {name} | {' | '.join(f'{r:.2f}' for r in factors)} | {BAR} |")


if __name__ == "__main__":
    main()
