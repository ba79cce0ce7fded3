"""Five steps of three models in eight shards; rank 0 prints digests of all that training changed.

`shards.py save FILE` stops after two steps and saves; `shards.py load FILE` goes on from there. Any
other word is the device.
"""

from __future__ import annotations

import hashlib
import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
SHARDS, ROWS = 8, 24


class GPT(nn.Module):
    """A small decoder with tied weights; forward gives the logits and the loss."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(17, 16), nn.Embedding(8, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 17, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(8, 8).tril() == 0)

    def forward(self, x, y):
        made = self.embed(x) + self.place(torch.arange(8))
        logits = self.head(self.block(made, src_mask=self.mask))
        return logits, F.cross_entropy(logits.view(-1, 17), y.view(-1))


def perceptron():
    return nn.Sequential(
        *(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    )


def convolutions():
    return nn.Sequential(
        *(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 3)),
    )


def batch(name, step):
    drawn = torch.Generator().manual_seed(100 + step)
    if name == "gpt":
        return (
            torch.randint(0, 17, (ROWS, 8), generator=drawn),
            torch.randint(0, 17, (ROWS, 8), generator=drawn),
        )
    shape = (ROWS, 6) if name == "perceptron" else (ROWS, 2, 8, 8)
    return (
        torch.randn(*shape, generator=drawn),
        torch.randint(0, 3, (ROWS,), generator=drawn),
    )


def train(name, model, steps, state=None):
    wrapped = DDP(model, shards=SHARDS, bucket_cap_mb=0.001)
    chosen = torch.optim.AdamW if name == "gpt" else torch.optim.SGD
    options = {} if name == "gpt" else {"momentum": 0.9}
    optimizer = chosen(wrapped.parameters(), lr=0.05, **options)
    torch.manual_seed(5)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
    rows = ROWS // SIZE
    for step in steps:
        x, y = (one[RANK * rows : (RANK + 1) * rows] for one in batch(name, step))
        optimizer.zero_grad()
        loss = wrapped(x, y)[1] if name == "gpt" else F.cross_entropy(wrapped(x), y)
        loss.backward()
        optimizer.step()
    made = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return {**made, "random": torch.get_rng_state()}


word, path = (*sys.argv[1:], "", "")[:2]
if word in ("cuda", "webgpu"):
    torch.set_default_device(word)
kept = torch.load(path) if word == "load" else {}
for name, make in (("perceptron", perceptron), ("convolutions", convolutions), ("gpt", GPT)):
    torch.manual_seed(1)
    steps = range(2) if word == "save" else range(2, 5) if word == "load" else range(5)
    state = train(name, make(), steps, kept.get(name))
    if word == "save":
        kept[name] = state
    bits = b"".join(value.cpu().contiguous().numpy().tobytes() for value in state["model"].values())
    if RANK == 0:
        print(name, hashlib.sha256(bits).hexdigest())
if word == "save" and RANK == 0:
    torch.save(kept, path)
