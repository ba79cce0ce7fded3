"""Collectives with gradients: the gradient of each is the collective that undoes it.

# Note [Gradients of collectives]
1. The ranks' programs are one function: its value is the sum of what all ranks differentiate. So
   the gradient of a tensor that came to several ranks is the sum of theirs.
2. Backward makes a collective too; all ranks run backward through it, in the same order.
3. The gradient of a sum goes to all that were added; that of an average is divided by their number.
   Other operations are refused when a gradient reaches them: which rank's element was the largest,
   or the product of the others, is not known where the gradient is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import NotDifferentiable, ShapeError
from rushlight.distributed import collectives
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.reducing import ReduceOp
from rushlight.tape.function import Function
from rushlight.tensor import Tensor

Tensors = tuple[Tensor, ...]
Move = Callable[..., Tensors]


class _Moved(Function):
    """A collective, and the one that moves its gradients. Both take and give several tensors."""

    @staticmethod
    def forward(ctx: Any, there: Move, back: Move, *given: Tensor) -> Any:
        ctx.there, ctx.back = there, back
        return there(*given)

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        made = _Moved.apply(ctx.back, ctx.there, *[one.contiguous() for one in g])
        return None, None, *made


def _moved(there: Move, back: Move, given: Sequence[Tensor]) -> Tensors:
    made: Tensors = _Moved.apply(there, back, *given)
    return made


def _undone(name: str, op: Any, of_sum: Move, of_average: Move) -> Move:
    """What moves the gradient of values combined by `op`: Note [Gradients of collectives] 3."""
    if op is ReduceOp.SUM or op is ReduceOp.AVG:
        return of_sum if op is ReduceOp.SUM else of_average

    def refuse(*g: Tensor) -> Tensors:
        raise NotDifferentiable(
            f"{name}(op=ReduceOp.{op.name}) has no derivative; those of SUM and AVG do. Detach the "
            "tensor, or all_gather it and combine the tensors of all ranks by an op of tensors"
        )

    return refuse


def _divided(move: Move, group: ProcessGroup) -> Move:
    def run(*given: Tensor) -> Tensors:
        return tuple([one.div_(group.size()) for one in move(*given)])

    return run


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all ranks combined, in a tensor of its own.

    Args:
        tensor (Tensor): This rank's.
        op (ReduceOp): How; SUM and AVG have a gradient.
        group (ProcessGroup): The ranks.
    """

    def combine(given: Tensor) -> Tensors:
        made = given.clone()
        collectives.all_reduce(made, op, group)
        return (made,)

    return _moved(combine, _undone("all_reduce", op, combine, combine), [tensor])[0]


def _send(group: ProcessGroup, root: int) -> Move:
    def run(given: Tensor) -> Tensors:
        made = given.clone()
        collectives.broadcast(made, group=group, group_src=root)
        return (made,)

    return run


def _collect(group: ProcessGroup, root: int, op: Any) -> Move:
    """The combined tensors on one rank; zeros on the others, which have no part of the value."""

    def run(given: Tensor) -> Tensors:
        made = given.clone()
        collectives.reduce(made, op=op, group=group, group_dst=root)
        return (made if group.rank() == root else made.zero_(),)

    return run


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """One rank's tensor, on all.

    Args:
        tensor (Tensor): On `src` what is sent; of its shape and dtype on the others.
        src (int): The rank.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    root = pg.index(src)
    return _moved(_send(pg, root), _collect(pg, root, ReduceOp.SUM), [tensor])[0]


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all ranks combined on one; zeros on the others.

    Args:
        tensor (Tensor): This rank's.
        dst (int): The rank.
        op (ReduceOp): How; SUM and AVG have a gradient.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    root = pg.index(dst)
    send = _send(pg, root)
    back = _undone("reduce", op, send, _divided(send, pg))
    return _moved(_collect(pg, root, op), back, [tensor])[0]


def _all_gathered(group: ProcessGroup) -> Move:
    def run(given: Tensor) -> Tensors:
        rows = [given.new_empty(given.shape) for _ in range(group.size())]
        collectives.all_gather(rows, given.contiguous(), group)
        return tuple(rows)

    return run


def _summed_pieces(group: ProcessGroup, op: Any) -> Move:
    def run(*given: Tensor) -> Tensors:
        made = given[group.rank()].new_empty(given[group.rank()].shape)
        collectives.reduce_scatter(made, [one.contiguous() for one in given], op, group)
        return (made,)

    return run


def all_gather(tensor: Tensor, group: Any = None) -> Tensors:
    """The tensors of all ranks, on all.

    Args:
        tensor (Tensor): This rank's; all have the same shape.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    return _moved(_all_gathered(pg), _summed_pieces(pg, ReduceOp.SUM), [tensor])


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The n-th tensors of all ranks combined on rank n.

    Args:
        output (Tensor): Gets the result; what is returned has the gradient.
        input_list (sequence): A tensor for each rank, of one shape.
        op (ReduceOp): How; SUM and AVG have a gradient.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    gather = _all_gathered(pg)
    back = _undone("reduce_scatter", op, gather, _divided(gather, pg))
    made = _moved(_summed_pieces(pg, op), back, input_list)[0]
    output.detach().copy_(made.detach())
    return made


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> Tensors:
    """The tensors of all ranks on one; zeros on the others.

    Args:
        tensor (Tensor): This rank's; all have the same shape.
        dst (int): The rank.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    root = pg.index(dst)
    return _moved(_to_one(pg, root), _from_one(pg, root), [tensor])


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The n-th tensor of one rank, on rank n.

    Args:
        tensors (sequence): On `src` what is sent; as many of their shapes on the others.
        src (int): The rank.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    root = pg.index(src)
    return _moved(_from_one(pg, root), _to_one(pg, root), tensors)[0]


def _to_one(group: ProcessGroup, root: int) -> Move:
    def run(given: Tensor) -> Tensors:
        rows = [given.new_zeros(given.shape) for _ in range(group.size())]
        kept = rows if group.rank() == root else None
        collectives.gather(given.contiguous(), kept, group=group, group_dst=root)
        return tuple(rows)

    return run


def _from_one(group: ProcessGroup, root: int) -> Move:
    def run(*given: Tensor) -> Tensors:
        mine = given[group.rank()]
        made = mine.new_empty(mine.shape)
        sent = [one.contiguous() for one in given] if group.rank() == root else None
        collectives.scatter(made, sent, group=group, group_src=root)
        return (made,)

    return run


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> Tensors:
    """The n-th tensor goes to rank n, and rank n's comes into the n-th.

    Args:
        output_tensor_list (sequence): Get the results; what is returned has the gradients.
        input_tensor_list (sequence): A tensor for each rank.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    shapes = [one.shape for one in input_tensor_list], [one.shape for one in output_tensor_list]
    made = _moved(_exchanged(pg, shapes[1]), _exchanged(pg, shapes[0]), input_tensor_list)
    for target, one in zip(output_tensor_list, made, strict=True):
        target.detach().copy_(one.detach())
    return made


def _exchanged(group: ProcessGroup, shapes: Sequence[Any]) -> Move:
    def run(*given: Tensor) -> Tensors:
        rows = [given[0].new_empty(shape) for shape in shapes]
        collectives.all_to_all(rows, [one.contiguous() for one in given], group)
        return tuple(rows)

    return run


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The n-th piece of the rows goes to rank n, and rank n's comes into the n-th.

    Args:
        output (Tensor): Gets the result; what is returned has the gradient.
        input (Tensor): The rows.
        output_split_sizes (sequence): Rows of each piece that comes; equal ones without it.
        input_split_sizes (sequence): Rows of each piece that goes; equal ones without it.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    sizes = list(output_split_sizes or []), list(input_split_sizes or [])
    shapes = output.shape, input.shape
    there = _rows_exchanged(pg, shapes[0], *sizes)
    back = _rows_exchanged(pg, shapes[1], *sizes[::-1])
    made = _moved(there, back, [input])[0]
    output.detach().copy_(made.detach())
    return made


def _rows_exchanged(
    group: ProcessGroup, shape: Any, comes: Sequence[int], goes: Sequence[int]
) -> Move:
    def run(given: Tensor) -> Tensors:
        made = given.new_empty(shape)
        collectives.all_to_all_single(
            made, given.contiguous(), list(comes) or None, list(goes) or None, group
        )
        return (made,)

    return run


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """The tensors of all ranks, one after another.

    Args:
        output_tensor (Tensor): Gets the result; what is returned has the gradient.
        input_tensor (Tensor): This rank's.
        group (ProcessGroup): The ranks.
    """
    pg = resolved(group)
    if output_tensor.numel() != input_tensor.numel() * pg.size():
        raise ShapeError(
            f"_all_gather_base: {list(input_tensor.shape)} of {pg.size()} ranks into "
            f"{list(output_tensor.shape)}"
        )

    def there(given: Tensor) -> Tensors:
        made = given.new_empty(output_tensor.shape)
        collectives.all_gather_into_tensor(made, given.contiguous(), pg)
        return (made,)

    def back(g: Tensor) -> Tensors:
        made = g.new_empty(input_tensor.shape)
        collectives.reduce_scatter_tensor(made, g.contiguous(), group=pg)
        return (made,)

    made = _moved(there, back, [input_tensor])[0]
    output_tensor.detach().copy_(made.detach())
    return made
