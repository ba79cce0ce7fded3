"""DTensors: parts, redistribution and gradients, compared with the whole tensor on every rank."""

from __future__ import annotations

import itertools

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def meshes():
    yield init_device_mesh("cpu", (SIZE,), mesh_dim_names=("all",))
    if SIZE == 4:
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))


def placements(mesh):
    return itertools.product((Replicate(), Shard(0), Shard(1)), repeat=mesh.ndim)


def redistribution():
    whole = torch.arange(35.0).view(5, 7)
    for mesh in meshes():
        for source, to in itertools.product(placements(mesh), repeat=2):
            x = distribute_tensor(whole, mesh, source).requires_grad_()
            assert x.shape == (5, 7) and x.placements == source and x.is_leaf
            y = x.redistribute(placements=to)
            assert y.placements == to
            assert torch.equal(y.full_tensor(), whole), (source, to)
            weight = torch.arange(35.0).view(5, 7) + 1
            (y.full_tensor() * weight).sum().backward()
            assert x.grad.placements == source
            assert torch.equal(x.grad.full_tensor(), weight), (source, to)


def partial():
    for mesh in meshes():
        for to in placements(mesh):
            local = (torch.arange(35.0).view(5, 7) * (RANK + 1)).requires_grad_()
            x = DTensor.from_local(local, mesh, [Partial()] * mesh.ndim)
            whole = torch.arange(35.0).view(5, 7) * sum(range(1, SIZE + 1))
            y = x.redistribute(placements=to)
            assert torch.equal(y.full_tensor(), whole)
            (y.full_tensor() * 2).sum().backward()
            assert torch.equal(local.grad, torch.full((5, 7), 2.0))
        mean = DTensor.from_local(torch.full((2,), float(RANK)), mesh, [Partial("avg")] * mesh.ndim)
        assert mean.full_tensor().tolist() == [(SIZE - 1) / 2] * 2
        top = DTensor.from_local(torch.full((2,), float(RANK)), mesh, [Partial("max")] * mesh.ndim)
        assert top.full_tensor().tolist() == [SIZE - 1.0] * 2


redistribution()
partial()
if RANK == 0:
    print("done")
