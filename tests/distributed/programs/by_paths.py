"""Modules that libraries reach by path: a scaler of all ranks, counts, functions of parts."""

import rushlight as torch
from rushlight import distributed as dist, nn
from rushlight.compat.distributed import collective_utils
from rushlight.compat.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from rushlight.compat.distributed.tensor.debug import CommDebugMode
from rushlight.compat.distributed.tensor.experimental._func_map import local_map
from rushlight.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group()
rank = dist.get_rank()

layer = nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
scaler = ShardedGradScaler("cpu", init_scale=4.0)
before = layer.weight.item()
scaler.scale(layer(torch.ones(1, 1)).sum()).backward()
if rank == 1:
    layer.weight.grad.fill_(float("inf"))
scaler.step(optimizer)
scaler.update()
assert layer.weight.item() == before and scaler.get_scale() == 2.0  # skipped on all ranks

mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
whole = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
doubled = local_map(lambda x: 2 * x, [Shard(0)], ([Shard(0)],), device_mesh=mesh)(whole)
with CommDebugMode() as counts:
    found = doubled.full_tensor()
assert found.tolist() == [0, 2, 4, 6] and counts.get_total_counts() > 0, counts.get_comm_counts()
try:
    local_map(lambda x: x, [Replicate()], ([Replicate()],))(whole)
except ValueError as error:
    assert "redistribute_inputs" in str(error)
else:
    raise AssertionError
moved = local_map(lambda x: x + 1, [Replicate()], ([Replicate()],), redistribute_inputs=True)(whole)
assert moved.to_local().tolist() == [1, 2, 3, 4]

assert collective_utils.broadcast(lambda: rank + 5, rank=1) == 6
assert collective_utils.all_gather(rank) == [0, 1]
try:
    collective_utils.all_gather(lambda: 1 // rank)
except RuntimeError as error:
    assert "rank 0 failed" in str(error)
else:
    raise AssertionError
dist.destroy_process_group()
print("all is well")
