"""Steps inside and outside of a budget in turn, in one process: the table of results/memory_gpu.md.

python benchmarks/memory_gpu_steps.py cuda|webgpu [100,75,50]

The models are those of `memory_gpu.py`. Each share has `ROUNDS` rounds of steps inside, after some
that the record learns from, and of as many outside. "host" is the time until the last launch.
"together" is the ratio where the host waits for the device once after all steps of a round,
"driver" the blocks taken and given back in a step, "reserved" what the driver holds at the end, of
the limit (elsewhere than on cuda: the blocks).
"""

from __future__ import annotations

import statistics
import sys
import time

import memory_gpu

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

ROUNDS, LEARNED, TIMED = 5, 9, 8


def timed(step, wait):
    began = time.perf_counter()
    step()
    host = time.perf_counter() - began
    wait()
    return time.perf_counter() - began, host


def run(step, wait):
    """The time of a step, of several with one wait after them."""
    began = time.perf_counter()
    for _ in range(TIMED):
        step()
    wait()
    return (time.perf_counter() - began) / TIMED


def row(name, device, share, step, optimizer, base, whole):
    pool, free, held, runs = pool_of(device), [], [], ([], [])
    limit = base + whole * share // 100
    wait, budget = pool.device.synchronize, rl.memory.budget(limit, device)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        with budget:
            for _ in range(LEARNED):
                step()
            held += [timed(step, wait) for _ in range(TIMED)]
            runs[1].append(run(step, wait))
            again = rl.memory.recomputed()["calls"]
            with memory_gpu.Calls(pool.device) as calls:
                step()
            again = rl.memory.recomputed()["calls"] - again
            given = getattr(getattr(pool.device, "memory", None), "reserved", lambda: pool.held)()
        optimizer.zero_grad()
        step()
        free += [timed(step, wait) for _ in range(TIMED)]
        runs[0].append(run(step, wait))
    columns = []
    for pick, of in ((min, 0), (statistics.median, 0), (min, 1)):
        a, b = (pick([1e3 * times[of] for times in some]) for some in (free, held))
        columns += [f"{a:.2f} -> {b:.2f}", f"{b / a:.2f}"]
    together = min(runs[1]) / min(runs[0])
    print(
        f"| {name} | {device} | {share} % | {' | '.join(columns[:5])} | {together:.2f} | {again} | "
        f"{calls} | {given / limit:.2f} |",
        flush=True,
    )


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
    names = "model, device, budget, least ms, ratio, median ms, ratio, host ms, together, again"
    names += ", driver, reserved"
    print(f"| {names.replace(', ', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for share in (sys.argv[2:] or ["100,50,35"])[0].split(","):
        try:
            row(name, device, int(share), step, optimizer, base, whole)
        except rl.BudgetError as error:
            optimizer.zero_grad()
            needs = (error.required_bytes - base) / 1e6
            print(f"| {name} | {device} | {share} % | fails: needs {needs:.0f} MB | | | | | | |")


if __name__ == "__main__":
    main()
