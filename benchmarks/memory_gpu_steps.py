"""Steps inside and outside of a budget in turn, in one process: the table of results/memory_gpu.md.

python benchmarks/memory_gpu_steps.py cuda|webgpu [100,75,50]

The models are those of `memory_gpu.py`. Each share has `ROUNDS` rounds of steps inside, after some
that the record learns from, and of as many outside. "host" is the time until the last launch.
"""

from __future__ import annotations

import statistics
import sys
import time

import memory_gpu

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

ROUNDS, LEARNED, TIMED = 5, 7, 8


def timed(step, wait):
    began = time.perf_counter()
    step()
    host = time.perf_counter() - began
    wait()
    return time.perf_counter() - began, host


def row(name, device, share, step, optimizer, base, whole):
    pool, free, held = pool_of(device), [], []
    wait, budget = pool.device.synchronize, rl.memory.budget(base + whole * share // 100, device)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        with budget:
            for _ in range(LEARNED):
                step()
            held += [timed(step, wait) for _ in range(TIMED)]
            again = rl.memory.recomputed()["calls"]
            with memory_gpu.Calls(pool.device) as calls:
                step()
            again = rl.memory.recomputed()["calls"] - again
        optimizer.zero_grad()
        step()
        free += [timed(step, wait) for _ in range(TIMED)]
    columns = []
    for pick, of in ((min, 0), (statistics.median, 0), (min, 1)):
        a, b = (pick([1e3 * times[of] for times in some]) for some in (free, held))
        columns += [f"{a:.2f} -> {b:.2f}", f"{b / a:.2f}"]
    print(f"| {name} | {device} | {share} % | {' | '.join(columns[:5])} | {again} | {calls} |")


def main():
    device = sys.argv[1]
    name, sizes = memory_gpu.MODELS[device]
    step, _, optimizer = memory_gpu.build(rl, device, sizes)
    step()
    optimizer.zero_grad()
    base = rl.memory.allocated(device)
    rl.memory.reset_peak(device)
    step()
    step()
    whole = rl.memory.peak(device) - base
    names = "model, device, budget, least ms, ratio, median ms, ratio, host ms, again, driver"
    print(f"| {names.replace(', ', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for share in (sys.argv[2:] or ["100,50,35"])[0].split(","):
        try:
            row(name, device, int(share), step, optimizer, base, whole)
        except rl.BudgetError as error:
            optimizer.zero_grad()
            needs = (error.required_bytes - base) / 1e6
            print(f"| {name} | {device} | {share} % | fails: needs {needs:.0f} MB | | | | | | |")


if __name__ == "__main__":
    main()
