"""PyTorch's `torch.distributed.tensor`: the class of tensors spread over devices."""

from __future__ import annotations

from rushlight.tensor import Tensor


class DTensor(Tensor):
    """The class of such tensors in PyTorch; nothing here is an instance of it."""


class Placement:
    """Where the parts of such a tensor lie."""


class Shard(Placement):
    """Split along a dimension."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class Replicate(Placement):
    """A copy on each device."""


class Partial(Placement):
    """A term of a sum on each device."""
