"""The host's time of a GPT's training step inside and outside of a budget, without a GPU.

python benchmarks/memory_host.py [100,75,50]

The model is that of `memory_gpu.py` for cuda, on the device `meta` with launches that do nothing:
what is left is Python's time, which on a GPU is hidden behind its work, or is not. The numbers are
least times of a thread, in milliseconds, outside -> inside; "again" is calls run again in a step.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import memory_gpu

import rushlight as rl
from rushlight import bfloat16, float16, float32
from rushlight.devices.null import NullDevice

ROUNDS, LEARNED, TIMED = 4, 6, 6
PARTS = ("forward", "backward", "optimiser")


def stand_in() -> None:
    """Let launches do nothing, and kernels be chosen as on CUDA."""
    NullDevice.build = lambda self, kernel, tell=None: max
    halves = ((bfloat16, 256), (float16, 256), (float32, 256))
    NullDevice.limits = replace(
        NullDevice.limits, attends=halves, adds=(float16, bfloat16, float32)
    )


def timed(parts):
    times, now = [], time.thread_time
    for part in parts:
        began = now()
        part()
        times.append(1e3 * (now() - began))
    return times


def least(rows):
    return [min(column) for column in zip(*rows, strict=True)]


def main():
    stand_in()
    sizes = memory_gpu.MODELS["cuda"][1]
    parts, _, optimizer = memory_gpu.build_parts(rl, "meta", sizes)

    def step():
        for part in parts:
            part()

    step()
    optimizer.zero_grad()
    base = rl.memory.allocated("meta")
    rl.memory.reset_peak("meta")
    step()
    step()
    whole = rl.memory.peak("meta") - base
    print(f"| budget | {' | '.join(PARTS)} | ratio | again |")
    print("|---|---|---|---|---|---|")
    for share in map(int, (sys.argv[1:] or ["100,50,35"])[0].split(",")):
        free, held = [], []
        for _ in range(ROUNDS):
            optimizer.zero_grad()
            with rl.memory.budget(base + whole * share // 100, "meta"):
                for _ in range(LEARNED):
                    step()
                held += [timed(parts) for _ in range(TIMED)]
                again = rl.memory.recomputed()["calls"]
                step()
                again = rl.memory.recomputed()["calls"] - again
            optimizer.zero_grad()
            step()
            free += [timed(parts) for _ in range(TIMED)]
        outside, inside = least(free), least(held)
        columns = [f"{a:.2f} -> {b:.2f}" for a, b in zip(outside, inside, strict=True)]
        print(f"| {share} % | {' | '.join(columns)} | {sum(inside) / sum(outside):.2f} | {again} |")


if __name__ == "__main__":
    main()
