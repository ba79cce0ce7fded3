"""The speed table: Rushlight against PyTorch in the same run, two threads each.

python benchmarks/run.py [name ...]      prints a Markdown table; exit code 1 if a bar is missed
"""

from __future__ import annotations

import os
import sys

# PyTorch's oneDNN uses AMX where the CPU lists it, and crashes where the system does not allow it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("RUSHLIGHT_THREADS", "2")

import torch
import workloads as w
from compare import HOW, Row, block, compare, show_time, table

import rushlight as rl
from rushlight import memory

torch.set_num_threads(int(os.environ["RUSHLIGHT_THREADS"]))

PAIRS = {
    "a + b, 8 floats": (w.small_add, 0.6, 100),
    "chain of 100 ops, forward and backward, per op": (w.chain, 0.6, 100),
    "the same, every op reading the leaf again": (w.leaf_chain, float("inf"), 100),
    "add, 2^20": (w.add_large, 1.0, 1),
    "exp, 2^20": (w.exp_large, 1.0, 1),
    "softmax 1024x1024, forward and backward": (w.softmax, 1.0, 1),
    "layer_norm 1024x1024, forward and backward": (w.layer_norm, 1.0, 1),
    "matmul 1024": (w.matmul, 1.1, 1),
    "MLP 784-256-10 step, batch 32, Adam": (w.mlp_step, 0.8, 1),
    "demo GPT step, batch 16, AdamW": (lambda lib: w.gpt_step(lib)[0], 1.0, 1),
}
BUDGET = "demo GPT step at half of its activation peak"


def budget_row() -> Row:
    """The GPT step inside half of its activation memory, against itself without a limit."""
    step, _ = w.gpt_step(rl)
    for _ in range(2):
        step()
    persistent = memory.allocated()
    memory.reset_peak()
    step()
    limit = persistent + (memory.peak() - persistent) // 2
    memory.empty_cache()
    free, bound = [], []
    for _ in range(6):
        free.append(block(step, 3))
        memory.empty_cache()
        with memory.budget(limit):
            step()
            bound.append(block(step, 3))
    return Row(BUDGET, min(bound), min(free), 1.4)


def main() -> int:
    wanted = sys.argv[1:]
    rows = []
    for name, (make, bar, units) in PAIRS.items():
        if not wanted or any(part in name for part in wanted):
            rows.append(compare(name, make(rl), make(torch), bar, units))
            print(f"{name}: {rows[-1].ratio:.2f}", file=sys.stderr)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s) each, {HOW}")
    print()
    print(table(rows, "PyTorch"))
    if not wanted or any(part in BUDGET for part in wanted):
        rows.append(bound := budget_row())
        times = f"{show_time(bound.ours)}, {show_time(bound.theirs)} without a limit"
        print(f"\n{BUDGET}: {times}: {bound.ratio:.2f} times as long (bar {bound.bar})")
    return 0 if all(r.reached for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
