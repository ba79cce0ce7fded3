"""Train the small GPT with each of its layers shared out over several processes.

rushlight launch -n 2 examples/tensor_parallel_gpt.py --steps 100
"""

from __future__ import annotations

import argparse
import copy
import time

import numpy as np
from gpt import GPT, Attention
from train_gpt import LEARNING_RATE, TEXT, Text, draw_batch

import rushlight as torch
import rushlight.distributed as dist
import rushlight.nn.functional as F
from rushlight import Tensor, nn
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
from rushlight.distributed.tensor import DTensor, Replicate, Shard
from rushlight.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)


class SplitAttention(nn.Module):
    """The attention of `gpt.py` with a layer each for queries, keys and values, of some heads."""

    def __init__(self, whole: Attention) -> None:
        super().__init__()
        self.size = whole.out.in_features // whole.heads
        self.query, self.key, self.value = (
            nn.Linear(whole.out.in_features, whole.out.in_features) for _ in range(3)
        )
        weights, biases = whole.qkv.weight.chunk(3), whole.qkv.bias.chunk(3)
        for layer, weight, bias in zip(self.layers(), weights, biases, strict=True):
            layer.load_state_dict({"weight": weight, "bias": bias})
        self.out, self.dropout = whole.out, whole.dropout

    def layers(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        return self.query, self.key, self.value

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.size).transpose(1, 2) for layer in self.layers()
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, -1)))


PLAN = {
    "token": RowwiseParallel(input_layouts=Replicate()),
    "blocks.*.attention.query": ColwiseParallel(),
    "blocks.*.attention.key": ColwiseParallel(),
    "blocks.*.attention.value": ColwiseParallel(),
    "blocks.*.attention.out": RowwiseParallel(),
    "blocks.*.network.0": ColwiseParallel(),
    "blocks.*.network.2": RowwiseParallel(),
    "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
}


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor], mesh: DeviceMesh | None) -> Tensor:
    """The mean loss; with a mesh, of logits whose characters lie on several ranks."""
    inputs, targets = batch
    logits, goal = model(inputs).flatten(0, 1), targets.flatten()
    if mesh is None:
        return F.cross_entropy(logits, goal)
    with loss_parallel():
        return F.cross_entropy(logits, DTensor.from_local(goal, mesh, [Replicate()]))


def train(
    model: nn.Module, text: Text, steps: int, rows: int, context: int, mesh: DeviceMesh | None
) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE / 10)
    rng = np.random.default_rng(1)
    torch.manual_seed(2)  # dropout draws alike on every rank
    losses = []
    for step in range(steps):
        batch = draw_batch(text.training, rng, rows, context, "cpu")
        optimizer.zero_grad()
        loss = loss_of(model, batch, mesh)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if mesh is not None and mesh.get_rank() == 0 and (step % 10 == 9 or step + 1 == steps):
            print(f"step {step + 1:4d}  loss {losses[-1]:.4f}")
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument(
        "--short", action="store_true", help="a few steps, compared with one process"
    )
    options = parser.parse_args()
    steps = 4 if options.short else options.steps
    dist.init_process_group("auto")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    torch.manual_seed(1)
    text = Text(TEXT)
    model = GPT(len(text.characters))
    for block in model.blocks:
        block.attention = SplitAttention(block.attention)
    whole = copy.deepcopy(model)
    parallelize_module(model, mesh["tp"], PLAN)
    start = time.perf_counter()
    losses = train(model, text, steps, options.batch, whole.context, mesh)
    took = (time.perf_counter() - start) / steps
    held = sum(
        p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in model.parameters()
    )
    if rank == 0:
        every = sum(p.numel() for p in whole.parameters())
        print(f"{size} processes, {took * 1e3:.1f} ms a step, {held} of {every} parameters on each")
    if options.short:
        apart = max(
            map(
                abs,
                np.subtract(losses, train(whole, text, steps, options.batch, whole.context, None)),
            )
        )
        if rank == 0:
            print(f"losses differ from those of one process by at most {apart:.1e}")


if __name__ == "__main__":
    main()
