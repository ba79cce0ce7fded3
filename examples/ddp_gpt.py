"""Train the small GPT in several processes; with --shards the bits do not depend on their number.

rushlight launch -n 2 examples/ddp_gpt.py --steps 100 --batch 16 --shards 8
"""

from __future__ import annotations

import argparse
import hashlib
import time

import numpy as np
from gpt import GPT
from train_gpt import LEARNING_RATE, TEXT, Text, draw_batch

import rushlight as torch
import rushlight.distributed as dist
from rushlight import Tensor, nn
from rushlight.distributed import DDP


class Loss(nn.Module):
    """The model and its loss: what a process computes of its part of the batch."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(inputs, targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="of all processes together")
    parser.add_argument("--shards", type=int, help="logical shards of a batch")
    options = parser.parse_args()
    dist.init_process_group("auto")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    text = Text(TEXT)
    model = GPT(len(text.characters))
    wrapped = DDP(Loss(model), shards=options.shards)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=LEARNING_RATE / 10)
    rng = np.random.default_rng(1)  # the same batch everywhere; each process takes its rows
    rows = options.batch // size
    start = time.perf_counter()
    for step in range(options.steps):
        batch = draw_batch(text.training, rng, options.batch, model.context, "cpu")
        optimizer.zero_grad()
        loss = wrapped(*(part[rank * rows : (rank + 1) * rows] for part in batch))
        loss.backward()
        optimizer.step()
        if step % 10 == 9 or step + 1 == options.steps:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step + 1:4d}  loss {mean.item():.4f}")
    bits = b"".join(value.numpy(force=True).tobytes() for value in model.state_dict().values())
    if rank == 0:
        took = (time.perf_counter() - start) / options.steps
        print(f"{size} processes, {took * 1e3:.1f} ms a step")
        print(f"parameters {hashlib.sha256(bits).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
