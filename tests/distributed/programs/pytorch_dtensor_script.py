"""A PyTorch program with DTensor, tensor parallel and a pipeline stage, as it is."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tensor import DTensor as OldDTensor
from torch.distributed._tensor.placement_types import Shard as OldShard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

assert OldDTensor is DTensor and OldShard is Shard
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
x = distribute_tensor(torch.arange(35.0).view(5, 7), mesh, [Shard(0)])
assert x.to_local().shape == ((5 + size - 1) // size if rank == 0 else 5 // size, 7)
assert x.shape == (5, 7) and x.stride() == (7, 1)
for function, placements in (
    (lambda: x.sum(0), (Partial(),)),
    (lambda: torch.zeros_like(x), (Shard(0),)),
    (lambda: x.t(), (Shard(1),)),
    (lambda: x + 1, (Shard(0),)),
    (lambda: x.redistribute(placements=[Replicate()]) + torch.tensor(1.0), (Replicate(),)),
):
    assert function().placements == placements, (function().placements, placements)
assert isinstance(x.sum().item(), float) and type(nn.Parameter(x)) is DTensor
assert repr(x).startswith("DTensor(local_tensor=tensor(") and repr(Partial()) == "Partial(sum)"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
given = torch.randn(3, 8)
expected = model(given)
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
torch.testing.assert_close(model(given), expected)
stage = PipelineStage(nn.Linear(4, 4), rank, size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
losses = []
batch = torch.ones(4, 4)
if rank == 0:
    schedule.step(batch)
else:
    schedule.step(target=batch, losses=losses)
assert len(losses) == (2 if rank == size - 1 else 0)
assert all(p.grad is not None for p in stage.submod.parameters())
dist.destroy_process_group()
if rank == 0:
    print("done")
