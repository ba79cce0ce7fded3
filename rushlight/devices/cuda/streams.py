"""Copies beside the kernels: queues, marks in them, and pinned host memory.

# Note [Streams]
1. All kernels of a device run on one stream, in the order of the calls. That order fulfils every
   order that a program's streams and events demand, since an event is recorded before it is waited
   for. A side stream carries copies: a `Queue`.
2. A block that a queue fills is the queue's own (`Queue.take`). When its storage ends, the block
   comes back with a mark of the kernels so far, and the next copy into it waits for that mark: for
   no later kernels. So no block is reused while a stream still works on it, and `record_stream` has
   nothing to add.
3. Kernels wait for a copy where the program says so (`Queue.wait` of the main queue), and in the
   block of the side stream: the first launch after the copy there waits for it. The launcher reads
   one word, the event in question (`Arrivals`); leaving the block clears it.
4. Pinned memory is freed into a cache. A block that a copy still reads or fills leaves the cache
   when the copy's mark is done.
5. Waiting for a mark on the device costs the host nothing; `Mark.done` and `Mark.wait` are the
   host's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

from rushlight.core import locks
from rushlight.core.errors import DeviceError, OutOfMemoryError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.devices.shared.pinned import Pinned

_UNTIMED = 2  # cudaEventDisableTiming
_BESIDE = 1  # cudaStreamNonBlocking: not ordered with the main stream
_MOST_CACHED = 1 << 32  # bytes of pinned memory that are cached


class _Ending:
    """Gives a handle back to the driver when it ends itself.

    The collector calls every `__del__` of a cycle before it clears anything, in any order, and one
    of them may keep a mark (`Pinned.__del__`) or use one. So the `__del__` of a mark leaves its
    event to a new object, which the collection that runs does not know: it ends after all holders
    of the mark, or with a mark that was kept.
    """

    __slots__ = ("destroy", "handle")

    def __init__(self, destroy: Callable[[int], object], handle: int) -> None:
        self.destroy = destroy
        self.handle = handle

    @unheard
    def __del__(self) -> None:
        try:
            self.destroy(self.handle)
        except (AttributeError, TypeError):  # Ctrl-C came first, or the interpreter ends
            return


class Mark:
    """A place in a queue; it is done when the work before it is."""

    __slots__ = ("ending", "event", "runtime")

    def __init__(self, runtime: Any, timed: bool = False) -> None:
        self.runtime = runtime
        self.event = int(runtime.eventCreateWithFlags(0 if timed else _UNTIMED))

    def done(self) -> bool:
        return int(self.runtime.eventQuery(self.event)) == 0

    def wait(self) -> None:
        """Have the host wait."""
        _checked(self.runtime, self.runtime.eventSynchronize, self.event)

    def since(self, first: Mark) -> float:
        """Milliseconds from another mark to this one; both are timed and done."""
        return float(self.runtime.eventElapsedTime(first.event, self.event))

    @unheard
    def __del__(self) -> None:
        try:
            self.ending = _Ending(self.runtime.eventDestroy, self.event)
        except (AttributeError, TypeError):  # none was made, or the interpreter ends
            return


class Arrivals:
    """The word that launchers read: the event that the next kernel waits for, or 0."""

    def __init__(self) -> None:
        self.word = ctypes.c_int64(0)
        self.mark: Mark | None = None  # keeps the event
        self.owner: Queue | None = None

    def begin(self, queue: Queue) -> None:
        """A block of a side stream begins: kernels in it follow the stream's copies."""
        queue.launched = False
        self.expect(queue, queue.mark())

    def expect(self, queue: Queue, mark: Mark) -> None:
        """Have the next kernel wait for a mark of a queue."""
        if self.owner is queue:
            self._look(queue)
        elif self.word.value and self.mark is not None:  # of a block around, or another thread's
            queue.main.wait(self.mark)
        self.word.value = 0
        self.owner, self.mark = queue, mark
        self.word.value = mark.event

    def end(self, queue: Queue) -> bool:
        """A block ends; whether kernels may have been launched in it."""
        if self.owner is not queue:
            return True
        self._look(queue)
        self.word.value = 0
        self.owner = self.mark = None
        return queue.launched

    def _look(self, queue: Queue) -> None:
        if not self.word.value:
            queue.launched = True


class _Returned(list[tuple[int, Mark]]):
    """A queue's free blocks of one size, each with a mark of the kernels that used it."""

    __slots__ = ("main",)

    def __init__(self, main: Queue) -> None:
        super().__init__()
        self.main = main

    def append(self, address: Any) -> None:
        """Called by `Storage.__del__`."""
        super().append((address, self.main.mark()))


class Queue:
    """A stream of the driver; the main one, number 0, has the kernels."""

    def __init__(self, runtime: Any, main: Queue | None, priority: int = 0) -> None:
        self.runtime = runtime
        self.main = self if main is None else main
        self.is_own = main is not None
        self.handle = _make_stream(runtime, priority) if self.is_own else 0
        self.free: dict[int, _Returned] = {}
        self.holding: list[tuple[Mark, object]] = []  # what unfinished copies need
        self.launched = False  # whether its block has launched kernels

    def mark(self, timed: bool = False) -> Mark:
        """A mark after the work so far."""
        made = Mark(self.runtime, timed)
        self.runtime.eventRecord(made.event, self.handle)
        return made

    def again(self, mark: Mark) -> None:
        """Move a mark to the end of the work so far."""
        self.runtime.eventRecord(mark.event, self.handle)

    def wait(self, mark: Mark) -> None:
        """Have the work from here on wait for a mark."""
        self.runtime.streamWaitEvent(self.handle, mark.event, 0)

    def done(self) -> bool:
        return int(self.runtime.streamQuery(self.handle)) == 0

    def synchronize(self) -> None:
        _checked(self.runtime, self.runtime.streamSynchronize, self.handle)
        self.holding.clear()

    def fill(self, address: int, host: int, nbytes: int) -> None:
        """Copy from pinned host memory."""
        kind = self.runtime.memcpyHostToDevice
        _checked(self.runtime, self.runtime.memcpyAsync, address, host, nbytes, kind, self.handle)

    def read(self, host: int, address: int, nbytes: int) -> None:
        """Copy to pinned host memory."""
        kind = self.runtime.memcpyDeviceToHost
        _checked(self.runtime, self.runtime.memcpyAsync, host, address, nbytes, kind, self.handle)

    def hold(self, mark: Mark, kept: object) -> None:
        """Keep an object until a mark is done."""
        self.holding = [(m, o) for m, o in self.holding if not m.done()]
        self.holding.append((mark, kept))

    def take(self, pool: Pool, room: int) -> Storage:
        """A block that this queue may fill."""
        if self is self.main:
            return Storage(pool, room)
        blocks = self.free.get(room)
        if blocks is None:
            if not self.free:
                pool.aside.append(self.trim)
            blocks = self.free[room] = _Returned(self.main)
        if not blocks:
            blocks.append(pool.fresh(room))
        address, mark = blocks[0]
        self.wait(mark)
        return Storage.at(pool, address, room, blocks)

    def trim(self, pool: Pool) -> int:
        """Free the cached blocks; the bytes freed. Called by `Pool.trim`."""
        gone = 0
        for room, blocks in self.free.items():
            while blocks:
                address, mark = blocks[0]
                del blocks[0]
                pool.held -= room
                gone += room
                self.main.wait(mark)
                pool.device.free(address, room)
        return gone

    @unheard
    def __del__(self) -> None:
        try:
            if self.is_own:
                # Its work still completes.
                self.ending = _Ending(self.runtime.streamDestroy, self.handle)
        except (AttributeError, TypeError):
            return


class Queues:
    """The queues of one device, and its pinned memory. See Note [Streams]."""

    def __init__(self, runtime: Any, arrivals: Arrivals) -> None:
        self.runtime = runtime
        self.main = Queue(runtime, None)
        self.arrivals = arrivals
        self.pinned = PinnedBlocks(runtime)

    def open(self, priority: int = 0) -> Queue:
        """Another queue."""
        return Queue(self.runtime, self.main, priority)

    def adopt(self, handle: int) -> Queue:
        """The queue of a stream that another library made."""
        if handle == self.main.handle:
            return self.main
        made = Queue(self.runtime, None)
        made.main, made.handle = self.main, handle
        return made

    def pin(self, pool: Pool, room: int) -> Pinned:
        """Pinned memory, which the host's `pool` counts."""
        return Pinned(pool, room, self.pinned)

    def brought(self, pool: Pool, room: int, source: Pinned, offset: int, nbytes: int) -> Storage:
        """A new storage, filled from pinned memory by the current queue; the host does not wait."""
        queue = Pool.queue(pool) or self.main
        storage = queue.take(pool, room)
        assert storage.address is not None and source.address is not None
        queue.fill(storage.address, source.address + offset, nbytes)
        mark = queue.mark()
        source.note(mark)
        if queue is not self.main:
            self.arrivals.expect(queue, mark)
        return storage

    def sent(self, target: Pinned, offset: int, source: Storage, at: int, nbytes: int) -> None:
        """Copy to pinned memory by the current queue; the host does not wait."""
        queue = Pool.queue(source.pool) or self.main
        assert target.address is not None
        if queue is not self.main:
            queue.wait(self.main.mark())
        queue.read(target.address + offset, at, nbytes)
        mark = queue.mark()
        target.note(mark)
        if queue is not self.main:
            queue.hold(mark, source)

    @cached_property
    def outward(self) -> Queue:
        """The queue of copies to the host that nobody has asked for by a stream."""
        return self.open()

    @cached_property
    def inward(self) -> Queue:
        return self.open()

    def save(self, host: Pool, room: int, at: int, nbytes: int) -> tuple[Pinned, Mark]:
        """Pinned memory that a copy beside the kernels fills, and the copy's end.

        The caller keeps the bytes at `at` until then, or has kernels wait for it.
        """
        block, queue = self.pin(host, room), self.outward
        assert block.address is not None
        queue.wait(self.main.mark())
        queue.read(block.address, at, nbytes)
        mark = queue.mark()
        block.note(mark)
        return block, mark

    def restore(self, address: int, source: Pinned, nbytes: int) -> Mark:
        """Fill a block from saved bytes, beside the kernels; the copy's end."""
        queue = self.inward
        assert source.address is not None
        for mark in source.marks:
            queue.wait(mark)
        queue.wait(self.main.mark())  # the block's last kernels
        queue.fill(address, source.address, nbytes)
        mark = queue.mark()
        source.note(mark)
        return mark


class PinnedBlocks:
    """Page-locked host memory by size; taking it from the driver is slow, so it is kept."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.free: dict[int, list[int]] = {}
        self.busy: list[tuple[int, int, list[Mark]]] = []
        self.cached = 0
        self.lock = locks.lock()

    def take(self, room: int) -> int:
        with self.lock:
            self._sweep()
            blocks = self.free.get(room)
            if blocks:
                self.cached -= room
                return blocks.pop()
        for attempt in (0, 1):
            try:
                return int(self.runtime.hostAlloc(room, 1))
            except self.runtime.CUDARuntimeError as error:
                if attempt or not self.trim():
                    raise OutOfMemoryError(f"{room} bytes of pinned memory: {error}") from error
        raise AssertionError

    def give(self, address: int, room: int, marks: list[Mark]) -> None:
        with self.lock:
            self.busy.append((address, room, marks))

    def _sweep(self) -> None:
        """Move blocks whose copies have ended to the cache."""
        waiting = []
        for address, room, marks in self.busy:
            if not all(mark.done() for mark in marks):
                waiting.append((address, room, marks))
            elif self.cached + room > _MOST_CACHED:
                self.runtime.freeHost(address)
            else:
                self.cached += room
                self.free.setdefault(room, []).append(address)
        self.busy = waiting

    def trim(self) -> int:
        """Give the cached blocks back to the system; the bytes freed."""
        with self.lock:
            self._sweep()
            gone, self.cached = self.cached, 0
            for blocks in self.free.values():
                while blocks:
                    self.runtime.freeHost(blocks.pop())
        return gone


def _make_stream(runtime: Any, priority: int) -> int:
    make = getattr(runtime, "streamCreateWithPriority", None)
    if priority and make is not None:
        return int(make(_BESIDE, priority))
    return int(runtime.streamCreateWithFlags(_BESIDE))


def _checked(runtime: Any, function: Any, *args: Any) -> None:
    try:
        function(*args)
    except runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"work beside the kernels of cuda failed: {error}; an earlier kernel may be the cause"
        ) from error
