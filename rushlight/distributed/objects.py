"""Collectives of Python objects, as bytes of pickles: ranks trust one another."""

from __future__ import annotations

import pickle
from typing import Any

from rushlight.core.dtypes import int64, uint8
from rushlight.distributed.collectives import (
    NonMember,
    all_gather,
    broadcast,
    gather,
    scatter,
)
from rushlight.distributed.messages import recv, send
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.interop import from_numpy
from rushlight.ops.create.creation import empty, zeros
from rushlight.tensor import Tensor, tensor


def _where(group: ProcessGroup) -> str:
    return "cpu" if group.transport.on_host else "cuda"


def _packed(value: Any, group: ProcessGroup) -> Tensor:
    import numpy as np

    raw = np.frombuffer(bytearray(pickle.dumps(value)), np.uint8)
    made: Any = from_numpy(raw)
    return made.to(_where(group))


def _unpacked(part: Tensor) -> Any:
    return pickle.loads(part.cpu().numpy().tobytes())


def _sizes(mine: int, group: ProcessGroup) -> list[int]:
    """Every rank's number."""
    where = _where(group)
    found = [zeros(1, dtype=int64, device=where) for _ in range(group.size())]
    all_gather(found, tensor([mine], dtype=int64, device=where), group)
    return [int(one) for one in found]


def _room(size: int, group: ProcessGroup) -> Tensor:
    return empty(size, dtype=uint8, device=_where(group))


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all ranks, on all."""
    if isinstance(group, NonMember):
        return
    pg = resolved(group)
    if not pg.transport.moves:  # see Note [Planned ranks] 2
        object_list[:] = [obj] * pg.size()
        return
    mine = _packed(obj, pg)
    rows = [_room(size, pg) for size in _sizes(mine.numel(), pg)]
    all_gather(rows, mine, pg)
    object_list[:] = [_unpacked(row) for row in rows]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """The objects of all ranks, on one."""
    if isinstance(group, NonMember):
        return
    pg = resolved(group)
    root = pg.index(dst or 0) if group_dst is None else pg.inside(group_dst)
    if not pg.transport.moves:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * pg.size()
        return
    mine = _packed(obj, pg)
    sizes = _sizes(mine.numel(), pg)
    rows = [_room(size, pg) for size in sizes] if pg.rank() == root else None
    gather(mine, rows, group=pg, group_dst=root)
    if rows is not None:
        if object_gather_list is None:
            raise ValueError("gather_object: object_gather_list is needed on the destination rank")
        object_gather_list[:] = [_unpacked(row) for row in rows]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """One rank's objects come to all, into the list."""
    if isinstance(group, NonMember):
        return
    pg = resolved(group)
    root = pg.index(src or 0) if group_src is None else pg.inside(group_src)
    if not pg.transport.moves:
        return
    mine = _packed(list(object_list), pg) if pg.rank() == root else None
    size = tensor([0 if mine is None else mine.numel()], dtype=int64, device=_where(pg))
    broadcast(size, group=pg, group_src=root)
    row = _room(int(size), pg) if mine is None else mine
    broadcast(row, group=pg, group_src=root)
    if mine is None:
        object_list[:] = _unpacked(row)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """One rank's n-th object comes to rank n, into the first place of the list."""
    if isinstance(group, NonMember):
        return
    pg = resolved(group)
    root = pg.index(src or 0) if group_src is None else pg.inside(group_src)
    if not pg.transport.moves:
        scatter_object_output_list[:1] = list(scatter_object_input_list or ())[:1]
        return
    given = None
    if pg.rank() == root:
        given = [_packed(one, pg) for one in scatter_object_input_list or ()]
        if len(given) != pg.size():
            raise ValueError(f"scatter_object_list: {len(given)} objects for {pg.size()} ranks")
    where = _where(pg)
    size = zeros(1, dtype=int64, device=where)
    lengths = [tensor([g.numel()], dtype=int64, device=where) for g in given] if given else None
    scatter(size, lengths, group=pg, group_src=root)
    row = _room(int(size), pg)
    scatter(row, given, group=pg, group_src=root)
    scatter_object_output_list[:1] = [_unpacked(row)]


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None
) -> None:
    """Send objects to a rank."""
    pg = resolved(group)
    mine = _packed(list(object_list), pg)
    send(tensor([mine.numel()], dtype=int64, device=_where(pg)), dst, pg)
    send(mine, dst, pg)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None
) -> int:
    """Receive objects, into the list; the rank they came from."""
    pg = resolved(group)
    size = zeros(1, dtype=int64, device=_where(pg))
    source = recv(size, src, pg)
    row = _room(int(size), pg)
    recv(row, source, pg)
    object_list[:] = _unpacked(row)
    return source
