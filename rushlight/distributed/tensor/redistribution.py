"""From one placement to another: collectives on ranks' parts, each with its gradient.

# Note [Gradients of placements]
1. A distributed tensor's record is that of this rank's part. The gradient of a shard is the same
   shard of the gradient. The gradient of a replicated tensor, and of a partial one, is replicated.
2. So every move has a reverse that moves gradients: a gather and a cut, a sum and an identity, an
   exchange of shards and the exchange back. A reverse is a move itself and can be differentiated.
3. Where an op reads a replicated operand beside shards, each rank has a part of its gradient. The
   operand goes through `Enter` first: an identity whose reverse is a sum over ranks.
4. A move is a function on the tape whose forward never runs twice, so a budget or a checkpoint that
   rebuilds values repeats no collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Shape
from rushlight.distributed.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
)
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.placements import (
    REPLICATE,
    SUM,
    Partial,
    Placement,
    Shard,
    piece,
)
from rushlight.ops.view.views import cat
from rushlight.tape.function import Function
from rushlight.tape.record.state import no_grad


class Move(Protocol):
    """One collective, or none, on this rank's part."""

    def run(self, part: Any) -> Any:
        """The part after the move."""
        ...

    @property
    def reverse(self) -> Move:
        """How gradients go back. See Note [Gradients of placements] 2."""
        ...


@dataclass(frozen=True)
class Gather:
    """The shards of a dimension of `length` elements, put together."""

    group: ProcessGroup
    dim: int
    length: int

    def run(self, part: Any) -> Any:
        shapes = _shapes(part.shape, self.dim, self.length, self.group.size())
        rows = [part.new_empty(shape) for shape in shapes]
        all_gather(rows, part, self.group)
        return _joined(rows, self.dim)

    @property
    def reverse(self) -> Move:
        return Cut(self.group, self.dim, self.length)


@dataclass(frozen=True)
class Cut:
    """This rank's shard of a dimension."""

    group: ProcessGroup
    dim: int
    length: int

    def run(self, part: Any) -> Any:
        mine = piece(self.length, self.group.size(), self.group.rank())
        return part.narrow(self.dim, mine.start, mine.length).clone()

    @property
    def reverse(self) -> Move:
        return Gather(self.group, self.dim, self.length)


@dataclass(frozen=True)
class Sum:
    """The sum of all ranks' tensors."""

    group: ProcessGroup

    def run(self, part: Any) -> Any:
        total = part.clone()
        all_reduce(total, ReduceOp.SUM, self.group)
        return total

    @property
    def reverse(self) -> Move:
        return Enter(self.group)


@dataclass(frozen=True)
class Enter:
    """The same tensor; gradients are summed over ranks."""

    group: ProcessGroup

    def run(self, part: Any) -> Any:
        return part.view_as(part)

    @property
    def reverse(self) -> Move:
        return Sum(self.group)


@dataclass(frozen=True)
class Extreme:
    """The least, the largest or the product of all ranks' tensors: without a derivative."""

    group: ProcessGroup
    op: ReduceOp

    def run(self, part: Any) -> Any:
        made = part.clone()
        all_reduce(made, self.op, self.group)
        return made

    @property
    def reverse(self) -> Move:
        raise RushlightError(
            f"redistribute: Partial({self.op.value!r}) has no derivative; use .detach(), "
            "or redistribute before the reduction"
        )


@dataclass(frozen=True)
class SumOfShards:
    """This rank's shard of the sum of all ranks' tensors."""

    group: ProcessGroup
    dim: int
    length: int

    def run(self, part: Any) -> Any:
        shapes = _shapes(part.shape, self.dim, self.length, self.group.size())
        given = part.split([shape[self.dim] for shape in shapes], self.dim)
        made = part.new_empty(shapes[self.group.rank()])
        reduce_scatter(made, [one.contiguous() for one in given], ReduceOp.SUM, self.group)
        return made

    @property
    def reverse(self) -> Move:
        return Collect(self.group, self.dim, self.length)


@dataclass(frozen=True)
class Collect(Gather):
    """Shards put together for ranks that go on differently: as `Gather`, then `Enter`."""

    @property
    def reverse(self) -> Move:
        return SumOfShards(self.group, self.dim, self.length)


@dataclass(frozen=True)
class Exchange:
    """Shards of one dimension become shards of another."""

    group: ProcessGroup
    dim: int
    length: int
    to: int
    to_length: int

    def run(self, part: Any) -> Any:
        size = self.group.size()
        pieces = [piece(self.to_length, size, n) for n in range(size)]
        given = [part.narrow(self.to, p.start, p.length).contiguous() for p in pieces]
        mine = list(part.shape)
        mine[self.to] = pieces[self.group.rank()].length
        rows = [part.new_empty(shape) for shape in _shapes(mine, self.dim, self.length, size)]
        all_to_all(rows, given, self.group)
        return _joined(rows, self.dim)

    @property
    def reverse(self) -> Move:
        return Exchange(self.group, self.to, self.to_length, self.dim, self.length)


@dataclass(frozen=True)
class Once:
    """The tensor on the first rank, zeros on the others: their sum is the tensor."""

    group: ProcessGroup

    def run(self, part: Any) -> Any:
        return part.view_as(part) if self.group.rank() == 0 else part.new_zeros(part.shape)

    @property
    def reverse(self) -> Move:
        return Alike(self.group)


@dataclass(frozen=True)
class Alike:
    """The reverse of `Once`: the gradient is replicated and stays."""

    group: ProcessGroup

    def run(self, part: Any) -> Any:
        return part.view_as(part)

    @property
    def reverse(self) -> Move:
        return Once(self.group)


@dataclass(frozen=True)
class Share:
    """The tensor over the number of ranks: the sum of the ranks' shares is their average."""

    group: ProcessGroup

    def run(self, part: Any) -> Any:
        return part / self.group.size()

    @property
    def reverse(self) -> Move:
        return self


def _shapes(shape: Sequence[int], dim: int, length: int, parts: int) -> list[Shape]:
    """The shapes of all ranks' shards."""
    sizes = [piece(length, parts, n).length for n in range(parts)]
    return [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]


def _joined(rows: Sequence[Any], dim: int) -> Any:
    kept = [row for row in rows if row.shape[dim]] or rows[:1]
    return kept[0] if len(kept) == 1 else cat(kept, dim)


class _Moved(Function):
    """A move, recorded. See Note [Gradients of placements]."""

    @staticmethod
    def forward(ctx: Any, part: Any, move: Move) -> Any:
        ctx.move = move
        return move.run(part)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return moved(g.contiguous(), ctx.move.reverse), None


def moved(part: Any, move: Move) -> Any:
    """This rank's part after a move, recorded where a gradient is wanted."""
    if part.requires_grad:
        return _Moved.apply(part, move)
    with no_grad():
        return move.run(part)


def one_move(layout: Layout, mesh_dim: int, to: Placement) -> list[Move]:
    """The moves along one dimension of the mesh; no other one cuts the pieces further."""
    group = layout.mesh.get_group(mesh_dim)
    source = layout.placements[mesh_dim]
    shape = layout.before(mesh_dim)
    if source == to:
        return []
    if isinstance(source, Shard):
        gather = Gather(group, source.dim, shape[source.dim])
        if isinstance(to, Shard):
            return [Exchange(group, source.dim, shape[source.dim], to.dim, shape[to.dim])]
        return [gather] if to.is_replicate() else [gather, Once(group)]
    if isinstance(source, Partial):
        if source.reduce_op == "avg":
            return [Share(group), *_of_sum(layout, mesh_dim, to)]
        if source.reduce_op != "sum":
            rest = one_move(layout.replaced(mesh_dim, REPLICATE), mesh_dim, to)
            return [Extreme(group, ReduceOp(source.reduce_op)), *rest]
        if isinstance(to, Shard):
            return [SumOfShards(group, to.dim, shape[to.dim])]
        if to.is_replicate():
            return [Sum(group)]
        raise RushlightError(f"redistribute: from {source} to {to}")
    if isinstance(to, Shard):
        return [Cut(group, to.dim, shape[to.dim])]
    if to.is_partial("sum"):
        return [Once(group)]
    if to.is_partial("avg"):
        return []
    raise RushlightError(f"redistribute: from {source} to {to}")


def _of_sum(layout: Layout, mesh_dim: int, to: Placement) -> list[Move]:
    return one_move(layout.replaced(mesh_dim, SUM), mesh_dim, to)


def _is_nested(layout: Layout, wanted: Sequence[Placement]) -> bool:
    """Whether two dimensions of the mesh cut one of the tensor, before, after or meanwhile."""
    dims: list[set[int]] = []
    for source, to in zip(layout.placements, wanted, strict=True):
        dims.append({p.dim for p in (source, to) if isinstance(p, Shard)})
    return sum(map(len, dims)) > len(set().union(*dims))


def _stays(layout: Layout, wanted: Sequence[Placement], mesh_dim: int) -> bool:
    """Whether a shard stays, and nothing that it cuts changes."""
    mine = layout.placements[mesh_dim]
    if mine != wanted[mesh_dim] or not isinstance(mine, Shard):
        return False
    return not any(
        layout.placements[n] != wanted[n]
        and (layout.placements[n].is_shard(mine.dim) or wanted[n].is_shard(mine.dim))
        for n in range(mesh_dim)
    )


def redistributed(part: Any, layout: Layout, placements: Sequence[Placement]) -> Any:
    """This rank's part under other placements. See Note [Layouts of shards] 1."""
    wanted = tuple(placements)
    if layout.placements == wanted:
        return part
    if _is_nested(layout, wanted):  # the last cuts are undone first
        for n in reversed(range(len(wanted))):
            if layout.placements[n].is_shard() and not _stays(layout, wanted, n):
                for move in one_move(layout, n, REPLICATE):
                    part = moved(part, move)
                layout = layout.replaced(n, REPLICATE)
    for n, to in enumerate(wanted):
        for move in one_move(layout, n, to):
            part = moved(part, move)
        layout = layout.replaced(n, to)
    return part
