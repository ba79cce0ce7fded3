"""Ranks as a grid: a group of ranks along each dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rushlight.core.dtypes import int64
from rushlight.distributed.collectives import NonMember
from rushlight.distributed.joining import get_rank, init_process_group, new_group
from rushlight.distributed.process_groups import ProcessGroup, default_group, resolved
from rushlight.tensor import Tensor, tensor


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
        # Ranks are numbers of the host: a tensor on a stand-in reads as zeros.
        self._grid = np.array(mesh.tolist() if isinstance(mesh, Tensor) else mesh, np.int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self._grid.ndim:
            raise ValueError(
                f"DeviceMesh: {len(self.mesh_dim_names)} names for {self._grid.ndim} dimensions"
            )
        self.shape: tuple[int, ...] = self._grid.shape  # ranks along each dimension
        self.ndim = len(self.shape)
        self._ranks: tuple[int, ...] = tuple(self._grid.reshape(-1).tolist())
        self._parts: dict[tuple[int, ...], DeviceMesh] = {}
        self._whole: tuple[DeviceMesh, tuple[int, ...]] = (self, tuple(range(self.ndim)))
        if default_group() is None and not _groups:  # as PyTorch does
            init_process_group("nccl" if device_type == "cuda" else "auto")
        world = default_group()
        self._world = -1 if world is None else world.world.serial
        self._place = self._coordinate()
        self._groups: list[Any] = self._made() if _groups is None else _groups

    @property
    def mesh(self) -> Tensor:
        """The ranks, in the shape of the grid."""
        return tensor(self._grid.tolist(), dtype=int64)

    def _coordinate(self) -> list[int] | None:
        if get_rank() not in self._ranks:
            return None
        at, found = self._ranks.index(get_rank()), []
        for size in reversed(self.shape):
            at, place = divmod(at, size)
            found.append(place)
        return found[::-1]

    @classmethod
    def from_group(
        cls,
        group: Any,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Any = None,
    ) -> DeviceMesh:
        """A grid of groups that exist: one group, or one for each dimension of `mesh`.

        Args:
            group (ProcessGroup): The group, or a list of one for each dimension.
            device_type (str): "cpu" or "cuda".
            mesh (Tensor): The ranks, where there are several groups.
            mesh_dim_names (sequence): A name for each dimension.
        """
        if isinstance(group, (list, tuple)):
            if mesh is None:
                raise ValueError("DeviceMesh.from_group: several groups need `mesh`")
            groups, ranks = [resolved(one) for one in group], mesh
        else:
            groups, ranks = [resolved(group)], resolved(group).ranks
        return cls(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=groups)

    def _made(self) -> list[Any]:
        """This rank's group along each dimension."""
        mine: list[Any] = []
        rank = get_rank()
        for dim in range(self.ndim):
            rows = np.moveaxis(self._grid, dim, -1).reshape(-1, self.shape[dim]).tolist()
            made = [(row, new_group(row, sort_ranks=False)) for row in rows]
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

    def size(self, mesh_dim: int | None = None) -> int:
        """Ranks along a dimension; all without one."""
        return len(self._ranks) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def numel(self) -> int:
        """How many ranks there are."""
        return len(self._ranks)

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
        return None if self._place is None else list(self._place)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the grid along some dimensions in which this rank is."""
        chosen = tuple([self._dim(name) for name in ([names] if isinstance(names, str) else names)])
        if chosen == tuple(range(self.ndim)):
            return self
        if chosen not in self._parts:
            self._parts[chosen] = self._part(chosen)
        return self._parts[chosen]

    def _part(self, chosen: tuple[int, ...]) -> DeviceMesh:
        place = self.get_coordinate() or [0] * self.ndim
        index = tuple(slice(None) if n in chosen else place[n] for n in range(self.ndim))
        kept = sorted(chosen)
        part = self._grid[index].transpose([kept.index(n) for n in chosen])
        known = self.mesh_dim_names
        made = DeviceMesh(
            self.device_type,
            part,
            mesh_dim_names=None if known is None else [known[n] for n in chosen],
            _groups=[self._groups[n] for n in chosen],
        )
        whole, dims = self._whole
        made._whole = whole, tuple([dims[n] for n in chosen])
        return made

    def joined(self, other: DeviceMesh) -> DeviceMesh:
        """This part of a grid and another one's dimensions after it, as one part."""
        whole, dims = self._whole
        same, more = other._whole
        if whole is not same or set(dims) & set(more):
            raise ValueError(
                f"DeviceMesh: {self} and {other} are not two parts of one mesh, as mesh['tp'] and "
                "mesh['dp'] are"
            )
        chosen = (*dims, *more)
        if chosen not in whole._parts:
            whole._parts[chosen] = whole._part(chosen)
        return whole._parts[chosen]

    def _key(self) -> Any:
        # What is kept by meshes must not pass from a planned world to this one.
        return self.device_type, self._ranks, self.shape, self.mesh_dim_names, self._world

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._grid.tolist()}{names})"


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
    if default_group() is None:
        init_process_group("nccl" if device_type == "cuda" else "auto")
    if math.prod(shape) != resolved().size():
        raise RuntimeError(
            f"init_device_mesh: a grid {list(shape)} of {resolved().size()} processes"
        )
    mesh = np.arange(math.prod(shape)).reshape(shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
