"""Page-locked host memory, which copies beside the kernels read and fill. See Note [Streams]."""

from __future__ import annotations

from typing import Any

from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool, Storage


class Pinned(Storage):
    """Page-locked host memory, which a device's copies read and fill while the host goes on.

    `pool` is the host's, which counts it; `cache` has the memory. See Note [Streams] 4.
    """

    __slots__ = ("cache", "marks")
    is_pinned = True

    @unheard
    def __init__(self, pool: Pool, room: int, cache: Any) -> None:
        self.address = None
        self.blocks = []
        self.pool = pool
        self.room = room
        self.version = 0
        self.recipe = None
        self.cache = cache
        self.marks: list[Any] = []  # of copies that may be unfinished
        pool.make_room(room)
        self.address = cache.take(room)
        pool.held += room
        pool.live += room
        if pool.live > pool.peak:
            pool.peak = pool.live

    def note(self, mark: Any) -> None:
        """Keep the memory until a copy's mark is done."""
        self.marks = [m for m in self.marks if not m.done()]
        self.marks.append(mark)

    @unheard
    def __del__(self) -> None:
        try:
            address = self.address
            if address is None:
                return
            self.address = None
            self.pool.live -= self.room
            self.pool.held -= self.room
            self.cache.give(address, self.room, self.marks)
        except AttributeError:  # Ctrl-C came first, or there was no memory
            return
