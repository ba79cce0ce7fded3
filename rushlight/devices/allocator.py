"""The allocator seam: every byte on every device is taken and given here, and counted.

# Note [Budget]
1. `live` is what storages own, `held` is live plus the cached free blocks. A limit is on `held`.
2. A request that would cross the limit first gives cached blocks back to the system, then asks `reclaim`
   (set by the tape) to drop rebuildable values, then raises BudgetError with the least sufficient limit.
3. When the device itself is out of memory the same steps are tried before OutOfMemoryError leaves.
4. Without a limit, too, what is cached does not grow for ever: a program with ever new sizes would use none of it again. When
   a new block is asked for and more lies cached than was in use at the peak, and SPARE on top, the rest goes back.

# Note [Counting and threads]
The interpreter changes threads, and hears of Ctrl-C, at calls and at the ends of loops, nowhere else. So `live = live + room`,
and a test followed by the `pop` or the assignment it is for, need no lock as long as nothing is called in between; and what
is counted is counted in the same stretch in which it becomes somebody's. All counts in `Pool` and `Storage` are kept so,
here and where `tape/call.py` writes these steps out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rushlight.core import interrupts
from rushlight.core.errors import BudgetError, OutOfMemoryError
from rushlight.devices.protocol import Device

GRAIN = 64
MOST = 1 << 47  # bytes; no machine addresses more, and a larger number would be cut where it is handed on
SPARE = 64 << 20  # bytes that may lie cached beyond as many as were ever in use


def room_for(nbytes: int) -> int:
    """The size of the block for `nbytes`: a multiple of the grain, coarser for large ones so that blocks are reused."""
    if nbytes <= 1 << 16:
        return max(GRAIN, -(-nbytes // GRAIN) * GRAIN)
    return -(-nbytes // 4096) * 4096


class Pool:
    """The blocks of one device."""

    __slots__ = ("device", "free", "held", "limit", "live", "peak", "reclaim")

    opening_limit: ClassVar[int | None] = None  # what a budget on every device asks of one that is opened inside it

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: dict[int, list[int]] = {}
        self.live = 0
        self.peak = 0
        self.held = 0
        self.limit = Pool.opening_limit
        self.reclaim: Callable[[Pool, int, Sequence[int]], bool] | None = None
        interrupts.finish(Storage.__del__)

    def blocks(self, room: int) -> list[int]:
        """The cached blocks of one size: one list for good, so that others may hold it."""
        found = self.free.get(room)
        return self.free.setdefault(room, []) if found is None else found

    def lend(self, address: int, room: int) -> None:
        """Hear of memory that somebody else owns; the checking build keeps a list of it."""

    def take_back(self, address: int, room: int) -> None:
        """Hear that lent memory is not used any more."""

    def take(self, room: int, reading: Sequence[int] = ()) -> int:
        """The address of a block of `room` bytes (a value of `room_for`); `reading` as in `fresh`."""
        blocks = self.free.get(room)
        address = blocks.pop() if blocks else self.fresh(room, reading)
        self.live += room
        if self.live > self.peak:
            self.peak = self.live
        return address

    def give(self, address: int, room: int) -> None:
        self.live -= room
        self.blocks(room).append(address)

    def trim(self, want: int | None = None) -> int:
        """Give cached blocks back to the system until `want` bytes are gone (all, if None); how many were."""
        gone = 0
        for room in sorted(self.free, reverse=True):
            blocks = self.free[room]
            while blocks and (want is None or gone < want):
                self.device.free(blocks.pop(), room)
                self.held -= room
                gone += room
        return gone

    def fresh(self, room: int, reading: Sequence[int] = ()) -> int:
        """The address of a new block; what lies at the addresses `reading` is not dropped for it."""
        if room > MOST:
            raise OutOfMemoryError(f"{self.device.name}: {room} bytes were asked for, more than any device has")
        idle = self.held - self.live - self.peak
        if idle > SPARE:
            self.trim(idle)
        while True:
            limit = self.limit
            if limit is not None and self.held + room > limit:
                self._make_way(room, limit, reading)
                blocks = self.free.get(room)
                if blocks:  # a reclaimed block of the very size
                    return blocks.pop()
                continue
            self.held += room  # before it is there, or two threads could both take the last room under the limit
            try:
                return self.device.alloc(room)
            except BaseException as error:
                self.held -= room
                if not isinstance(error, OutOfMemoryError):
                    raise
                if not self.trim() and not (self.reclaim and self.reclaim(self, room, reading)):
                    raise

    def _make_way(self, room: int, limit: int, reading: Sequence[int]) -> None:
        """Give back or drop something, or raise."""
        over = self.held + room - limit
        if over <= 0 or self.trim(over) or (self.reclaim is not None and self.reclaim(self, room, reading)):
            return
        if self.held + room <= limit or self.free.get(room):
            return  # another thread made way
        least = self.live + room
        raise BudgetError(
            f"budget of {limit} bytes on {self.device.name}: {self.live} bytes are in use by values that cannot be "
            f"dropped and {room} more are asked for; the least sufficient budget here is {least} bytes",
            least,
        )


class Storage:
    """One block of device memory and the right to it; the block goes back when the last holder lets go.

    `address` is None while the bytes are dropped (see Note [Replay]); `version` counts in-place writes, and `written`,
    set by the first of them, tells where the last was made.
    """

    __slots__ = ("__weakref__", "address", "blocks", "pool", "recipe", "room", "version", "written")

    address: int | None
    recipe: Any  # set in a region only
    written: Any  # see tape/written.py

    def __init__(self, pool: Pool, room: int) -> None:
        self.address = None
        self.blocks = pool.blocks(room)
        self.pool = pool
        self.room = room
        self.version = 0
        self.recipe = None
        self.address = pool.take(room)

    def __del__(self) -> None:
        # `Pool.give`, written out: this runs for every result of every call.
        try:
            if self.address is not None:
                self.pool.live -= self.room
                self.blocks.append(self.address)
        except AttributeError:  # Ctrl-C came before it had an address
            return


class Lent(Storage):
    """Memory that somebody else owns and that lives while this does: a NumPy array's. It is not counted."""

    __slots__ = ("owner",)

    def __init__(self, pool: Pool, address: int, room: int, owner: object) -> None:
        self.address = address
        self.blocks = []
        self.pool = pool
        self.room = room
        self.version = 0
        self.recipe = None
        self.owner = owner
        pool.lend(address, room)

    def __del__(self) -> None:
        """There is nothing to give back."""
        try:
            if self.address is not None:
                self.pool.take_back(self.address, self.room)
        except AttributeError:  # Ctrl-C came before it had an address
            return
