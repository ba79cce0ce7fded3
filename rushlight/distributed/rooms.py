"""Memory for what other ranks send, taken when a call is made."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from rushlight.core.dtypes import DType, uint8
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.ops.create.creation import empty
from rushlight.tensor import Tensor

SMALL = 1 << 16  # bytes of all ranks together up to which every rank combines everything
Rows = Sequence[Tensor] | None  # memory for the elements of each other rank; none was taken


class Rooms(list[Tensor]):
    """Bytes for what each other rank sends: of all calls of a group that are not waited for."""


def others_rooms(group: ProcessGroup, like: Tensor, nbytes: int, count: int) -> Rows:
    """Memory for `count` elements of every other rank, taken when a call is made.

    So what a step holds does not depend on how far the thread of asynchronous calls has come. That
    thread makes one call after another: they have the same memory, if it is large enough. None
    where nothing is received, or ranks share memory for so many bytes.
    """
    if group.size() == 1 or not count or (nbytes > SMALL and group.may_share):
        return None
    device = "cpu" if group.transport.on_host else like.device
    size = count * like.element_size()
    found: Rooms | None = group.rooms and group.rooms()
    if found is None or found[0].numel() < size or str(found[0].device) != str(device):
        others = range(group.size() - 1)
        found = Rooms(empty(size, dtype=uint8, device=device) for _ in others)
        group.rooms = weakref.ref(found)
    return _Typed(found, size, like.dtype)


class _Typed(list[Tensor]):
    """The rooms as elements of a type."""

    def __init__(self, rooms: Rooms, size: int, dtype: DType) -> None:
        super().__init__(room[:size].view(dtype) for room in rooms)
        self.rooms = rooms


def room_to_reduce(group: ProcessGroup, tensor: Tensor) -> Rows:
    """`others_rooms` for `reduced`."""
    count, ranks = tensor.numel(), group.size()
    nbytes = count * tensor.element_size()
    piece = count if nbytes * ranks <= SMALL else -(-count // ranks)
    return others_rooms(group, tensor, nbytes * ranks, piece)
