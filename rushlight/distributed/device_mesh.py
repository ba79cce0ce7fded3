"""Ranks as a grid: a group of ranks along each dimension."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import int64
from rushlight.distributed.collectives import NonMember
from rushlight.distributed.joining import get_rank, new_group
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.ops.create.creation import arange
from rushlight.tensor import Tensor, as_tensor


class DeviceMesh:
    """Ranks in a grid; every rank of the world makes it.

    Args:
        device_type (str): "cpu" or "cuda".
        mesh (Tensor): The ranks, in the shape of the grid.
        mesh_dim_names (sequence): A name for each dimension.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: Any = None, _groups: Any = None
    ) -> None:
        self.device_type = device_type
        self.mesh: Tensor = as_tensor(mesh, dtype=int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.dim():
            raise ValueError(
                f"DeviceMesh: {len(self.mesh_dim_names)} names for {self.mesh.dim()} dimensions"
            )
        self._groups: list[Any] = self._made() if _groups is None else _groups

    def _made(self) -> list[Any]:
        """This rank's group along each dimension."""
        mine: list[Any] = []
        rank = get_rank()
        for dim in range(self.mesh.dim()):
            rows = self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
            made = [(row, new_group(row)) for row in rows]
            own = [group for row, group in made if rank in row]
            mine.append(own[0] if own else NonMember())
        return mine

    def _dim(self, dim: int | str | None) -> int:
        if dim is None:
            if self.ndim != 1:
                raise RuntimeError("DeviceMesh: name a dimension of a mesh that has several")
            return 0
        if isinstance(dim, str):
            if self.mesh_dim_names is None or dim not in self.mesh_dim_names:
                raise KeyError(f"DeviceMesh: {dim!r} is none of {self.mesh_dim_names}")
            return self.mesh_dim_names.index(dim)
        return dim % self.ndim

    @property
    def ndim(self) -> int:
        """How many dimensions the grid has."""
        return self.mesh.dim()

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks along each dimension."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """Ranks along a dimension; all without one."""
        return self.mesh.numel() if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank's row along a dimension."""
        return resolved(self._groups[self._dim(mesh_dim)])

    def get_all_groups(self) -> list[Any]:
        """The groups along all dimensions."""
        return list(self._groups)

    def get_rank(self) -> int:
        """This process's rank in the world."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's place along a dimension."""
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError("DeviceMesh: this rank is not in the mesh")
        return place[self._dim(mesh_dim)]

    def get_coordinate(self) -> list[int] | None:
        """This process's place in the grid; None outside of it."""
        found = (self.mesh == get_rank()).nonzero().tolist()
        return [int(n) for n in found[0]] if found else None

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the grid along some dimensions in which this rank is."""
        chosen = [self._dim(name) for name in ([names] if isinstance(names, str) else names)]
        place = self.get_coordinate() or [0] * self.ndim
        index = tuple(slice(None) if n in chosen else place[n] for n in range(self.ndim))
        kept = sorted(chosen)
        part = self.mesh[index].permute([kept.index(n) for n in chosen])
        known = self.mesh_dim_names or ()
        return DeviceMesh(
            self.device_type,
            part,
            mesh_dim_names=[known[n] for n in chosen],
            _groups=[self._groups[n] for n in chosen],
        )

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def init_device_mesh(
    device_type: str, mesh_shape: Any, *, mesh_dim_names: Any = None
) -> DeviceMesh:
    """A grid of all ranks, in their order.

    Args:
        device_type (str): "cpu" or "cuda".
        mesh_shape (sequence): Ranks along each dimension.
        mesh_dim_names (sequence): A name for each dimension.
    """
    shape = tuple(mesh_shape)
    if math.prod(shape) != resolved().size():
        raise RuntimeError(
            f"init_device_mesh: a grid {list(shape)} of {resolved().size()} processes"
        )
    mesh: Any = arange(math.prod(shape))
    return DeviceMesh(device_type, mesh.view(shape), mesh_dim_names=mesh_dim_names)
