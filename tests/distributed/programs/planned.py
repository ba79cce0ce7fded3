"""What `plan` says of every rank against what a run counts there: bytes sent, kept and held."""

from __future__ import annotations

import gc
import itertools

import rushlight as torch
import rushlight.distributed as dist
from rushlight import memory, nn
from rushlight.distributed import arenas, planning

arenas.HALF = 0  # a plan is of hosts that share no memory
dist.init_process_group()
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 301)
        self.layers = nn.ModuleList(nn.Linear(301, 301) for _ in range(3))
        self.norm = nn.BatchNorm1d(301)
        self.last = nn.Linear(301, 7)

    def forward(self, x):
        x = self.first(x).relu()
        for layer in self.layers:
            x = layer(x).relu()
        return self.last(self.norm(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 40)
        layer = nn.TransformerEncoderLayer(40, 4, 150, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(40, 50, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def perceptron(strategy):
    return trained(strategy, Net(), torch.zeros(8, 16))


def transformer(strategy):
    return trained(strategy, Transformer(), torch.zeros(8, 12, dtype=torch.int64))


def trained(strategy, model, x):
    model = strategy(model)
    optimizer = strategy.optimizer(torch.optim.AdamW, model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


for name, build in itertools.product(planning.STRATEGIES, (perceptron, transformer)):
    found = dist.plan(build, world_size=SIZE, strategy=name, rank=RANK)
    dist.barrier()  # the first makes its tensor
    dist.traffic(reset=True)
    before = memory.allocated("cpu")
    step = build(planning.Strategy(name, SIZE))
    setup = dist.traffic(reset=True)
    assert found.setup.get("broadcast") == setup.get("broadcast"), (found.setup, setup)
    step()
    dist.traffic(reset=True)
    memory.reset_peak("cpu")
    step()
    counted = dist.traffic()
    assert found.traffic == counted, (name, RANK, found.traffic, counted)
    peak = memory.peak("cpu") - before
    dist.barrier()  # the thread of asynchronous calls has let go of the last
    gc.collect()
    kept = memory.allocated("cpu") - before
    assert found.kept == kept, (name, RANK, found.kept, kept)
    assert abs(found.peak - peak) <= 0.001 * peak, (name, RANK, build, found.peak, peak)
    print(name, SIZE, found.sent)
    del step
    gc.collect()
link = None if SIZE == 1 else dist.measured_link(nbytes=1 << 16)
assert link is None or (link.bandwidth > 0 and link.latency > 0)
