"""One rank fails in a way that is named; the others tell what they raised, and when."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta

import rushlight as torch
import rushlight.distributed as dist

how = sys.argv[1]
if how == "early" and os.environ["RANK"] == "1":
    sys.exit(1)
if how == "missing" and os.environ["RANK"] == "1":
    sys.exit(0)
seconds = {"hangs": 3, "stops": 3, "missing": 3}.get(how, 60)
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
except dist.DistributedError as error:
    print("raised", error.rank, error.collective, "|", error)
    sys.exit(3)
RANK, SIZE = dist.get_rank(), dist.get_world_size()
x = torch.ones(int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
dist.all_reduce(x)
began = time.monotonic()
if how == "sleeps":
    time.sleep(3600)
try:
    if RANK == 1:
        if how == "raises":
            raise KeyError("a fault of the program")
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            sys.exit(0)
        if how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "hangs":
            time.sleep(3600)
        if how == "shape":
            dist.all_reduce(torch.ones(3))
        if how == "dtype":
            dist.all_reduce(torch.ones(x.numel(), dtype=torch.float64))
        if how == "order":
            dist.broadcast(x, src=0)
    if how == "raises_inside":
        rows = [x.clone() for _ in range(SIZE)]
        try:
            with torch.memory.budget(torch.memory.allocated() + (1000 if RANK == 1 else 1 << 30)):
                dist.all_gather(rows, x)
        except torch.BudgetError:
            time.sleep(3)
    if how.startswith("short"):  # messages whose sizes do not follow from the call's arguments
        part = x[:-1].clone() if RANK == 1 else x
        if how == "short_gather":
            dist.gather(part, [x.clone() for _ in range(SIZE)] if RANK == 0 else None, dst=0)
        if how == "short_scatter":
            rows = [part.clone() if n == 0 else x.clone() for n in range(SIZE)]
            dist.scatter(x, rows if RANK == 1 else None, src=1)
        if how == "short_all_to_all":
            rows = [x if n == RANK else part for n in range(SIZE)]
            dist.all_to_all([x.clone() for _ in range(SIZE)], rows)
        if how == "short_recv":
            dist.send(part, 0) if RANK == 1 else dist.recv(x, 1)
    mine = x.int() if RANK == 1 else x  # of as many bytes
    if how == "all_gather":
        dist.all_gather([mine.clone() for _ in range(SIZE)], mine)
    if how == "gather":
        dist.gather(mine, [mine.clone() for _ in range(SIZE)] if RANK == 0 else None, dst=0)
    if how == "all_to_all_single":
        dist.all_to_all_single(mine.clone(), mine)
    if how == "reduce_scatter":
        op = dist.ReduceOp.MAX if RANK == 1 else dist.ReduceOp.SUM
        dist.reduce_scatter(x, [x.clone() for _ in range(SIZE)], op)
    if how == "interrupted":
        whole = torch.empty(SIZE, x.numel())
        if RANK == 1:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                dist.all_gather_into_tensor(whole, x)
            except KeyboardInterrupt:
                time.sleep(0.1)
        else:
            time.sleep(2)
        for _ in range(4):
            dist.all_gather_into_tensor(whole, x)
    dist.all_reduce(x)
    dist.all_reduce(x)
except dist.DistributedError as error:
    print("raised", error.rank, error.collective, "|", error)
    try:
        dist.barrier()
    except dist.DistributedError as again:
        assert again is error  # the group is broken
        trace, depth = again.__traceback__, 0
        while trace is not None:
            trace, depth = trace.tb_next, depth + 1
        assert depth < 8  # of this call, without those before it
    print("after", time.monotonic() - began < seconds + 20)
    sys.exit(3)
