"""Collectives without end."""

from __future__ import annotations

from datetime import timedelta

import rushlight as torch
import rushlight.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
small, large = torch.ones(100), torch.ones(500_000)
while True:
    dist.all_reduce(small)
    work = dist.all_reduce(large, async_op=True)
    dist.broadcast(small, src=0)
    work.wait()
    dist.barrier()
