"""Tensor parallel layers whose parts are shared out: 2 x 2 ranks against one process."""

from __future__ import annotations

import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import checkpoint
from rushlight.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from rushlight.distributed.tensor import DTensor, Replicate, Shard
from rushlight.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))  # joins the group, too
RANK, SIZE = dist.get_rank(), dist.get_world_size()
PLACE = mesh["dp"].get_local_rank()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def net():
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), nn.Linear(6, 3))


def spread(model, **options):
    for block in model[:2]:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"], **options)
    return fully_shard(model, mesh=mesh["dp"], **options)


def batch(step):
    drawn = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=drawn), torch.randn(8, 3, generator=drawn)


def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p


def near(got, wanted, tolerance=1e-5):
    assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), (RANK, got, wanted)


def step(model, optimizer, n, part, syncs=(True,)):
    optimizer.zero_grad()
    x, y = batch(n)
    if part:
        x, y = x[4 * PLACE : 4 * PLACE + 4], y[4 * PLACE : 4 * PLACE + 4]
    for last in syncs:
        if part:
            model.set_requires_gradient_sync(last)
        nn.functional.mse_loss(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return whole(norm)


plain, model = net(), spread(net())
up = model[0].up.weight
assert up.placements == (Shard(0), Shard(0)) and up.device_mesh.mesh_dim_names == ("tp", "dp")
assert model[0].norm.weight.placements == (Shard(0),) and up.shape == (10, 6)
assert model[0].down.weight.placements == (Shard(1), Shard(0))
assert model[0].down.bias.placements == (Replicate(), Shard(0))
assert up.to_local().shape == ((3, 6) if PLACE == 0 else (2, 6))  # 5 rows of this half
near(up.full_tensor(), plain[0].up.weight, 0)
one, many = (torch.optim.AdamW(m.parameters(), 0.02) for m in (plain, model))
for n in range(4):
    syncs = (False, True) if n == 2 else (True,)
    near(step(model, many, n, True, syncs), step(plain, one, n, False, syncs))
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        near(whole(p.grad), q.grad)
        near(whole(p), q)
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
for name, value in plain.state_dict().items():
    near(state[name], value)
checkpoint.save({"model": model.state_dict()}, checkpoint_id=sys.argv[1])
other = spread(net(), reshard_after_forward=False)
checkpoint.load({"model": other.state_dict()}, checkpoint_id=sys.argv[1])
for p, q in zip(other.parameters(), model.parameters(), strict=True):
    assert torch.equal(whole(p), whole(q))
half = spread(net(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
step(half, torch.optim.SGD(half.parameters(), 0.1), 0, True)
assert all(p.dtype is torch.float32 for p in half.parameters())
weight = model[0].down.weight
for fill in (nn.init.xavier_uniform_, nn.init.normal_, nn.init.orthogonal_):
    fill(weight)  # writes a leaf, as that of a plain parameter
    assert weight.requires_grad and weight.grad_fn is None
try:
    weight.normal_()
except torch.InplaceError:
    pass
else:
    raise AssertionError("a leaf was written to")
with torch.device("meta"):
    empty = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
fully_shard(empty, mesh=mesh["dp"]).to_empty(device="cpu")
for layer in empty:
    layer.reset_parameters()
assert 0.3 < float(empty[0].weight.full_tensor().std()) < 3
try:
    fully_shard(net()[0], mesh=mesh)
    block = parallelize_module(Block(), init_device_mesh("cpu", (4,)), {"up": ColwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
except ValueError as error:
    assert "not two parts of one mesh" in str(error)
else:
    raise AssertionError("meshes without a common one")
print("done", RANK, SIZE)
