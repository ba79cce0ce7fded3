"""A PyTorch program as its users write it; nothing in it names Rushlight."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    model = DDP(model, device_ids=[local_rank] if device != "cpu" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = last = 0.0
    for epoch in range(6):
        sampler.set_epoch(epoch)
        total = torch.zeros(1, device=device)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        last = total.item() / (len(loader) * dist.get_world_size())
        first = first or last
    dist.barrier()
    if rank == 0:
        print(f"loss {first:.4f} {last:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
