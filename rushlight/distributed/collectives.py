"""The collectives on tensors, under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rushlight.autograd.graph import increment_version
from rushlight.core.errors import DeviceError, DTypeError, ShapeError
from rushlight.distributed.arenas import Arena
from rushlight.distributed.errors import DistributedError
from rushlight.distributed.process_groups import Line, ProcessGroup, resolved
from rushlight.distributed.reducing import ReduceOp, averaged, check, combine
from rushlight.distributed.rooms import SMALL, Rows, others_rooms, room_to_reduce
from rushlight.distributed.stores import WorldStore
from rushlight.distributed.transport import Span, Transport, below
from rushlight.distributed.work import Work
from rushlight.ops.create.creation import empty
from rushlight.tensor import Tensor

NOTHING = Span(0, 0, None)


# ---- tensors as bytes ----


def staged(tensor: Tensor, transport: Transport) -> Tensor:
    """The elements side by side, where the transport reads them; the tensor's own if it can be."""
    plain = tensor.detach()
    if transport.on_host:
        plain = plain if plain.device.type == "cpu" else plain.cpu()
    elif plain.device.type != "cuda":
        raise DeviceError(
            f"distributed: NCCL moves tensors of CUDA cards; this one is on {plain.device}. Move "
            'it, or init_process_group("mpi")'
        )
    return plain.contiguous()


def span(tensor: Tensor) -> Span:
    """The bytes of a contiguous tensor."""
    size = tensor.numel() * tensor.element_size()
    return Span(tensor.data_ptr(), size, tensor) if size else NOTHING


def room(like: Tensor, *sizes: int) -> Tensor:
    """Memory of the pool, counted by budgets."""
    return empty(*sizes, dtype=like.dtype, device=like.device)


def write(target: Tensor, made: Tensor) -> None:
    """Put a result into the caller's tensor, unless it is there."""
    if not made.numel():
        return
    plain = target.detach()
    if plain.device == made.device and plain.data_ptr() == made.data_ptr():
        increment_version(plain)
    else:
        plain.copy_(made.view(plain.shape))


def cuts(count: int, parts: int) -> list[int]:
    """Where `parts` nearly equal pieces of `count` elements begin and end."""
    return [count * n // parts for n in range(parts + 1)]


def shown(*tensors: Tensor) -> str:
    """Shapes and dtypes, by which calls are compared."""
    return ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors)


def kind(tensor: Tensor) -> str:
    """What messages are marked by: all ranks have as many elements of the same dtype."""
    return f"{tensor.dtype.name} {tensor.numel()}"


def kinds(tensors: Sequence[Tensor]) -> str:
    """The same for tensors of which each rank has a list, alike on all."""
    return " ".join([kind(tensor) for tensor in tensors])


def _member(group: Any, tensor: Any = None) -> ProcessGroup | None:
    """The group; None for `GroupMember.NON_GROUP_MEMBER`, whose calls do nothing."""
    if tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"distributed: a tensor is expected, got {type(tensor).__name__}")
    return None if isinstance(group, NonMember) else resolved(group)


class NonMember:
    """Stands for a group that this process is not in."""


def _root(group: ProcessGroup, rank: int | None, inside: int | None, default: int = 0) -> int:
    """A rank of the group, given as the world's or as the group's."""
    if inside is not None:
        return group.inside(inside)
    return default if rank is None else group.index(rank)


def _all_or_same(name: str, tensors: Sequence[Tensor], like: Tensor, count: int) -> None:
    if len(tensors) != count:
        raise ShapeError(f"{name}: {len(tensors)} tensors for a group of {count} ranks")
    for tensor in tensors:
        if tensor.dtype is not like.dtype:
            raise DTypeError(f"{name}: tensors of {tensor.dtype} and {like.dtype}")


# ---- sums ----


def _around(line: Line, mine: Tensor, kept: Rows) -> list[Tensor]:
    """A row for each rank: this rank's elements, and memory for the others'.

    Each has a storage of its own: a sum of two views of one would copy.
    """
    count = mine.numel()
    if kept is None:
        rows = [room(mine, count) for _ in range(line.size - 1)]
    else:  # pieces may differ by an element
        rows = [row[:count] for row in kept]
    return [*rows[: line.rank], mine, *rows[line.rank :]]


def _rows(line: Line, flat: Tensor, edges: Sequence[int], kept: Rows = None) -> list[Tensor]:
    """This rank's piece of every rank's elements; `flat` has a piece for each rank."""
    mine = flat[edges[line.rank] : edges[line.rank + 1]]
    rows = _around(line, mine, kept)
    sent = [
        NOTHING if n == line.rank else span(flat[edges[n] : edges[n + 1]]) for n in range(line.size)
    ]
    received = [NOTHING if n == line.rank else span(row) for n, row in enumerate(rows)]
    line.exchange(sent, received)
    return rows


def reduced(line: Line, flat: Tensor, op: ReduceOp, kept: Rows = None) -> Tensor:
    """The elements of all ranks combined, in the memory of `flat`. See Note [Sums of ranks].

    `kept` is what `room_to_reduce` gave.
    """
    if line.size == 1 or not flat.numel():
        return flat
    nbytes = flat.numel() * flat.element_size()
    if nbytes * line.size <= SMALL:
        rows = _around(line, flat, kept)
        received = [NOTHING if n == line.rank else span(row) for n, row in enumerate(rows)]
        line.spread(span(flat), received)
        total = combine(rows, op)
        averaged(total, op, line.size)
        return total if total is flat else flat.copy_(total)
    edges = cuts(flat.numel(), line.size)
    arena = line.arena(nbytes)
    if arena is not None:
        width = flat.element_size()
        mine = (edges[line.rank + 1] - edges[line.rank]) * width
        others = line.size - 1
        line.traffic.count(nbytes - mine + mine * others, 2 * others, 2)
        _reduced_in(arena, line, flat, op)
        increment_version(flat)
        return flat
    total = combine(_rows(line, flat, edges, kept), op)
    averaged(total, op, line.size)
    pieces = [span(flat[edges[n] : edges[n + 1]]) for n in range(line.size)]
    whole = list(pieces)
    whole[line.rank] = NOTHING
    if total.data_ptr() != pieces[line.rank].address:
        flat[edges[line.rank] : edges[line.rank + 1]].copy_(total)
    line.spread(pieces[line.rank], whole)
    increment_version(flat)
    return flat


def _reduced_in(arena: Arena, line: Line, flat: Tensor, op: ReduceOp) -> None:
    """The sum in shared memory: each rank combines its piece of all ranks' elements there.

    `combine` puts the total in the memory of the first row, where all read it.
    """
    width, address = flat.element_size(), flat.data_ptr()
    step = arena.size // width
    for start in range(0, flat.numel(), step):
        count = min(step, flat.numel() - start)
        place, nbytes = address + start * width, count * width
        arena.put(place, nbytes)
        line.meet()
        low, high = (count * n // line.size for n in (line.rank, line.rank + 1))
        total = combine([row[low:high] for row in arena.rows(flat.dtype)], op)
        averaged(total, op, line.size)
        line.meet()
        arena.get(0, place, nbytes)
        arena.next()


def all_reduce(
    tensor: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    *,
    after: Work | None = None,
) -> Work | None:
    """Combine the tensors of all ranks, in place on each: the same bits on all.

    `after` is a call of another group, under way, that makes the tensor: it is waited for first.
    """
    pg = _member(group, tensor)
    if pg is None:
        return None
    chosen = check(op, tensor)
    kept = room_to_reduce(pg, tensor) if async_op else None

    def body(line: Line) -> None:
        if after is not None:
            after.wait()
        write(tensor, reduced(line, staged(tensor, line.transport).view(-1), chosen, kept))

    told = f"{shown(tensor)}, {chosen.name}"
    alike = f"{kind(tensor)} {chosen.name}"
    return pg.world.run(pg, "all_reduce", body, async_op, [tensor], told, alike)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors."""
    works = [all_reduce(tensor, op, group, async_op) for tensor in tensors]
    return works[-1] if works else None


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the tensors of all ranks on one; the others' are left as they are."""
    pg = _member(group, tensor)
    if pg is None:
        return None
    chosen, root = check(op, tensor), _root(pg, dst, group_dst)

    def body(line: Line) -> None:
        flat = staged(tensor, line.transport).view(-1)
        if line.size == 1 or not flat.numel():
            return
        flat = flat.clone()
        edges = cuts(flat.numel(), line.size)
        total = combine(_rows(line, flat, edges), chosen)
        averaged(total, chosen, line.size)
        sent = [span(total) if n == root else NOTHING for n in range(line.size)]
        received = [
            span(flat[edges[n] : edges[n + 1]]) if line.rank == root else NOTHING
            for n in range(line.size)
        ]
        if line.rank == root:
            flat[edges[root] : edges[root + 1]].copy_(total)
            sent[root] = received[root] = NOTHING
        line.exchange(sent, received)
        if line.rank == root:
            write(tensor, flat)

    told = f"{shown(tensor)}, {chosen.name}, dst={root}"
    alike = f"{kind(tensor)} {chosen.name} {root}"
    return pg.world.run(pg, "reduce", body, async_op, [tensor], told, alike)


def _scattered_sum(line: Line, flat: Tensor, output: Tensor, op: ReduceOp, kept: Rows) -> None:
    """This rank's piece of the sum of all ranks' `flat`, whose pieces are equal."""
    if not output.numel():
        return
    if line.size == 1:
        write(output, flat.clone())
        return
    edges = [output.numel() * n for n in range(line.size + 1)]
    arena = line.arena(span(flat).nbytes) if flat.numel() * flat.element_size() > SMALL else None
    if arena is not None:
        _scattered_in(arena, line, flat, output, op)
        return
    rows = _rows(line, flat, edges, kept)
    first = output.detach() if output.is_contiguous() and output.device == flat.device else None
    own = rows[line.rank]  # the caller's own elements stay
    rows[line.rank] = own.clone() if first is None else first.view(-1).copy_(own)
    total = combine(rows, op)
    averaged(total, op, line.size)
    write(output, total)


def _scattered_in(arena: Arena, line: Line, flat: Tensor, output: Tensor, op: ReduceOp) -> None:
    """The same in shared memory: a part of each rank's piece at a time."""
    width, address, count = flat.element_size(), flat.data_ptr(), output.numel()
    line.traffic.count(count * width * (line.size - 1), line.size - 1)
    target = output.detach().view(-1) if output.is_contiguous() else room(flat, count)
    step = arena.size // width // line.size
    for start in range(0, count, step):
        part = min(step, count - start)
        for n in range(line.size):
            arena.put(address + (n * count + start) * width, part * width, n * step * width)
        line.meet()
        low = line.rank * step
        total = combine([row[low : low + part] for row in arena.rows(flat.dtype)], op)
        averaged(total, op, line.size)
        target[start : start + part].copy_(total)
        arena.next()
    if not output.is_contiguous():
        write(output, target)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the inputs of all ranks; rank n gets the n-th piece."""
    pg = _member(group, output)
    if pg is None:
        return None
    chosen = check(op, input)
    if input.numel() != output.numel() * pg.size() or input.dtype is not output.dtype:
        raise ShapeError(
            f"reduce_scatter_tensor: {shown(input)} has no {pg.size()} pieces {shown(output)}"
        )

    nbytes = input.numel() * input.element_size()
    kept = others_rooms(pg, input, nbytes, output.numel()) if async_op else None

    def body(line: Line) -> None:
        _scattered_sum(line, staged(input, line.transport).view(-1), output, chosen, kept)

    told = f"{shown(input)}, {chosen.name}"
    alike = f"{kind(input)} {chosen.name}"
    return pg.world.run(pg, "reduce_scatter_tensor", body, async_op, output, told, alike)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the n-th tensors of all ranks on rank n."""
    pg = _member(group, output)
    if pg is None:
        return None
    chosen = check(op, output)
    _all_or_same("reduce_scatter", input_list, output, pg.size())
    mine = input_list[pg.rank()]
    if mine.numel() != output.numel():
        raise ShapeError(f"reduce_scatter: {shown(mine)} does not fit {shown(output)}")

    def body(line: Line) -> None:
        given = [staged(t, line.transport).view(-1) for t in input_list]
        rows = [room(given[line.rank], output.numel()) for _ in range(line.size)]
        line.exchange([span(t) for t in given], [span(r) for r in rows])
        if output.numel():
            total = combine(rows, chosen)
            averaged(total, chosen, line.size)
            write(output, total)

    told = f"{shown(*input_list)}, {chosen.name}"
    alike = f"{kinds(input_list)} {chosen.name}"
    return pg.world.run(pg, "reduce_scatter", body, async_op, [output], told, alike)


# ---- copies ----


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """One rank's elements come to all."""
    pg = _member(group, tensor)
    if pg is None:
        return None
    root = _root(pg, src, group_src)

    def body(line: Line) -> None:
        if tensor.numel():
            flat = staged(tensor, line.transport)
            given = span(flat)
            arena = line.arena(given.nbytes) if given.nbytes > SMALL else None
            if arena is not None:
                _broadcast_in(arena, line, given, root)
            else:
                line.broadcast(given, root)
            if line.rank != root:
                write(tensor, flat)

    told = f"{shown(tensor)}, src={root}"
    alike = f"{kind(tensor)} {root}"
    return pg.world.run(pg, "broadcast", body, async_op, [tensor], told, alike)


def _broadcast_in(arena: Arena, line: Line, given: Span, root: int) -> None:
    """The root's bytes, read by all from shared memory."""
    targets = len(below(line.rank, root, line.size))
    line.traffic.count(given.nbytes * targets, targets)
    for start in range(0, given.nbytes, arena.size):
        part = given.part(start, min(arena.size, given.nbytes - start))
        if line.rank == root:
            arena.put(part.address, part.nbytes)
        line.meet()
        if line.rank != root:
            arena.get(root, part.address, part.nbytes)
        arena.next()


def _gathered_in(arena: Arena, line: Line, mine: Span, rows: Sequence[Span]) -> None:
    """Every rank's bytes, read by all from shared memory."""
    line.traffic.count(mine.nbytes * (line.size - 1), line.size - 1)
    for start in range(0, mine.nbytes, arena.size):
        count = min(arena.size, mine.nbytes - start)
        arena.put(mine.address + start, count)
        line.meet()
        for n, row in enumerate(rows):
            arena.get(n, row.address + start, count)
        arena.next()


def _gathered(line: Line, mine: Span, rows: Sequence[Span]) -> None:
    """Every rank's bytes come into the n-th row."""
    alike = all(row.nbytes == mine.nbytes for row in rows)
    arena = line.arena(mine.nbytes) if alike and mine.nbytes * line.size > SMALL else None
    if arena is not None:
        _gathered_in(arena, line, mine, rows)
    else:
        line.spread(mine, rows)


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all ranks, on all: the n-th is rank n's."""
    pg = _member(group, tensor)
    if pg is None:
        return None
    _all_or_same("all_gather", tensor_list, tensor, pg.size())

    def body(line: Line) -> None:
        mine = staged(tensor, line.transport)
        rows = [room(mine, target.numel()) for target in tensor_list]
        _gathered(line, span(mine), [span(row) for row in rows])
        for target, row in zip(tensor_list, rows, strict=True):
            write(target, row)

    told = shown(*tensor_list)
    alike = kinds(tensor_list)
    return pg.world.run(pg, "all_gather", body, async_op, [list(tensor_list)], told, alike)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all ranks one after another in one, on all."""
    pg = _member(group, output_tensor)
    if pg is None:
        return None
    if output_tensor.numel() != input_tensor.numel() * pg.size():
        raise ShapeError(
            f"all_gather_into_tensor: {shown(output_tensor)} does not hold {pg.size()} of "
            f"{shown(input_tensor)}"
        )
    _all_or_same("all_gather_into_tensor", [output_tensor], input_tensor, 1)

    def body(line: Line) -> None:
        if not output_tensor.numel():
            return
        mine = staged(input_tensor, line.transport)
        whole = staged(output_tensor, line.transport).view(line.size, -1)
        _gathered(line, span(mine), [span(row) for row in whole])
        write(output_tensor, whole)

    told = shown(output_tensor, input_tensor)
    alike = kind(input_tensor)
    return pg.world.run(pg, "all_gather_into_tensor", body, async_op, output_tensor, told, alike)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """The tensors of all ranks, on one."""
    pg = _member(group, tensor)
    if pg is None:
        return None
    root = _root(pg, dst, group_dst)
    targets = list(gather_list or ())
    if pg.rank() == root:
        _all_or_same("gather", targets, tensor, pg.size())
    elif targets:
        raise ValueError("gather: gather_list is given on the destination rank only")

    def body(line: Line) -> None:
        mine = staged(tensor, line.transport)
        rows = [room(mine, target.numel()) for target in targets]
        sent = [span(mine) if n == root else NOTHING for n in range(line.size)]
        received = [span(row) for row in rows] or [NOTHING] * line.size
        line.exchange(sent, received)
        for target, row in zip(targets, rows, strict=True):
            write(target, row)

    told = f"{shown(tensor)}, dst={root}"
    alike = f"{tensor.dtype.name} {root}"
    return pg.world.run(pg, "gather", body, async_op, [targets], told, alike)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """One rank's n-th tensor comes to rank n."""
    pg = _member(group, tensor)
    if pg is None:
        return None
    root = _root(pg, src, group_src)
    given = list(scatter_list or ())
    if pg.rank() == root:
        _all_or_same("scatter", given, tensor, pg.size())
    elif given:
        raise ValueError("scatter: scatter_list is given on the source rank only")

    def body(line: Line) -> None:
        target = room(staged(tensor, line.transport), tensor.numel())
        sent = [span(staged(t, line.transport)) for t in given] or [NOTHING] * line.size
        received = [span(target) if n == root else NOTHING for n in range(line.size)]
        line.exchange(sent, received)
        write(tensor, target)

    told = f"{shown(tensor)}, src={root}"
    alike = f"{tensor.dtype.name} {root}"
    return pg.world.run(pg, "scatter", body, async_op, [tensor], told, alike)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The n-th tensor goes to rank n, and rank n's comes into the n-th."""
    pg = _member(group)
    if pg is None:
        return None
    like = input_tensor_list[0]
    _all_or_same("all_to_all", input_tensor_list, like, pg.size())
    _all_or_same("all_to_all", output_tensor_list, like, pg.size())

    def body(line: Line) -> None:
        given = [staged(t, line.transport) for t in input_tensor_list]
        rows = [room(given[0], t.numel()) for t in output_tensor_list]
        line.exchange([span(t) for t in given], [span(r) for r in rows])
        for target, row in zip(output_tensor_list, rows, strict=True):
            write(target, row)

    told, alike = str(like.dtype), like.dtype.name
    return pg.world.run(pg, "all_to_all", body, async_op, list(output_tensor_list), told, alike)


def _split(name: str, tensor: Tensor, sizes: Sequence[int] | None, parts: int) -> list[int]:
    """Elements per rank: equal parts of the first dimension, or the given ones."""
    length = tensor.shape[0] if tensor.dim() else 1
    if sizes is None:
        if length % parts:
            raise ShapeError(f"{name}: {length} rows in {parts} equal parts; give split sizes")
        sizes = [length // parts] * parts
    if len(sizes) != parts or sum(sizes) != length:
        raise ShapeError(f"{name}: split sizes {list(sizes)} of {length} rows for {parts} ranks")
    width = math.prod(tensor.shape[1:])
    return [size * width for size in sizes]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Rows of one tensor go to all ranks, and rows of all ranks come into one."""
    pg = _member(group, output)
    if pg is None:
        return None
    out = _split("all_to_all_single", output, output_split_sizes, pg.size())
    into = _split("all_to_all_single", input, input_split_sizes, pg.size())

    def body(line: Line) -> None:
        given = staged(input, line.transport).view(-1)
        target = room(given, output.numel())
        line.exchange(
            [span(t) for t in given.split(into)] if given.numel() else [NOTHING] * line.size,
            [span(t) for t in target.split(out)] if target.numel() else [NOTHING] * line.size,
        )
        write(output, target)

    told, alike = str(input.dtype), input.dtype.name
    return pg.world.run(pg, "all_to_all_single", body, async_op, output, told, alike)


# ---- waiting for all ----


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Wait until all ranks have come here."""
    pg = _member(group)
    if pg is None:
        return None

    def body(line: Line) -> None:
        line.traffic.count(line.size - 1, line.size - 1)
        line.meet()

    return pg.world.run(pg, "barrier", body, async_op)


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all ranks have come here; those that do not are named."""
    pg = _member(group)
    if pg is None or pg.size() == 1:
        return
    seconds = pg.timeout if timeout is None else timeout.total_seconds()

    def body(line: Line) -> None:
        store = WorldStore(pg.world.watch, f"here/{pg.group_name}/{line.call.number}/", seconds)  # type: ignore[arg-type]
        store.set(str(pg.world.place.rank), "here")
        try:
            store.wait([str(rank) for rank in pg.ranks])
        except DistributedError:
            missing = [rank for rank in pg.ranks if not store.check([str(rank)])]
            told = missing if wait_all_ranks else missing[:1]
            raise DistributedError(
                f"{line.call}: ranks {told} did not come within {seconds:g} s",
                missing[0] if missing else -1,
                "monitored_barrier",
            ) from None

    pg.world.run(pg, "monitored_barrier", body)
