"""Collectives and data parallel steps against PyTorch's gloo, in several processes of this machine.

python benchmarks/distributed.py --peer /opt/peer/bin/python

Each measurement starts its processes anew, one thread each, ours and the peer's in turn. Times are
medians over calls; of the rounds the least is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
    else:
        shards = {"shards": int(what.partition("=")[2])} if "=" in what else {}
        found["step"] = step_seconds(torch, dist, DDP, shards)
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


def step_seconds(torch, dist, wrap, options: dict[str, int]) -> float:
    """A step of the demo's GPT, 16 rows over all processes."""
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

    nn = torch.nn

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT(80)

        def forward(self, inputs, targets):
            return self.model.loss(inputs, targets)

    torch.manual_seed(1)
    model = Loss()
    wrapped = wrap(model, **options)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    rows = 16 // dist.get_world_size()
    x = torch.randint(0, 80, (rows, model.model.context))
    times = []
    for _ in range(15):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        wrapped(x, x).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[5:])


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
    for count in (2, 4):
        for what in ("all_reduce", "step", "step shards=8"):
            if what != "all_reduce" and count != 2:
                continue
            ours: list[dict[str, float]] = []
            theirs: list[dict[str, float]] = []
            for _ in range(options.rounds):
                port += 2
                ours.append(measured(sys.executable, "rushlight", what, count, port))
                peer = what.partition(" ")[0]
                theirs.append(measured(options.peer, "gloo", peer, count, port + 1))
            for name in ours[0]:
                mine, peer_time = (min(one[name] for one in each) for each in (ours, theirs))
                print(
                    f"{count} processes  {what:<14} {name:<7} {mine * 1e3:9.3f} ms  gloo "
                    f"{peer_time * 1e3:9.3f} ms  {mine / peer_time:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
