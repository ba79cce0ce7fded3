"""Train the small GPT with its parameters, gradients and optimiser state shared out over processes.

rushlight launch -n 2 examples/fsdp_gpt.py --steps 100 --batch 16 --save out/gpt
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
import rushlight.nn.functional as F
from rushlight import memory, nn
from rushlight.distributed import checkpoint
from rushlight.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from rushlight.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="of all processes together")
    parser.add_argument("--save", help="a folder for a checkpoint that any number of ranks reads")
    parser.add_argument("--load", help="such a folder")
    parser.add_argument("--short", action="store_true", help="a small model and a few steps")
    options = parser.parse_args()
    dist.init_process_group("auto")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    text = Text(TEXT)
    small = {"context": 16, "layers": 2, "width": 32} if options.short else {}
    model = GPT(len(text.characters), **small)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE / 10)
    if options.load:
        states = get_state_dict(model, optimizer)
        checkpoint.load({"model": states[0], "optimizer": states[1]}, checkpoint_id=options.load)
        set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1])
    rng = np.random.default_rng(1)  # the same batch everywhere; each process takes its rows
    rows, steps = options.batch // size, 10 if options.short else options.steps
    losses, start = [], time.perf_counter()
    for step in range(steps):
        batch = draw_batch(text.training, rng, options.batch, model.context, "cpu")
        indices, following = (part[rank * rows : (rank + 1) * rows] for part in batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(indices).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        if rank == 0 and (step % 10 == 9 or step + 1 == steps):
            print(f"step {step + 1:4d}  loss {losses[-1]:.4f}")
    if options.save:
        states = get_state_dict(model, optimizer)
        checkpoint.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=options.save)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    bits = b"".join(value.contiguous().numpy().tobytes() for value in whole.values())
    own = sum(p.to_local().numel() for p in model.parameters())
    every = sum(p.numel() for p in model.parameters())
    if rank == 0:
        took = (time.perf_counter() - start) / steps
        print(f"{size} processes, {took * 1e3:.1f} ms a step, peak {memory.peak() >> 10} KiB")
        print(f"rank 0 keeps {own} of {every} elements; loss {losses[0]:.4f} to {losses[-1]:.4f}")
        print(f"parameters {hashlib.sha256(bits).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
