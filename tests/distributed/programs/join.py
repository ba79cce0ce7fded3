"""Join, add up, leave."""

from __future__ import annotations

import sys

import rushlight as torch
import rushlight.distributed as dist

method = sys.argv[1] if len(sys.argv) > 1 else None
given = {"rank": int(sys.argv[2]), "world_size": 2} if len(sys.argv) > 2 else {}
dist.init_process_group("gloo", method, **given)
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
# One write: mpiexec passes on what it reads, and `print` writes the line break by itself.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item()}\n")
