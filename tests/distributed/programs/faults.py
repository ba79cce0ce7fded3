"""One rank fails in a way that is named; the others tell what they raised, and when."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import rushlight as torch
import rushlight.distributed as dist

how = sys.argv[1]
if how == "missing" and os.environ["RANK"] == "1":
    sys.exit(0)
seconds = {"hangs": 3, "stops": 3, "missing": 3}.get(how, 60)
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
except dist.DistributedError as error:
    print("raised", error.rank, error.collective, "|", error)
    sys.exit(3)
RANK, SIZE = dist.get_rank(), dist.get_world_size()
x = torch.ones(1000)
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
            dist.all_reduce(torch.ones(1000, dtype=torch.float64))
        if how == "order":
            dist.broadcast(x, src=0)
    dist.all_reduce(x)
    dist.all_reduce(x)
except dist.DistributedError as error:
    print("raised", error.rank, error.collective, "|", error)
    try:
        dist.barrier()
    except dist.DistributedError as again:
        assert again is error  # the group is broken
    print("after", time.monotonic() - began < seconds + 20)
    sys.exit(3)
