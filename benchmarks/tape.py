"""The cost of the tape: time per recorded op, bytes per record, the peak of a training step.

python benchmarks/tape.py [name ...]      prints Markdown tables; exit code 1 if a bar is missed

All against PyTorch. Peaks are live tensor bytes: Rushlight's by its allocator, PyTorch's by its
profiler's record of every allocation on the CPU, on top of what its tensors hold when the step
begins. Both begin without gradients.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import torch
import workloads as w
from compare import HOW, Row, compare, table

import rushlight as rl
from rushlight import memory

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))

TIMES = {
    "chain of 100 ops on 8 floats, forward and backward, per op": (w.chain, 0.6, 100),
    "MLP 784-256-10, batch 32, forward and backward": (w.mlp_gradients, 0.8, 1),
}
PEAKS: dict[str, Callable[[Any], w.Work]] = {
    "MLP 784-256-10 step, batch 32, Adam": w.mlp_step,
    "CNN step, 32 images of 3 x 32 x 32, momentum": w.cnn_step,
    "demo GPT step, batch 16, AdamW": lambda lib: w.gpt_step(lib)[0],
}
PEAK_BAR = 1.0
MILLION_BAR = 1e9

MILLION = """
import gc, resource, time
import rushlight as rl
gc.disable()
x, one = rl.ones(8, requires_grad=True), rl.ones(8)
y, marks = x, [time.thread_time()]
for _ in range(500_000):
    y = y * one
    y = rl.tanh(y)
marks.append(time.thread_time())
y.backward(one)
marks.append(time.thread_time())
del y
marks.append(time.thread_time())
# getrusage would begin with the parent's peak.
status = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
print(peak, *[b - a for a, b in zip(marks, marks[1:])])
"""


def our_peak(step: w.Work) -> int:
    for _ in range(2):
        step()
    gc.collect()
    memory.reset_peak()
    step()
    return memory.peak()


def their_peak(step: w.Work) -> int:
    for _ in range(2):
        step()
    gc.collect()
    held = _held_without_gradients()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = held
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def _held_without_gradients() -> int:
    """The bytes of all live tensors, after their gradients were dropped."""
    for t in _tensors():
        if t.is_leaf and t.requires_grad:
            t.grad = None
    del t
    gc.collect()
    storages = [t.untyped_storage() for t in _tensors()]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def _tensors() -> list[torch.Tensor]:
    return [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]


def peak_rows(wanted: Callable[[str], bool]) -> list[Row]:
    rows = []
    for name, make in PEAKS.items():
        if wanted(name):
            ours = our_peak(make(rl))
            gc.collect()
            rows.append(Row(name, ours, their_peak(make(torch)), PEAK_BAR))
            gc.collect()
    return rows


def peak_table(rows: list[Row]) -> str:
    lines = [
        "| peak of live tensor bytes | Rushlight | PyTorch | ratio | bar | |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        told = "ok" if r.reached else "over"
        lines.append(
            f"| {r.name} | {r.ours / 1e6:.2f} MB | {r.theirs / 1e6:.2f} MB | {r.ratio:.2f} | "
            f"{r.bar} | {told} |"
        )
    return "\n".join(lines)


RECORDS: dict[str, Callable[[Any, Any], Any]] = {
    "y + one (saves nothing)": lambda y, one: y + one,
    "-y (saves nothing)": lambda y, one: -y,
    "y * 0.5 (a number)": lambda y, one: y * 0.5,
    "y * one (saves an operand)": lambda y, one: y * one,
    "tanh(y) (saves its result)": lambda y, one: rl.tanh(y),
}


def bytes_of_a_record(link: Callable[[Any, Any], Any], count: int = 5000) -> float:
    """Python's memory per link of a chain, without the 64 bytes of elements that a save keeps."""
    x, one = rl.ones(8, requires_grad=True), rl.ones(8)
    link(x, one).backward(one)
    gc.collect()
    tracemalloc.start()
    before, y = tracemalloc.get_traced_memory()[0], x
    for _ in range(count):
        y = link(y, one)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / count


def records_table() -> str:
    lines = ["| record of | bytes |", "|---|---|"]
    lines += [f"| {name} | {bytes_of_a_record(link):.0f} |" for name, link in RECORDS.items()]
    return "\n".join(lines)


def million() -> tuple[bool, str]:
    """A chain of a million nodes in a process of its own: built, walked, destroyed."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION], capture_output=True, text=True, check=True
    )
    peak, build, walk, destroy = map(float, done.stdout.split())
    return peak < MILLION_BAR, (
        f"A chain of a million nodes: {peak / 1e6:.0f} MB for the whole process (bar "
        f"{MILLION_BAR / 1e6:.0f}); "
        f"built in {build:.2f} s, walked in {walk:.2f} s, destroyed in {destroy:.2f} s"
    )


def main() -> int:
    names = sys.argv[1:]

    def wanted(name: str) -> bool:
        return not names or any(part in name for part in names)

    times = []
    for name, (make, bar, units) in TIMES.items():
        if wanted(name):
            times.append(compare(name, make(rl), make(torch), bar, units))
    peaks = peak_rows(wanted)
    good = all(r.reached for r in (*times, *peaks))
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}\n")
    print(table(times, "PyTorch"), "\n")
    print(peak_table(peaks), "\n")
    if wanted("records"):
        print(records_table(), "\n")
    if wanted("million"):
        small, told = million()
        print(told)
        good = good and small
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
