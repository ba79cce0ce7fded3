"""The allocator: every byte on every device is allocated and freed here, and counted.

# Note [Budget]
1. `live` is what storages own, launches use as scratch and the device keeps for itself; `held` is
   live plus the cached free blocks. A limit is on `held`.
2. A request that would cross the limit takes the memory of cached blocks. Where those are too few,
   it asks `reclaim` (set by the tape) to drop rebuildable values, then raises BudgetError with the
   least sufficient limit. A limit binds the threads inside its budget (`bound`, set by
   `memory/budget.py`, tells): others are not refused. What they take counts, so the threads inside
   may have to drop more.
3. When the device itself is out of memory the same steps are tried before OutOfMemoryError is
   raised.
4. Without a limit the cache is bounded too: a program with ever new sizes would reuse none of it.
   When a new block is requested and more is cached than the peak in use plus SPARE, the excess is
   freed.
5. Where the device joins blocks (`joins`), cached ones become the requested one. The smallest
   larger block is cut, and the rest of it stays cached, which takes no search among addresses and
   no call of the system. Where none is larger, the smallest run that suffices is cut, a run being
   those that lie side by side. Where none suffices, runs are joined. Only blocks of PAGED bytes or
   more and their parts are cut and joined, and only into whole pages. For
   another request as much of a run is given back as is needed. Elsewhere cached blocks are
   exchanged: given back to the device, whole, and a new one is taken. The largest go first: what is
   left of them serves later requests, so fewer blocks come and go. (To cut blocks would cost no
   call of a driver, but free parts between parts in use are not one block: a value would be
   dropped, or a request refused, although the bytes are there.)
6. The smallest cached blocks stay as long as they are few bytes (`FEW`): they are most of a step's
   blocks, and would come and go for almost nothing. A value is dropped in their place; where none
   can be, they go. So do they for a request of as few bytes.
7. A result may be written over an input that is dropped for it (Note [Replay] 8): no other thread
   may touch the block in between. So `reclaim` puts the block of a dropped value of the size asked
   for into a list of the request's own (`handed`), not among the cached ones.

# Note [Counting and threads]
The interpreter switches threads, and raises Ctrl-C, after calls of C functions, at the start of
Python functions and at the ends of loops, nowhere else. So `live = live + room`, and a test
followed by its action, need no lock as long as nothing is called in between; and a block is counted
in the same stretch in which it gets its owner. After `address = blocks.pop()` Ctrl-C would lose the
block: it is read as `blocks[-1]`, and removed from the list by `del`, which is no call, or by a
`pop()` when it has an owner and is counted. Functions that free blocks are `unheard`: Ctrl-C waits
until they end. All counts in `Pool` and `Storage` follow this, here and where
`tape/record/template.py` inlines these steps.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from operator import neg
from typing import Any, ClassVar

from rushlight.core import interrupts
from rushlight.core.errors import BudgetError, OutOfMemoryError
from rushlight.core.interrupts import Uninterrupted, unheard
from rushlight.devices.shared.protocol import Device

GRAIN = 64
PAGE = 4096
PAGED = 1 << 16  # blocks of this size and more are whole pages
# bytes; no machine addresses more, and a larger number would overflow in a driver's call.
MOST = 1 << 47
SPARE = 64 << 20  # bytes that may be cached beyond the peak in use
# The smallest cached blocks stay, up to so small a part of all that a limit's step caches.
FEW = 256
PATIENCE = 1000  # tries in which another thread seems to have made room


def room_for(nbytes: int) -> int:
    """The block size for `nbytes`: a multiple of the grain, coarser for large ones, for reuse."""
    if nbytes <= PAGED:
        return max(GRAIN, -(-nbytes // GRAIN) * GRAIN)
    return -(-nbytes // PAGE) * PAGE


def _unbound(pool: Pool) -> int | None:
    return None


def _refused(pool: Pool, room: int, limit: int) -> BudgetError:
    return BudgetError(f"{pool.device.name}: {room} bytes beside {pool.live}", pool.live + room)


def _rest(pool: Pool, limit: int) -> int:
    return limit - pool.live


def _no_resort(pool: Pool, error: OutOfMemoryError | None) -> bool:
    return False


def _no_queue(pool: Pool) -> Any:
    return None


class Lowest(list[int]):
    """Cached blocks in falling order, so that the lowest address is taken first.

    Equal steps then use equal addresses, for which a device may have remembered its launches.
    """

    __slots__ = ()

    @unheard
    def append(self, address: int) -> None:
        insort(self, address, key=neg)


class Pool:
    """The blocks of one device."""

    __slots__ = (
        *("aside", "cached", "device", "free", "held", "joins", "live", "peak", "reclaim"),
        *("regrouped", "rooms", "spared"),
    )

    # The limit of the calling thread.
    bound: ClassVar[Callable[[Pool], int | None]] = staticmethod(_unbound)
    # The error for a request that a limit does not allow; set by `tape/memory/refusal.py`.
    refuse: ClassVar[Callable[[Pool, int, int], BudgetError]] = staticmethod(_refused)
    # The bytes that a launch's scratch may have under a limit: for more, gradients on their way
    # would be dropped. Set by `memory/budget.py`.
    scratch_left: ClassVar[Callable[[Pool, int], int]] = staticmethod(_rest)
    # The last refused request, which the program may keep.
    refused: ClassVar[weakref.ref[OutOfMemoryError] | None] = None
    # Gives back what kept errors hold, before one is raised: Note [Tracebacks].
    last_resort: ClassVar[Callable[[Pool, OutOfMemoryError | None], bool]] = staticmethod(
        _no_resort
    )
    # The side stream of the calling thread, or None: Note [Streams].
    queue: ClassVar[Callable[[Pool], Any]] = staticmethod(_no_queue)

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: dict[int, list[int]] = {}
        self.rooms: list[int] = []  # the keys of `free` in order; read by `_sizes`
        # Each frees the blocks that a side stream has cached, and returns their bytes.
        self.aside: list[Callable[[Pool], int]] = []
        self.live = self.peak = self.held = device.limits.own
        self.reclaim: Callable[[Pool, int, list[int] | None], bool] | None = None
        self.cached = 0, 0  # a limit, and the most bytes that were cached when it was met
        self.spared = 0  # cached bytes that stay while `reclaim` runs
        self.joins = device.limits.join is not None  # not where places are planned: Note [Layout]
        self.regrouped = 0  # requests that got cached blocks of other sizes
        interrupts.hear_in_finalisers()

    @property
    def limit(self) -> int | None:
        """The bytes that the calling thread's budgets allow to be held; None outside of budgets."""
        limit = Pool.bound(self)
        return None if limit is None else limit - self.spared

    def blocks(self, room: int) -> list[int]:
        """The cached blocks of one size: always the same list, so that others may keep it."""
        found = self.free.get(room)
        if found is not None:
            return found
        return self.free.setdefault(room, Lowest() if self.device.limits.remembers else [])

    def lend(self, address: int, room: int) -> None:
        """Register memory that another library owns; the checking build keeps a list of it."""

    def take_back(self, address: int, room: int) -> None:
        """Unregister lent memory."""

    @unheard
    def take(self, room: int) -> int:
        """The address of a block of `room` bytes (a value of `room_for`).

        For temporaries see `Scratch`.
        """
        blocks = self.free.get(room)
        if blocks is None:
            blocks = self.blocks(room)
        if blocks:
            address = blocks[-1]
            del blocks[-1]
        else:
            address = self.fresh(room)
        self.live += room
        if self.live > self.peak:
            self.peak = self.live
        return address

    @unheard
    def give(self, address: int, room: int) -> None:
        self.live -= room
        self.free[room].append(address)

    @unheard
    def give_all(self, taken: list[tuple[int, int]]) -> None:
        """Free blocks, each an address and its room; Ctrl-C on the way is raised at the end."""
        heard: BaseException | None = None
        while True:
            try:
                while taken:
                    address, room = taken[-1]
                    del taken[-1]
                    self.live -= room
                    self.free[room].append(address)
                break
            except BaseException as error:
                heard = error
        if heard is not None:
            try:
                raise heard
            finally:
                del heard  # its traceback refers to this frame

    def trim(self, want: int | None = None, below: int = MOST) -> int:
        """Free cached blocks until `want` bytes are gone (all, if None); the bytes freed.

        The smallest block that suffices goes alone; else the largest go first. Blocks of `below`
        bytes and more stay.
        """
        if self.held == self.live:
            return 0
        gone = self._trim_aside(want) if below == MOST else 0
        if want is not None and gone >= want:
            return gone
        rooms = [room for room in self._sizes() if room < below]
        if want is not None:
            rooms = [room for room in rooms if room >= want][:1] or rooms
        return gone + self.give_back(reversed(rooms), None if want is None else want - gone)

    def _trim_aside(self, want: int | None) -> int:
        """Free what side streams have cached, until `want` bytes are gone; the bytes freed."""
        gone = 0
        for free in self.aside:
            gone += free(self)
            if want is not None and gone >= want:
                break
        return gone

    def _sizes(self) -> list[int]:
        """The sizes of the cached blocks, in order.

        A program can have had thousands of other sizes, so this takes no call for each.
        """
        free, rooms = self.free, self.rooms
        if len(rooms) != len(free):
            rooms = self.rooms = sorted(free)
        return [room for room in rooms if free[room]]

    def give_back(self, rooms: Iterable[int], want: int | None = None) -> int:
        """Free cached blocks of these sizes until `want` bytes are gone; the bytes freed."""
        gone = 0
        for room in rooms:
            blocks = self.free[room]
            while want is None or gone < want:
                if not blocks:  # here, not in the loop's own test, after which threads may switch
                    break
                # The last would be the next to be taken: more launches are remembered for it.
                address = blocks[0]
                del blocks[0]
                self.held -= room
                gone += room
                self.device.free(address, room)  # unheard
            else:
                break
        return gone

    @unheard
    def fresh(self, room: int) -> int:
        """The address of a new block."""
        if room > MOST:
            raise OutOfMemoryError(
                f"{self.device.name}: {room} bytes were asked for, more than any device has"
            )
        idle = self.held - self.live - self.peak
        if idle > SPARE:
            self.trim(idle)
        tries = 0
        while True:
            limit = Pool.bound(self)
            if limit is not None and self.held + room > limit:
                handed: list[int] = []
                try:
                    if not self._regroup(room, limit):
                        tries = self._make_way(room, limit, handed, tries)
                except BaseException:  # Ctrl-C, after a block was handed over
                    if handed:
                        self.blocks(room).append(handed[0])
                    raise
                if handed:
                    return handed[0]
                blocks = self.blocks(room)
                if blocks:
                    address = blocks[-1]
                    del blocks[-1]
                    return address
                continue
            # Counted first, or two threads could both take the last room under the limit.
            self.held += room
            try:
                return self.device.alloc(room)
            except BaseException as error:
                self.held -= room
                if not isinstance(error, OutOfMemoryError):
                    raise
                if self.trim() or (self.reclaim and self.reclaim(self, room, None)):
                    continue
                if not Pool.last_resort(self, error):
                    raise

    @unheard
    def borrow(self, room: int) -> None:
        """Count bytes that a library takes from the system; `repay` ends it."""
        self.make_room(room)
        self.held += room
        self.live += room
        if self.live > self.peak:
            self.peak = self.live

    @unheard
    def repay(self, room: int) -> None:
        self.held -= room
        self.live -= room

    def make_room(self, room: int) -> None:
        """Free or drop enough for `room` bytes that the pool is to count, or raise."""
        tries = 0
        while (limit := Pool.bound(self)) is not None and self.held + room > limit:
            tries = self._make_way(room, limit, None, tries)

    def _make_way(self, room: int, limit: int, handed: list[int] | None, tries: int) -> int:
        """Free or drop something (`handed`: Note [Budget] 7), or raise; tries: see PATIENCE."""
        over = self.held + room - limit
        if over <= 0:
            return 0
        sizes = self._sizes()
        least, spared = self._few(limit, over, sizes)
        if over <= self.held - self.live - spared and self._exchange(over, least, sizes):
            return 0
        if over <= spared and room * FEW <= self.cached[1] and self.trim(over):
            return 0
        if Pool.refused is not None and Pool.last_resort(self, None):
            return 0
        if self.reclaim is not None and self._reclaim(room, spared, handed):
            return 0
        if spared and self.trim(over):
            return 0
        if (self.live + room <= limit or self.free.get(room)) and tries < PATIENCE:
            return tries + 1
        if not Pool.last_resort(self, None):
            raise Pool.refuse(self, room, limit)
        return 0

    def _few(self, limit: int, over: int, sizes: list[int]) -> tuple[int, int]:
        """The size under which cached blocks stay, and their bytes. See Note [Budget] 6.

        `sizes` are those of the cached blocks, in order. Where the largest alone is the `over`
        bytes to free, that is enough to know: no other is counted.
        """
        cached, (known, most) = self.held - self.live, self.cached
        if known != limit or cached > most:
            self.cached, most = (limit, cached), cached
        free, few = self.free, 0
        if sizes and sizes[-1] >= over and sizes[-1] * FEW > most:
            return sizes[-1], 0
        for room in sizes:
            more = few + room * len(free[room])
            if more * FEW > most:
                return room, few
            few = more
        return MOST, few

    def _exchange(self, over: int, least: int, sizes: list[int]) -> int:
        """Free cached blocks of `least` bytes and more until `over` are gone; the bytes freed."""
        gone = self._trim_aside(over) if self.aside else 0
        if gone < over and self.joins:
            gone += self._give_back_pages(over - gone)
            sizes = self._sizes()
        if gone >= over:
            return gone
        larger = reversed(sizes[bisect_left(sizes, least) :])
        return gone + self.give_back(larger, over - gone)

    def _give_back_pages(self, want: int) -> int:
        """Free `want` bytes of the smallest run that has them; the bytes freed.

        At least PAGED, so that a next small request finds some.
        """
        with Uninterrupted():
            pieces = self._gather(max(-(-want // PAGE) * PAGE, PAGED))
            gone = sum([size for _, size in pieces])
            self.held -= gone
            for address, size in pieces:
                self.device.free(address, size)
        return gone

    def _reclaim(self, room: int, spared: int, handed: list[int] | None) -> bool:
        """`reclaim`, with `spared` bytes of the limit left to cached blocks."""
        assert self.reclaim is not None
        self.spared = spared
        try:
            return self.reclaim(self, room, handed)
        finally:
            self.spared = 0

    def _regroup(self, room: int, limit: int) -> bool:
        """Turn cached blocks into one of `room` bytes, where there are enough.

        See Note [Budget] 5.
        """
        join = self.device.limits.join
        if join is None or not self.joins or room % PAGE or self.live + room > limit:
            return False
        self.regrouped += 1
        if self.held <= limit and self._cut(room):
            return True
        with Uninterrupted():
            pieces = self._gather(room)
            gained = sum([size for _, size in pieces])
            over = self.held + room - gained - limit
            if 0 < over <= self.held - self.live - gained:  # in small blocks
                self.trim(over, PAGED)
            if pieces and self.held + room - gained <= limit:
                self.held += room - gained  # counted first, as in `fresh`
                try:
                    whole = pieces[0][1] == room
                    made = pieces[0][0] if whole else join(pieces, room)
                    self.blocks(room).append(made)
                    return True
                except OutOfMemoryError:
                    self.held -= room - sum([size for _, size in pieces])
            for address, size in pieces:
                self.blocks(size).append(address)
        return False

    def _cut(self, room: int) -> bool:
        """Cut `room` bytes off the smallest larger block that is cached; whether there is one."""
        free, rooms = self.free, self.rooms
        if len(rooms) != len(free):
            rooms = self.rooms = sorted(free)
        for number in range(bisect_left(rooms, max(room + 1, PAGED)), len(rooms)):
            size = rooms[number]
            if size % PAGE or not free[size]:
                continue
            blocks, rest, made = free[size], self.blocks(size - room), self.blocks(room)
            if not blocks:  # another thread was quicker
                continue
            address = blocks[-1]
            del blocks[-1]
            try:
                rest.append(address + room)
            finally:  # Ctrl-C
                made.append(address)
            return True
        return False

    def _gather(self, room: int) -> list[tuple[int, int]]:
        """Cached runs of `room` bytes, or all that there are; the last is cut.

        The smallest that suffices is taken, else the largest.
        """
        pieces: list[tuple[int, int]] = []
        sizes, runs = self._runs(min(room, PAGED))
        while room > 0 and runs:
            _, address = runs.pop(min(bisect_left(runs, (room,)), len(runs) - 1))
            while room > 0 and address in sizes:
                size = sizes[address]
                try:
                    self.free[size].remove(address)
                except ValueError:  # another thread was quicker
                    address += size
                    continue
                part = min(size, room)
                if part < size:
                    self.blocks(size - part).append(address + part)
                if pieces and sum(pieces[-1]) == address:
                    pieces[-1] = pieces[-1][0], pieces[-1][1] + part
                else:
                    pieces.append((address, part))
                room -= part
                address += size
        return pieces

    def _runs(self, least: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """The cached blocks that lie on pages of their own: the size of each, by address.

        Their runs of `least` bytes and more, the smallest first: the bytes, and the address.
        """
        free = self.free
        sizes = {
            address: room
            for room in list(free)
            if not room % PAGE
            for address in free[room]
            if room >= PAGED or not address % PAGE
        }
        runs: list[tuple[int, int]] = []
        start = end = 0
        for address in (*sorted(sizes), 0):
            if address != end:
                if end - start >= least:
                    runs.append((end - start, start))
                start = address
            end = address + sizes.get(address, 0)
        return sizes, sorted(runs)


class Scratch:
    """`with Scratch(pool, room, ...) as (a, b):` blocks that are freed at the end of the block."""

    __slots__ = ("pool", "rooms", "taken")

    used: ClassVar[dict[Pool, int]] = {}  # bytes of blocks that are in use

    def __init__(self, pool: Pool, *rooms: int) -> None:
        self.pool = pool
        self.rooms = rooms
        self.taken: list[tuple[int, int]] = []

    @unheard
    def __enter__(self) -> list[int]:
        taken, used = self.taken, self.used
        used.setdefault(self.pool, 0)
        addresses = []
        try:
            for room in self.rooms:
                address = self.pool.take(room)
                used[self.pool] += room
                taken.append((address, room))
                addresses.append(address)
        except BaseException:
            self._give_back()
            raise
        return addresses

    @unheard
    def __exit__(self, *_: object) -> None:
        self._give_back()

    @unheard
    def _give_back(self) -> None:
        room = sum([room for _, room in self.taken])
        self.used[self.pool] -= room  # here no other thread runs between the read and the write
        self.pool.give_all(self.taken)


class Storage:
    """One block of device memory; it is freed with its last holder.

    `address` is None while the bytes may be dropped, or are: then it has a `recipe`, and `block`
    has their address, which only `tape/memory/replay.py` reads (see Note [Replay]). `version`
    counts in-place writes, and `written`, set by the first of them, has the last one's source line.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "block",
        "blocks",
        "copy",
        "pool",
        "recipe",
        "room",
        "version",
        "windows",
        "written",
    )

    is_pinned = False  # whether it is page-locked host memory (`Pinned`)
    address: int | None
    block: int | None  # set with the first recipe
    copy: Any  # set with the first recipe; see Note [Offload]
    recipe: Any  # set in a region only
    windows: Any  # see tape/memory/windows.py; set by the first
    written: Any  # see tape/record/written.py

    def __init__(self, pool: Pool, room: int) -> None:
        self.address = None
        self.blocks = pool.blocks(room)
        self.pool = pool
        self.room = room
        self.version = 0
        self.recipe = None
        self.address = pool.take(room)

    @staticmethod
    @unheard
    def at(pool: Pool, address: int, room: int, blocks: Any) -> Storage:
        """A storage of the first of `blocks`, which `address` is; the block is counted as held."""
        made = object.__new__(Storage)
        made.address = None
        made.blocks, made.pool, made.room, made.version = blocks, pool, room, 0
        made.recipe = None
        del blocks[0]
        made.address = address
        pool.live += room
        if pool.live > pool.peak:
            pool.peak = pool.live
        return made

    @property
    def present_address(self) -> int | None:
        """The address of the bytes; None where they are dropped.

        It is valid while the storage is pinned or has no recipe.
        """
        return self.address if self.recipe is None else self.block

    @unheard
    def __del__(self) -> None:
        # `Pool.give`, inlined: this runs for every result of every call. Weak references are
        # cleared only afterwards: a thread that reaches the storage through one, when the block is
        # on the list, must not find the block here too.
        try:
            address = self.address
            if address is None:
                address, self.block, self.recipe = self.block, None, None
                if address is None:
                    return
            self.address = None
            self.pool.live -= self.room
            self.blocks.append(address)
        except AttributeError:  # it never had a block: Ctrl-C came first, or there was no memory
            return


class Lent(Storage):
    """Memory of another owner, such as a NumPy array, that lives while this does; not counted."""

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
        """Nothing to free."""
        try:
            if self.address is not None:
                self.pool.take_back(self.address, self.room)
        except AttributeError:  # Ctrl-C came before it had an address
            return


class Part(Lent):
    """Some bytes of the storage `owner.memory`: a write to one is a write to the other."""

    __slots__ = ()

    owner: Any

    def __init__(self, pool: Pool, address: int, room: int, owner: Any) -> None:
        self.address = address
        self.blocks = []
        self.pool = pool
        self.room = room
        self.recipe = None
        self.owner = owner
        pool.lend(address, room)

    @property
    def version(self) -> int:
        number: int = self.owner.memory.version
        return number

    @version.setter
    def version(self, number: int) -> None:
        self.owner.memory.version = number
