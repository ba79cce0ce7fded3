"""Collectives and data parallel steps against PyTorch's gloo, in several processes of this machine.

python benchmarks/distributed.py --peer /opt/peer/bin/python

Each measurement starts its processes anew, one thread each, ours and the peer's in turn. Times are
medians over calls; of the rounds the least is taken. The cost of shards is measured inside of one
run, the kinds of steps in turn, by the least processor time of a step: against a step that
accumulates gradients of the same small batches (the same kernels), against a step of the whole
batch, and with one shard for each process, where kernels have the same sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = 16, 32, 64, 128
SIZES = {"4 KiB": (4096, 300), "1 MiB": (1 << 20, 60), "64 MiB": (64 << 20, 5)}


def worker(kind: str, what: str) -> None:
    """What a process measures; rank 0 prints it."""
    if kind == "gloo":
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP

        torch.set_num_threads(1)
    else:
        import rushlight as torch
        import rushlight.distributed as dist
        from rushlight.distributed import DDP
    dist.init_process_group("gloo")
    found = {}
    if what == "all_reduce":
        for name, (size, count) in SIZES.items():
            found[name] = all_reduce_seconds(torch, dist, size, count)
    elif what == "shards":
        found = shard_seconds(torch, dist, DDP)
    elif what == "rows":
        found = row_seconds(torch, DDP, shards=kind != "gloo")
    else:
        found["step"] = step_seconds(torch, dist, DDP)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.barrier()


def all_reduce_seconds(torch, dist, size: int, count: int) -> float:
    x = torch.ones(size // 4)
    times = []
    for _ in range(count + 3):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        times.append(time.perf_counter() - start)
        x.fill_(1.0)
    return statistics.median(times[3:])


def step_of(torch, wrap, rows: int, micro: int = 1, **options):
    """A training step of the demo's GPT on so many rows, in `micro` pieces."""
    if torch.__name__ == "torch":  # the model's file names rushlight
        sys.modules.update(
            {
                "rushlight": torch,
                "rushlight.nn": torch.nn,
                "rushlight.nn.functional": torch.nn.functional,
            }
        )
    sys.path.insert(0, str(ROOT / "examples"))
    from gpt import GPT

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT(80)

        def forward(self, inputs, targets):
            return self.model.loss(inputs, targets)

    torch.manual_seed(1)
    wrapped = wrap(Loss(), **options)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    pieces = torch.randint(0, 80, (rows, wrapped.module.model.context)).chunk(micro)

    def step() -> None:
        optimizer.zero_grad()
        with wrapped.no_sync() if micro > 1 else contextlib.nullcontext():
            for piece in pieces[:-1]:
                (wrapped(piece, piece) / micro).backward()
        (wrapped(pieces[-1], pieces[-1]) / micro).backward()
        optimizer.step()

    return step


def step_seconds(torch, dist, wrap) -> float:
    """A step of the demo's GPT, 16 rows over all processes."""
    step = step_of(torch, wrap, 16 // dist.get_world_size())
    times = []
    for _ in range(15):
        dist.barrier()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[5:])


def shard_seconds(torch, dist, wrap) -> dict[str, float]:
    """Processor seconds of a step with 8 shards, and of steps to compare it with."""
    size = dist.get_world_size()
    rows = 16 // size
    steps = {
        "one batch": step_of(torch, wrap, rows),
        "one shard each": step_of(torch, wrap, rows, shards=size),
        "8 small batches": step_of(torch, wrap, rows, 8 // size),
        "8 shards": step_of(torch, wrap, rows, shards=8),
    }
    found = dict.fromkeys(steps, float("inf"))
    for count in range(25):
        for name, step in steps.items():
            dist.barrier()
            start = time.process_time()
            step()
            if count > 4:
                found[name] = min(found[name], time.process_time() - start)
    return found


def row_seconds(torch, wrap, shards: bool) -> dict[str, float]:
    """Processor seconds of steps on more and more rows: one batch, 8 of an eighth, 8 shards."""
    found = {}
    for rows in ROWS:
        steps = {
            "one batch": step_of(torch, wrap, rows),
            "8 batches": step_of(torch, wrap, rows, 8),
        }
        if shards:
            steps["8 shards"] = step_of(torch, wrap, rows, shards=8)
        for count in range(12):
            for name, step in steps.items():
                start = time.process_time()
                step()
                taken = time.process_time() - start
                key = f"{rows} rows, {name}"
                if count > 2:
                    found[key] = min(found.get(key, taken), taken)
    return found


def measured(python: str, kind: str, what: str, count: int, port: int) -> dict[str, float]:
    running = []
    for rank in range(count):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RUSHLIGHT_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        words = [python, __file__, "--worker", kind, what]
        running.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    told = [process.communicate()[0] for process in running]
    return json.loads(told[0].strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default="/opt/peer/bin/python", help="a Python with PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    port = 29600
    for count, what in ((2, "all_reduce"), (4, "all_reduce"), (2, "step")):
        ours: list[dict[str, float]] = []
        theirs: list[dict[str, float]] = []
        for _ in range(options.rounds):
            port += 2
            ours.append(measured(sys.executable, "rushlight", what, count, port))
            theirs.append(measured(options.peer, "gloo", what, count, port + 1))
        for name in ours[0]:
            mine, peer_time = (min(one[name] for one in each) for each in (ours, theirs))
            print(
                f"{count} processes  {what:<11} {name:<7} {mine * 1e3:9.3f} ms  gloo "
                f"{peer_time * 1e3:9.3f} ms  {mine / peer_time:.2f}",
                flush=True,
            )
    for count in (1, 2):
        runs = [
            measured(sys.executable, "rushlight", "shards", count, port + 10 + n) for n in (0, 2)
        ]
        port += 10
        least = {name: min(run[name] for run in runs) for name in runs[0]}
        for name, other in (("one shard each", "one batch"), ("8 shards", "8 small batches"),
                            ("8 shards", "one batch")):  # fmt: skip
            print(
                f"{count} processes  {name:<14} {least[name] * 1e3:7.2f} ms  {other} "
                f"{least[other] * 1e3:7.2f} ms  {least[name] / least[other]:.2f}",
                flush=True,
            )
    ours = measured(sys.executable, "rushlight", "rows", 1, port + 20)
    theirs = measured(options.peer, "gloo", "rows", 1, port + 22)
    for rows in ROWS:
        for whose, times in (("rushlight", ours), ("PyTorch", theirs)):
            one = times[f"{rows} rows, one batch"]
            shown = [
                f"{name} {times[key] / one:.2f}"
                for name in ("8 batches", "8 shards")
                if (key := f"{rows} rows, {name}") in times
            ]
            print(f"{rows:4} rows  {whose:<9}  one batch {one * 1e3:7.2f} ms  {'  '.join(shown)}")


if __name__ == "__main__":
    main()
