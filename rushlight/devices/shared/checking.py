"""The checking build, `RUSHLIGHT_CHECK=1`: a device and a pool that verify every use of memory.

Owns: guard pages around host blocks, poison in new ones, the table of blocks, the check of every
launch and copy.
Takes: a device. Gives: one that behaves the same, or raises ForeignAccess before memory is touched.
Never: changes what a correct program computes.

# Note [Checking build]
1. Every operand of every launch has a reach (`kernel/extents.py`). It must lie in one live block of
   the pool, or in memory that was lent.
2. A block of host memory lies between two protected pages: code that walks past a block faults
   there.
3. A block on the pool's free list is protected too, and a freed block keeps its addresses for a
   while: a use after free faults, or is refused by rule 1.
4. A new block is filled with the byte `RUSHLIGHT_CHECK_POISON`: two runs with two bytes differ
   where a result depends on memory that nobody wrote.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
from bisect import bisect_right, insort
from collections import Counter, deque
from typing import Any

from rushlight.core import config, locks
from rushlight.core.errors import ForeignAccess
from rushlight.core.interrupts import Uninterrupted, unheard
from rushlight.devices.cpu import memory
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Device, Launch, Tell
from rushlight.kernel.extents import extents
from rushlight.kernel.shapes import Kernel, Library

PAGE = mmap.PAGESIZE
RESTING = 512  # freed blocks whose addresses are not reused yet


class Guarded:
    """Host blocks, each on its own pages between two protected ones."""

    def __init__(self) -> None:
        self.plain: set[int] = set()  # blocks for which the system had no mappings left
        self.resting: deque[tuple[int, int]] = deque()

    def alloc(self, nbytes: int) -> int:
        pages = -(-nbytes // PAGE) * PAGE
        start = memory.map_pages(pages + 2 * PAGE, readable=False)
        if start is not None and memory.protect(start + PAGE, pages, readable=True):
            return start + PAGE + pages - nbytes
        if start is not None:
            memory.unmap_pages(start, pages + 2 * PAGE)
        address = memory.allocate(nbytes)
        self.plain.add(address)
        return address

    def free(self, address: int, nbytes: int) -> None:
        if address in self.plain:
            self.plain.discard(address)
            memory.release(address, nbytes)
            return
        self.close(address, nbytes)
        pages = -(-nbytes // PAGE) * PAGE
        self.resting.append((address + nbytes - pages - PAGE, pages + 2 * PAGE))
        if len(self.resting) > RESTING:
            memory.unmap_pages(*self.resting.popleft())

    def close(self, address: int, nbytes: int) -> None:
        """Protect a block until `open`."""
        if address not in self.plain:
            pages = -(-nbytes // PAGE) * PAGE
            memory.protect(address + nbytes - pages, pages, readable=False)

    def open(self, address: int, nbytes: int) -> None:
        if address not in self.plain:
            pages = -(-nbytes // PAGE) * PAGE
            if not memory.protect(address + nbytes - pages, pages, readable=True):
                raise MemoryError("the checking build has too many blocks; run less in one process")


class Blocks:
    """The blocks of one device: which exist, and which of them are in use."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.rooms: dict[int, int] = {}
        self.idle: set[int] = set()
        self.lent: Counter[tuple[int, int]] = Counter()

    def add(self, address: int, room: int) -> None:
        insort(self.starts, address)
        self.rooms[address] = room

    def remove(self, address: int) -> None:
        del self.starts[bisect_right(self.starts, address) - 1]
        del self.rooms[address]
        self.idle.discard(address)

    def fault(self, first: int, end: int) -> str | None:
        """The problem with a use of the bytes [first, end), or None."""
        at = bisect_right(self.starts, first) - 1
        start = self.starts[at] if at >= 0 else 0
        room = self.rooms.get(start, 0)
        if at >= 0 and end <= start + room:
            return (
                f"the block of {room} bytes at {start:#x} is free" if start in self.idle else None
            )
        # It changes meanwhile.
        if any(start <= first and end <= start + room for start, room in list(self.lent)):
            return None
        if at >= 0 and first < start + room:
            return f"the block at {start:#x} has {room} bytes"
        return "no block is there"


class FreeBlocks(list[int]):
    """A free list whose blocks are protected while they are on it."""

    def __init__(self, device: CheckedDevice, room: int) -> None:
        super().__init__()
        self.device = device
        self.room = room

    # A block always has exactly one owner, whatever other threads do and whenever Ctrl-C comes. See
    # Note [Counting and threads].

    @unheard
    def append(self, address: int) -> None:
        try:
            self.device.retire(address, self.room)
        finally:
            self += (address,)  # no call

    @unheard
    def pop(self, at: Any = -1) -> int:
        """The block has an owner already, which is not reached where this raises."""
        # Before anything that may collect garbage, whose blocks come to this list.
        address = list.pop(self)
        self.device.revive(address, self.room)
        return address

    @unheard
    def __delitem__(self, at: Any) -> None:
        """The block has no owner yet: it is on the list again where this raises."""
        address = self[at]
        try:
            list.pop(self, at)
            self.device.revive(address, self.room)
        except BaseException:
            self += (address,)
            raise


class CheckedPool(Pool):
    """A pool whose free blocks are protected, and which knows the memory that was lent to it."""

    __slots__ = ()

    def blocks(self, room: int) -> list[int]:
        found = self.free.get(room)
        return self.free.setdefault(room, FreeBlocks(self.device, room)) if found is None else found  # type: ignore[arg-type]

    def lend(self, address: int, room: int) -> None:
        self.device.known.lent[address, room] += 1  # type: ignore[attr-defined]

    def take_back(self, address: int, room: int) -> None:
        lent = self.device.known.lent  # type: ignore[attr-defined]
        lent[address, room] -= 1
        if not lent[address, room]:
            del lent[address, room]


class CheckedDevice:
    """A device whose every launch and copy is verified first. See Note [Checking build]."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = device.name
        # Guarded blocks stay whole; a list's launches are checked one by one.
        self.limits = dataclasses.replace(device.limits, join=None, steps=None, lists=None)
        self.known = Blocks()
        self.guarded = Guarded() if device.limits.host_memory else None
        self.poison = config.poison()
        self.lock = locks.reentrant_lock()  # of the table: a finaliser may run while it changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    # ---- memory ----

    def alloc(self, nbytes: int) -> int:
        guarded = self.guarded
        with Uninterrupted(), self.lock:
            address = self.device.alloc(nbytes) if guarded is None else guarded.alloc(nbytes)
            self.known.add(address, nbytes)
        self._fill(address, nbytes)
        return address

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        with Uninterrupted(), self.lock:
            self.known.remove(address)
            if self.guarded is None:
                self.device.free(address, nbytes)
            else:
                self.guarded.free(address, nbytes)

    def retire(self, address: int, room: int) -> None:
        with self.lock:
            self.known.idle.add(address)
        if self.guarded is not None:
            self.guarded.close(address, room)

    def revive(self, address: int, room: int) -> None:
        if self.guarded is not None:
            self.guarded.open(address, room)
        with self.lock:
            self.known.idle.discard(address)
        self._fill(address, room)

    def _fill(self, address: int, room: int) -> None:
        if self.guarded is not None:
            ctypes.memset(address, self.poison, room)

    # ---- use ----

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        launch = self.device.build(kernel, tell)
        kind = type(kernel).__name__.lower()
        if isinstance(kernel, Library):
            kind = f"{kernel.library} {kernel.function}"
        tells = tell is not None

        def checked(*numbers: Any) -> None:
            for operand, first, end in extents(kernel, numbers, tells):
                self._check(f"{kind} kernel, operand {operand}", first, end)
            launch(*numbers)

        return checked

    def copy_in(self, address: int, source: memoryview) -> None:
        self._check("copy in", address, address + source.nbytes)
        self.device.copy_in(address, source)

    def copy_out(self, address: int, target: memoryview) -> None:
        self._check("copy out", address, address + target.nbytes)
        self.device.copy_out(address, target)

    def _check(self, what: str, first: int, end: int) -> None:
        with self.lock:
            fault = self.known.fault(first, end)
        if fault is not None:
            raise ForeignAccess(
                f"{self.name}: {what} reaches {end - first} bytes from {first:#x} on, and {fault}"
            )


def checked_pool(device: Device) -> Pool:
    """The pool of a device in the checking build."""
    return CheckedPool(CheckedDevice(device))
