"""Join by a store of the user's, add up, leave, and join again."""

from __future__ import annotations

import sys

import rushlight as torch
import rushlight.distributed as dist

kind, where, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = dist.TCPStore("127.0.0.1", int(where)) if kind == "tcp" else dist.FileStore(where, 2)
found = []
for _ in range(2):
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    found.append(x.item())
    dist.destroy_process_group()
sys.stdout.write(f"rank {rank} of 2: {found[0]} {found[1]}\n")
