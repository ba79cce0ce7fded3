"""Save, load and replace a checkpoint; a grid of ranks; sums in the background."""

from __future__ import annotations

import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed import checkpoint
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.utils.data import DistributedSampler

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
folder = sys.argv[1]
model = {"w": torch.arange(15.0).view(5, 3), "b": torch.ones(2)}
state = {"model": model, "step": 7, "lr": [0.5]}
checkpoint.save({**state, "step": 1}, checkpoint_id=folder)
checkpoint.save(state, checkpoint_id=folder)
got = {"model": {name: torch.zeros_like(t) for name, t in model.items()}, "step": 0, "lr": [0.0]}
checkpoint.load(got, checkpoint_id=folder)
assert got["step"] == 7 and torch.equal(got["model"]["w"], model["w"])
future = checkpoint.async_save({**state, "step": 8}, checkpoint_id=f"{folder}/../later")
model["b"].zero_()  # the copy was made before
x = torch.ones(10)
dist.all_reduce(x)
future.wait()

sampler = DistributedSampler(range(8), shuffle=False)
assert list(sampler) == list(range(RANK, 8, SIZE))
grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
assert grid.get_coordinate() == [RANK // 2, RANK % 2] and grid.size() == 4 and grid.size(1) == 2
assert grid["model"].mesh.tolist() == [RANK // 2 * 2, RANK // 2 * 2 + 1]
assert grid.get_local_rank("model") == RANK % 2
y = torch.tensor([float(RANK)])
dist.all_reduce(y, group=grid.get_group("data"))
assert y.item() == RANK % 2 * 2 + 2
z = torch.tensor([float(RANK)])
dist.all_reduce(z, group=grid["model"].get_group())
assert z.item() == RANK // 2 * 4 + 1
