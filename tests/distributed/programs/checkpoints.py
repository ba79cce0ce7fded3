"""Save, load and replace a checkpoint; a grid of ranks; sums in the background."""

from __future__ import annotations

import shutil
import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed import checkpoint
from rushlight.distributed.checkpoint import folders
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.utils.data import DistributedSampler


def _refuse(*_):
    raise OSError("no room")


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


class App:
    """A state of a program's own."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"x": torch.full((3,), self.value), "n": self.value}

    def load_state_dict(self, state):
        self.value = state["n"] + state["x"].sum().item()


layer = torch.nn.Linear(2, 2)
weight = layer.weight.detach().clone()
writer = checkpoint.FileSystemWriter(f"{folder}/../stateful")
checkpoint.save({"app": App(2.0), "layer": layer}, storage_writer=writer)
app = App(0.0)
with torch.no_grad():
    layer.weight.zero_()
checkpoint.load(
    {"app": app, "layer": layer}, storage_reader=checkpoint.FileSystemReader(writer.path)
)
dist.barrier()
if RANK == 0:
    shutil.rmtree(writer.path)
    assert app.value == 8.0 and torch.equal(layer.weight, weight)

given = folders.save_file
for guilty in (1, 0):  # all ranks learn what went wrong on one, and what was saved stays
    folders.save_file = _refuse if guilty == RANK else given
    try:
        checkpoint.save({**state, "step": 9}, checkpoint_id=folder)
    except torch.RushlightError as error:
        assert f"rank {guilty}: OSError('no room')" in str(error), error
    else:
        raise AssertionError("a checkpoint that one rank did not write")
folders.save_file = given
shutil.rmtree(f"{folder}.unfinished", ignore_errors=True)

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
