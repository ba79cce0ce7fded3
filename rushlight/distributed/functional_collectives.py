"""Collectives that give new tensors, by PyTorch's `_functional_collectives` names.

Results are there when a call returns, so `wait_tensor` gives its operand. All have gradients (Note
[Gradients of collectives]).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.nn import functional
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.reducing import ReduceOp
from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor


class AsyncCollectiveTensor(Tensor):
    """A result that is to come; no result is one."""


def _group(group: Any) -> ProcessGroup:
    """A group, a mesh of one dimension, or a mesh and a dimension."""
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    return resolved(group)


def _op(name: Any) -> ReduceOp:
    return name if isinstance(name, ReduceOp) else ReduceOp(str(name).lower())


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there."""
    return tensor


def all_reduce(self: Tensor, reduceOp: Any, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks combined.

    Args:
        self (Tensor): This rank's.
        reduceOp (str): "sum", "avg", "max" and so on.
        group: The ranks.
        tag (str): Has no effect.
    """
    return functional.all_reduce(self, _op(reduceOp), _group(group))


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """One rank's tensor.

    Args:
        self (Tensor): This rank's.
        src (int): The rank.
        group: The ranks.
        tag (str): Has no effect.
    """
    return functional.broadcast(self, src, _group(group))


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, one after another along a dimension.

    Args:
        self (Tensor): This rank's.
        gather_dim (int): The dimension.
        group: The ranks.
        tag (str): Has no effect.
    """
    return cat(functional.all_gather(self, _group(group)), gather_dim)


def reduce_scatter_tensor(
    self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = ""
) -> Tensor:
    """This rank's piece, along a dimension, of all ranks' tensors combined.

    Args:
        self (Tensor): This rank's.
        reduceOp (str): "sum", "avg", "max" and so on.
        scatter_dim (int): The dimension.
        group: The ranks.
        tag (str): Has no effect.
    """
    pg = _group(group)
    length = self.shape[scatter_dim]
    if length % pg.size():
        raise ShapeError(
            f"reduce_scatter_tensor: dimension {scatter_dim} of {list(self.shape)} has no "
            f"{pg.size()} equal pieces"
        )
    pieces = self.split(length // pg.size(), scatter_dim)
    target = pieces[pg.rank()].detach().clone()
    return functional.reduce_scatter(target, pieces, _op(reduceOp), pg)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Tensor:
    """The n-th piece of the rows goes to rank n.

    Args:
        self (Tensor): The rows.
        output_split_sizes (sequence): Rows of each piece that comes; equal ones without it.
        input_split_sizes (sequence): Rows of each piece that goes; equal ones without it.
        group: The ranks.
        tag (str): Has no effect.
    """
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    target = self.detach().new_empty((rows, *self.shape[1:]))
    return functional.all_to_all_single(
        target, self, output_split_sizes, input_split_sizes, _group(group)
    )


all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single


def all_reduce_coalesced(
    self: Sequence[Tensor], reduceOp: Any, group: Any, tag: str = ""
) -> list[Tensor]:
    """`all_reduce` of several tensors.

    Args:
        self (sequence): This rank's.
        reduceOp (str): "sum", "avg", "max" and so on.
        group: The ranks.
        tag (str): Has no effect.
    """
    pg = _group(group)
    return [all_reduce(one, reduceOp, pg) for one in self]
