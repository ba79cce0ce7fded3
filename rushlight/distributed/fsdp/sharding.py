"""How one tensor is shared out: a consecutive part of one dimension on each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.placements import piece
from rushlight.nn.parameter import Parameter
from rushlight.ops.create.creation import empty
from rushlight.tape.record.state import Changed
from rushlight.tensor import Tensor

# Copies for and after communication: not recorded, not cast, no inference tensors.
QUIET: dict[str, Any] = {"grad": False, "inference": False, "autocast": None, "saving": None}


def room(count: int, like: Tensor, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory of the pool that a budget counts and does not drop."""
    made: Tensor = empty(
        count, dtype=dtype or like.dtype, device=like.device if device is None else device
    )
    if count:
        made.data_ptr()
    return made


class Sharding(NamedTuple):
    """Who has which part of a tensor. Parts are cut as `torch.chunk` cuts: the last are shorter.

    Args:
        group (ProcessGroup): The ranks.
        dim (int): The dimension that is cut.
        shape (tuple): Of the whole tensor.
    """

    group: ProcessGroup
    dim: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many ranks share the tensor."""
        return self.group.size()

    @property
    def rank(self) -> int:
        """This rank's place among them."""
        return self.group.rank()

    def span(self, rank: int) -> tuple[int, int]:
        """Where a rank's part begins along the dimension, and its length."""
        return piece(self.shape[self.dim], self.size, rank)

    def part_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
        made = list(self.shape)
        made[self.dim] = self.span(rank)[1]
        return tuple(made)

    def part(self, whole: Tensor, rank: int | None = None) -> Tensor:
        """A rank's part of a whole tensor, in its memory."""
        return whole.narrow(self.dim, *self.span(self.rank if rank is None else rank))

    @property
    def room(self) -> int:
        """Elements of the largest part: what each rank sends."""
        return math.prod(self.part_shape(0))

    @property
    def is_even(self) -> bool:
        """Whether the parts, one after another, are the whole tensor."""
        return self.dim == 0 and self.shape[0] % self.size == 0

    def join(self, target: Tensor, rows: Tensor) -> None:
        """Fill a whole tensor from every rank's part: a row for each, padded to `room`."""
        if not target.numel():
            return
        if self.is_even:
            target.view(self.size, self.room).copy_(rows)
            return
        for rank in range(self.size):
            shape = self.part_shape(rank)
            if math.prod(shape):
                self.part(target, rank).copy_(rows[rank, : math.prod(shape)].view(shape))

    def split(self, rows: Tensor, whole: Tensor) -> None:
        """Fill a row for each rank from a whole tensor; padding is 0."""
        if not self.room:
            return
        if self.is_even:
            rows.copy_(whole.reshape(self.size, self.room))
            return
        for rank in range(self.size):
            part = self.part(whole, rank)
            if part.numel():
                rows[rank, : part.numel()].copy_(part.reshape(-1))
            if part.numel() < self.room:
                rows[rank, part.numel() :].zero_()


def local(value: Any) -> Tensor:
    """This rank's part of a DTensor, or the tensor itself, without its record."""
    part = value._local_tensor if isinstance(value, DTensor) else value
    made: Tensor = Tensor.detach(part)
    return made


def sharded_parameter(
    whole: Tensor, sharding: Sharding, layout: Layout, on_host: bool, learns: bool
) -> Any:
    """This rank's part of a whole parameter, in memory of its own: a Parameter, and a DTensor."""
    with Changed(**QUIET):
        part = sharding.part(whole.detach()).clone()
        part = part.cpu() if on_host else part
    return Parameter(wrap(part, layout), learns)


def is_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two sequences have the same objects and numbers, pairwise."""
    return len(a) == len(b) and all(x[0] is y[0] and x[1] == y[1] for x, y in zip(a, b))  # noqa: B905
