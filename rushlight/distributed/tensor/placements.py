"""How a tensor lies on one dimension of a mesh: `Shard`, `Replicate`, `Partial`.

PyTorch's names. Placements are values: equal ones are interchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_SUMS = ("sum", "avg", "product", "min", "max")


class Piece(NamedTuple):
    """A part of a dimension."""

    start: int
    length: int


def piece(length: int, parts: int, index: int) -> Piece:
    """The part of one rank. See Note [Layouts of shards] 2."""
    step = -(-length // parts)
    start = min(length, index * step)
    return Piece(start, min(step, length - start))


class Placement:
    """How a tensor lies on one dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part of the dimension `dim`; of any, without one."""
        return False

    def is_replicate(self) -> bool:
        """Whether each rank has all elements."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the tensor is the ranks' tensors put together."""
        return False


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a consecutive part of one dimension, as `torch.chunk` cuts it.

    Args:
        dim (int): The dimension.
    """

    dim: int

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or self.dim == dim

    @staticmethod
    def local_shard_size_and_offset(
        curr_local_size: int, num_chunks: int, rank: int
    ) -> tuple[int, int]:
        """The length of a rank's part, and where it begins.

        Args:
            curr_local_size (int): Of the dimension that is cut.
            num_chunks (int): Into how many parts.
            rank (int): Whose part.
        """
        start, length = piece(curr_local_size, num_chunks, rank)
        return length, start


@dataclass(frozen=True)
class _StridedShard(Placement):
    """PyTorch's shard of pieces that a later dimension of the mesh cuts first.

    No layout takes it: the dimensions of a mesh are put into the order of the cuts instead.

    Args:
        dim (int): The dimension.
        split_factor (int): Into how many pieces it is cut first.
    """

    dim: int
    split_factor: int = 1

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or self.dim == dim


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has all elements."""

    def is_replicate(self) -> bool:
        return True


@dataclass(frozen=True)
class Partial(Placement):
    """The tensor is the sum of the ranks' tensors, or another reduction of them.

    Args:
        reduce_op (str): "sum", "avg", "product", "min" or "max".
    """

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op not in _SUMS:
            raise ValueError(f"Partial: reduce_op is one of {_SUMS}, got {self.reduce_op!r}")

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return reduce_op is None or self.reduce_op == reduce_op


REPLICATE = Replicate()
SUM = Partial()
