"""Numbers of whole tensors of which each rank has a part, without the wholes on every rank.

# Note [Measures of wholes]
1. A number of a whole tensor (a norm) has the bits of one process, whatever the number of ranks: it
   is computed from the whole, not put together from parts.
2. The tensors are dealt out: the n-th is put together on rank n of its group (modulo its size),
   which computes the number and gives it to all. So each rank gets 1/W of all elements, and holds
   one whole at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributed.collectives import all_gather_into_tensor, all_to_all
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.placements import Shard, piece
from rushlight.ops.create.creation import empty
from rushlight.ops.view.views import cat, stack
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

Each = Callable[[Tensor], Tensor]


def measured(tensors: Sequence[Any], each: Each) -> list[Tensor]:
    """`each` of every whole tensor, on all ranks. See Note [Measures of wholes]."""
    found: dict[int, Tensor] = {}
    dealt: dict[Any, list[int]] = {}
    for n, tensor in enumerate(tensors):
        dim = _sharded_dim(tensor._layout)
        if dim is None:
            found[n] = each(tensor.full_tensor().detach())
        else:
            group = tensor._layout.mesh.get_group(dim)
            dealt.setdefault((group, tensor.dtype, tensor.device), []).append(n)
    for (group, _, _), numbers in dealt.items():
        made = _measured_in_turn([tensors[n] for n in numbers], each, group)
        found.update(zip(numbers, made, strict=True))
    return [found[n] for n in range(len(tensors))]


def _sharded_dim(layout: Layout) -> int | None:
    """The only dimension of the mesh that shares the tensor out, if nothing is partial."""
    cut = [n for n, placement in enumerate(layout.placements) if not placement.is_replicate()]
    return cut[0] if len(cut) == 1 and isinstance(layout.placements[cut[0]], Shard) else None


@no_grad()
def _measured_in_turn(tensors: Sequence[Any], each: Each, group: ProcessGroup) -> list[Tensor]:
    size = group.size()
    mine: list[Tensor] = []
    for first in range(0, len(tensors), size):
        turn = tensors[first : first + size]
        whole = _exchanged(turn, group)
        if whole is not None:
            mine.append(each(whole))
        del whole
    turns = -(-len(tensors) // size)
    like = mine[0] if mine else each(tensors[0]._local_tensor.new_zeros(1))
    sent = stack([*mine, *[like] * (turns - len(mine))])
    rows = empty(size * turns, dtype=sent.dtype, device=sent.device)
    all_gather_into_tensor(rows, sent, group)
    return [rows[n % size * turns + n // size] for n in range(len(tensors))]


def _exchanged(turn: Sequence[Any], group: ProcessGroup) -> Tensor | None:
    """Each rank's whole tensor of a turn, by an exchange of parts; None where it has none."""
    size, rank = group.size(), group.rank()
    parts = [tensor._local_tensor.detach().reshape(-1) for tensor in turn]
    nothing = parts[0].new_empty(0)
    sent = [parts[n] if n < len(parts) else nothing for n in range(size)]
    if rank >= len(turn):
        all_to_all([nothing] * size, sent, group)
        return None
    layout: Layout = turn[rank]._layout
    dim = next(p.dim for p in layout.placements if isinstance(p, Shard))
    shapes = []
    for n in range(size):
        length = piece(layout.shape[dim], size, n).length
        shapes.append((*layout.shape[:dim], length, *layout.shape[dim + 1 :]))
    rows = [parts[0].new_empty(shape) for shape in shapes]
    all_to_all(rows, sent, group)
    joined: Tensor = cat(rows, dim)
    return joined
