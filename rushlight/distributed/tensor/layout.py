"""Where the elements of a distributed tensor are: mesh, placements and the whole shape.

# Note [Layouts of shards]
1. A layout has one placement for each dimension of its mesh. Where several shard one dimension of
   the tensor, the first cuts it, the next one cuts the pieces, and so on.
2. n elements over k ranks are pieces of ceil(n / k), as `torch.chunk` cuts them: the last ones may
   be shorter, or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor.placements import (
    REPLICATE,
    Piece,
    Placement,
    Shard,
    _StridedShard,
    piece,
)

Placements = tuple[Placement, ...]


class Layout(NamedTuple):
    """Mesh, placements and the shape of the whole tensor."""

    mesh: DeviceMesh
    placements: Placements
    shape: Shape

    def pieces(self, coordinate: Sequence[int] | None = None) -> list[Piece]:
        """A rank's part of each dimension; this one's without a coordinate."""
        place = self.mesh.get_coordinate() if coordinate is None else coordinate
        if place is None:
            return [Piece(0, 0) for _ in self.shape]
        found = [Piece(0, size) for size in self.shape]
        for n, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                before = found[placement.dim]
                part = piece(before.length, self.mesh.shape[n], place[n])
                found[placement.dim] = Piece(before.start + part.start, part.length)
        return found

    @property
    def local_shape(self) -> Shape:
        """The shape of this rank's part."""
        return tuple([part.length for part in self.pieces()])

    def before(self, mesh_dim: int) -> Shape:
        """The shape of what is cut, or put together, along one dimension of the mesh."""
        kept = tuple(
            p if n < mesh_dim or not p.is_shard() else REPLICATE
            for n, p in enumerate(self.placements)
        )
        return self._replace(placements=kept).local_shape

    def with_placements(self, placements: Sequence[Placement]) -> Layout:
        """The same tensor, placed otherwise."""
        return self._replace(placements=tuple(placements))

    def replaced(self, mesh_dim: int, placement: Placement) -> Layout:
        """The same tensor, placed otherwise along one dimension of the mesh."""
        made = list(self.placements)
        made[mesh_dim] = placement
        return self._replace(placements=tuple(made))


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    skip_offset: bool = False,
) -> tuple[Shape, Shape]:
    """The shape of this rank's part, and where it begins in the whole tensor.

    Args:
        global_shape (sequence): Of the whole tensor.
        mesh (DeviceMesh): The ranks.
        placements (sequence): One for each dimension of the mesh.
        skip_offset (bool): Whether to leave the second result empty.
    """
    if mesh.get_coordinate() is None:
        return (0,), ()
    shape = tuple(global_shape)
    layout = Layout(mesh, normal("compute_local_shape", mesh, placements, len(shape)), shape)
    pieces = layout.pieces()
    starts = () if skip_offset else tuple([part.start for part in pieces])
    return tuple([part.length for part in pieces]), starts


def normal(name: str, mesh: DeviceMesh, placements: Any, rank: int) -> Placements:
    """Placements as given by a caller, checked; all replicated without them."""
    if placements is None:
        return (REPLICATE,) * mesh.ndim
    given = tuple(placements)
    if len(given) != mesh.ndim:
        raise ValueError(
            f"{name}: {len(given)} placements for a mesh of {mesh.ndim} dimensions: one for each"
        )
    return tuple(_checked(name, one, rank) for one in given)


def _checked(name: str, placement: Any, rank: int) -> Placement:
    if not isinstance(placement, Placement):
        raise TypeError(
            f"{name}: a placement is Shard(dim), Replicate() or Partial(), got {placement!r}"
        )
    if isinstance(placement, _StridedShard):
        raise NotImplementedError(
            f"{name}: {placement}: order the mesh's dimensions as they cut the tensor, with Shard"
        )
    if isinstance(placement, Shard):
        if not -rank <= placement.dim < rank:
            raise ShapeError(f"{name}: {placement} of a tensor of {rank} dimensions")
        return Shard(placement.dim % rank)
    return placement
