"""Train with a checkpoint after each step; rank 1 kills itself in the first start, if asked to."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP, checkpoint

folder, dies = Path(sys.argv[1]), sys.argv[2] == "dies"
dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
model = DDP(net, shards=4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
random = torch.get_rng_state()
state = {"net": net.state_dict(), "random": random, "step": 0}
if folder.exists():
    checkpoint.load(state, checkpoint_id=folder)
    torch.set_rng_state(state["random"])
first = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) == 0
while state["step"] < 4:
    drawn = torch.Generator().manual_seed(state["step"])
    x = torch.randn(8, 4, generator=drawn)
    rows = 8 // SIZE
    optimizer.zero_grad()
    model(x[RANK * rows : (RANK + 1) * rows]).square().mean().backward()
    if dies and first and RANK == 1 and state["step"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    state = {"net": net.state_dict(), "random": torch.get_rng_state(), "step": state["step"] + 1}
    checkpoint.save(state, checkpoint_id=folder)
bits = b"".join(value.numpy(force=True).tobytes() for value in net.state_dict().values())
if RANK == 0:
    print("first" if first else "again", hashlib.sha256(bits).hexdigest())
