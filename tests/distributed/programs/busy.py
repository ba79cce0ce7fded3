"""Collectives without end, or steps of training with checkpoints: `busy.py training FOLDER`."""

from __future__ import annotations

import sys
from datetime import timedelta

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP, checkpoint


def collectives():
    small, large = torch.ones(100), torch.ones(500_000)
    while True:
        dist.all_reduce(small)
        work = dist.all_reduce(large, async_op=True)
        dist.broadcast(small, src=0)
        work.wait()
        dist.barrier()


def training(folder):
    model = DDP(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)), bucket_cap_mb=0.01
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        checkpoint.async_save({"model": model.module.state_dict()}, checkpoint_id=folder).wait()


dist.init_process_group("gloo", timeout=timedelta(seconds=30))
training(sys.argv[2]) if sys.argv[1:2] == ["training"] else collectives()
