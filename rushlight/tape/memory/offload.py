"""Offloading: the bytes of a dropped value in host memory or in a file, copied back when needed.

# Note [Offload]
1. Inside a budget with `offload`, `reclaim` copies a value's bytes out before it drops them: to a
   block of the CPU's pool, which counts it, or to a range of an anonymous file. A replay copies
   them back where it would run the recipe (`Frame.look`).
2. `Storage.copy` is valid while it is there: a new recipe, which a write leaves, and `make_plain`
   remove it. A value that was copied back keeps it, so the next drop copies nothing.
3. A *settled* storage can be dropped, but not rebuilt: its recipe has no sources and never runs.
   Where a storage inside such a budget would become plain, since its chain of recipes ends, since
   a source is overwritten, or as the gradient of a leaf, it is settled. Recipes read it as they
   read plain storages, by storage and version, and a write to it is preceded by `before_write`.
4. No plain storage is settled, unless nobody else has it yet: a thread outside of the budget may
   be using its address, without LOCK. So what was made before the budget, was read outside of it,
   or is seen by a NumPy array stays.
5. A copy that fails (a full disk, no host memory) drops nothing; from then on the budget rebuilds,
   and settled values stay.
6. Where the device copies beside its kernels (`Limits.queues`), the host's side is pinned memory
   and nothing waits on the host. Kernels that reuse a dropped block wait for its copy (`leave`).
   With a drop, copies of the values that rank next are begun (`copy_ahead`): their own drops then
   wait for nothing. With a value that comes back, the values needed next come too, into blocks that
   are free (`_bring_ahead`); a request that finds nothing to drop takes these blocks (`release`).
   Elsewhere copies are synchronous: `Device.copy_out` and `copy_in`, after all earlier work.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, ClassVar

from rushlight.core.errors import (
    BudgetError,
    OutOfMemoryError,
    RushlightError,
    RushlightWarning,
)
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Pool, Storage
from rushlight.devices.shared.registry import pool_of
from rushlight.devices.shared.transfers import count_copy
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, WALK

_CHUNK = 1 << 22  # bytes that are staged at a time between a file and memory the host cannot read
_LEAST_TIMED = 1 << 16  # bytes of a copy whose time tells the bandwidth
_MOST_TIMED = 16  # launches whose time tells the speed of a device


class Offloaded:
    """Bytes copied out and back since the start, and those that copies hold."""

    out = 0
    back = 0
    held = 0
    watch: ClassVar[Any] = None  # a recorder: Note [Recording memory]


class Copy:
    """The bytes of a storage outside of its block; none for a device that computes nothing."""

    __slots__ = ("__weakref__", "room")

    def __init__(self, storage: Storage) -> None:
        began = perf_counter()
        self.read(storage)
        Offloaded.out += storage.room
        Offloaded.held += storage.room
        self.room = storage.room
        if Offloaded.watch is not None:
            Offloaded.watch.copied_out(storage, perf_counter() - began)

    def read(self, storage: Storage) -> None:
        """Copy out."""

    def leave(self, storage: Storage) -> None:
        """The device's bytes are dropped."""

    def back(self, storage: Storage) -> Storage:
        """A new storage with the bytes."""
        return Storage(storage.pool, storage.room)

    @unheard
    def __del__(self) -> None:
        try:
            Offloaded.held -= self.room
            self.free()
        except AttributeError:  # the copy failed
            return

    @unheard
    def free(self) -> None:
        """Called once, for a whole copy."""


class HostCopy(Copy):
    """Bytes in a block of the CPU's pool, pinned where the device copies beside its kernels."""

    __slots__ = ("ahead", "block", "main", "mark")

    def read(self, storage: Storage) -> None:
        pool, room, host = storage.pool, storage.room, pool_of("cpu")
        self.ahead: tuple[Storage, Any] | None = None  # brought back, and the copy's end
        self.mark: Any = None
        queues = pool.device.limits.queues
        if queues is not None:
            timed = room >= _LEAST_TIMED and pool not in Speed.copies
            began = queues.outward.mark(timed=True) if timed else None
            self.main = queues.main
            self.block, self.mark = queues.save(host, room, _present(storage), room)
            if timed:
                Speed.copies[pool] = (began, queues.outward.mark(timed=True), room)
        else:
            self._read_waiting(storage, host)
        count_copy(pool.device, room, to_host=True)

    def _read_waiting(self, storage: Storage, host: Pool) -> None:
        pool, room = storage.pool, storage.room
        self.block = Storage(host, room)
        timed = room >= _LEAST_TIMED and pool not in Speed.per_byte
        if timed:
            pool.device.synchronize()
        began = perf_counter()
        pool.device.copy_out(_present(storage), _view(self.block.address, room))
        if timed:
            Speed.per_byte[pool] = (perf_counter() - began) / room

    def leave(self, storage: Storage) -> None:
        """The device's bytes are dropped: kernels that reuse them wait for the copy."""
        queues = storage.pool.device.limits.queues
        if queues is None:
            return
        if self.mark is not None:
            if not self.mark.done():
                queues.main.wait(self.mark)
            self.mark = None
        _note_left(storage)

    def back(self, storage: Storage) -> Storage:
        pool = storage.pool
        queues = pool.device.limits.queues
        if queues is None:
            made = Storage(pool, self.room)
            pool.device.copy_in(made.address, _view(self.block.address, self.room))  # type: ignore[arg-type]
            count_copy(pool.device, self.room, to_host=False)
            return made
        if self.ahead is None:
            self.begin_back(pool)
        assert self.ahead is not None
        (made, mark), self.ahead = self.ahead, None
        _COMING.discard(self)
        queues.main.wait(mark)
        made.blocks = pool.blocks(self.room)
        _bring_ahead(storage)
        return made

    def begin_back(self, pool: Pool) -> None:
        """Start the copy back, beside the kernels."""
        queues, made = pool.device.limits.queues, Storage(pool, self.room)
        made.blocks = _Coming(queues, made.blocks)
        mark = queues.restore(made.address, self.block, self.room)
        self.ahead = (made, mark)
        _COMING.add(self)
        count_copy(pool.device, self.room, to_host=False)

    def let_go(self, pool: Pool) -> bool:
        """Free the block of a copy back that nobody needs yet; whether there was one."""
        if self.ahead is None:
            return False
        self.ahead = None
        _COMING.discard(self)
        return True

    @unheard
    def free(self) -> None:
        """The value ends: kernels that reuse its block wait for the copy out of it."""
        if self.mark is not None and not self.mark.done():
            self.main.wait(self.mark)


class _Coming(list[int]):
    """Where the block goes that a copy back fills: kernels that reuse it wait for the copy."""

    __slots__ = ("blocks", "queues")

    def __init__(self, queues: Any, blocks: list[int]) -> None:
        super().__init__()
        self.queues, self.blocks = queues, blocks

    @unheard
    def append(self, address: int) -> None:
        """Called by `Storage.__del__`. Ctrl-C on the way is raised at the end."""
        heard: KeyboardInterrupt | None = None
        while True:
            try:
                self.queues.main.wait(self.queues.inward.mark())
                break
            except KeyboardInterrupt as error:
                heard = error
        self.blocks.append(address)
        if heard is not None:
            try:
                raise heard
            finally:
                del heard  # its traceback refers to this frame


# ---- copies back before they are needed ----

_COMING: weakref.WeakSet[HostCopy] = weakref.WeakSet()

# The storages whose bytes are on the host alone, the last dropped last.
_LEFT: dict[Pool, list[weakref.ref[Storage]]] = {}
_MOST_LEFT = 4096
_AHEAD = 2  # values that are brought back before they are needed


def _note_left(storage: Storage) -> None:
    left = _LEFT.setdefault(storage.pool, [])
    left.append(weakref.ref(storage))
    if len(left) > _MOST_LEFT:
        _LEFT[storage.pool] = [ref for ref in left if _is_left(ref())]


def _is_left(storage: Storage | None) -> bool:
    return storage is not None and storage.block is None and isinstance(storage.copy, HostCopy)


def _bring_ahead(storage: Storage) -> None:
    """Start copies of what is needed next, as far as there is room.

    That is what foresight says, or the last dropped: backward passes go the other way. Forward
    passes need neither, where no budget plans them.
    """
    pool, left = storage.pool, _LEFT.get(storage.pool, [])
    if pool.limit is None and WALK.get() is None:
        return
    waiting: list[tuple[int, HostCopy]] = []
    coming = [copy.ahead for copy in _COMING]
    going = sum([ahead is not None and ahead[0].pool is pool for ahead in coming])
    for at in range(len(left) - 1, -1, -1):
        found = left[at]()
        if found is None or found is storage or not _is_left(found):
            del left[at]
            continue
        if found.copy.ahead is None:
            wait = FORESIGHT.wait(found.recipe)
            waiting.append((len(waiting) if wait is None else wait, found.copy))
        if len(waiting) >= 4 * _AHEAD or going >= _AHEAD:
            break
    waiting.sort(key=lambda item: item[0])
    for _, copy in waiting[: _AHEAD - going]:
        limit = pool.limit
        if not pool.free.get(copy.room) and limit is not None and pool.held + copy.room > limit:
            break
        copy.begin_back(pool)


def release(pool: Pool) -> bool:
    """Free the blocks of values that were brought back early; whether there were any."""
    found = [ref() for ref in _LEFT.get(pool, ())]
    copies = [s.copy for s in found if s is not None and isinstance(s.copy, HostCopy)]
    return sum(copy.let_go(pool) for copy in copies) > 0


class FileCopy(Copy):
    """Bytes in a range of a file."""

    __slots__ = ("file", "start")

    def __init__(self, storage: Storage, file: File) -> None:
        self.file = file
        super().__init__(storage)

    def read(self, storage: Storage) -> None:
        device, room, address = storage.pool.device, storage.room, _present(storage)
        self.start = self.file.take(room)
        if device.limits.host_memory:
            self.file.write(_view(address, room), self.start)
            return
        stage = memoryview(bytearray(min(room, _CHUNK)))
        for at in range(0, room, _CHUNK):
            part = stage[: min(_CHUNK, room - at)]
            device.copy_out(address + at, part)
            self.file.write(part, self.start + at)
        count_copy(device, room, to_host=True)

    def back(self, storage: Storage) -> Storage:
        made = Storage(storage.pool, self.room)
        assert made.address is not None
        self._write(storage.pool, made.address)
        return made

    def _write(self, pool: Pool, address: int) -> None:
        if pool.device.limits.host_memory:
            self.file.read(_view(address, self.room), self.start)
            return
        stage = memoryview(bytearray(min(self.room, _CHUNK)))
        for at in range(0, self.room, _CHUNK):
            part = stage[: min(_CHUNK, self.room - at)]
            self.file.read(part, self.start + at)
            pool.device.copy_in(address + at, part)
        count_copy(pool.device, self.room, to_host=False)

    @unheard
    def free(self) -> None:
        self.file.ranges[self.room].append(self.start)


class File:
    """A file without a name, which ends with its last copy and its place.

    Processes that a fork made share its bytes: from then on each takes ranges of another file.
    """

    every: ClassVar[weakref.WeakSet[File]] = weakref.WeakSet()
    watches_forks = False

    def __init__(self, folder: str | None) -> None:
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self.ranges: dict[int, list[int]] = {}  # unused ones by size
        self.end = 0
        self.is_shared = False
        self.every.add(self)
        if not File.watches_forks:
            File.watches_forks = True
            os.register_at_fork(after_in_parent=File.share_all, after_in_child=File.share_all)

    @classmethod
    def share_all(cls) -> None:
        for file in cls.every:
            file.is_shared = True

    def take(self, room: int) -> int:
        ranges = self.ranges.setdefault(room, [])
        if ranges:
            return ranges.pop()
        start = self.end
        self.end += room
        return start

    def write(self, source: memoryview, start: int) -> None:
        while source:
            count = os.pwrite(self.file.fileno(), source, start)
            source, start = source[count:], start + count

    def read(self, target: memoryview, start: int) -> None:
        while target:
            count = os.preadv(self.file.fileno(), [target], start)
            if not count:
                raise RushlightError(
                    "offload: the file of dropped values ends before them; another program cut it"
                )
            target, start = target[count:], start + count

    def __del__(self) -> None:
        file = getattr(self, "file", None)
        if file is not None:
            file.close()


class Offload:
    """Where a budget's dropped values go. `False`: nowhere; see `memory.budget`."""

    def __init__(self, mode: Any) -> None:
        self.is_measured = mode == "auto"
        self.to_host = mode is True or mode == "auto"
        self.to_file = mode == "disk" or isinstance(mode, os.PathLike)
        if not (self.to_host or self.to_file or mode is False):
            raise ValueError(
                f"budget: offload is True, False, 'auto', 'disk' or a folder's Path, got {mode!r}"
            )
        self.folder = os.fspath(mode) if isinstance(mode, os.PathLike) else None
        self.file: File | None = None
        self.is_full = False

    def begin(self) -> None:
        """The budget is entered, or left: values that live on keep the file. LOCK is held."""
        self.file, self.is_full = None, False
        for pool in list(_LEFT):
            release(pool)

    def takes(self, pool: Pool) -> bool:
        """Whether values of a device can be copied out."""
        if self.is_full:
            return False
        limits = pool.device.limits
        return self.to_file or (
            self.to_host and not limits.host_memory and not limits.stands_for_host
        )

    def chooses(self, storage: Storage, work: float) -> bool:
        """Whether a value is copied out rather than rebuilt by `work`."""
        if not self.takes(storage.pool):
            return False
        if not self.is_measured or storage.recipe.is_settled:
            return True
        per_work, per_byte = Speed.per_work(storage.pool), Speed.of_copy(storage.pool)
        if per_work is None:
            return False  # it is rebuilt, which is timed
        if per_byte is None:
            return storage.room >= _LEAST_TIMED  # which times the copy
        return 2.0 * storage.room * per_byte < work * per_work

    def work(self, storage: Storage, work: float) -> float:
        """The work to have a dropped value back, in the unit of a plan's cost."""
        if storage.copy is not None:
            return min(work, 0.5 * storage.room)
        if not self.takes(storage.pool):
            return work
        if not self.is_measured:
            return float(storage.room)
        per_work, per_byte = Speed.per_work(storage.pool), Speed.of_copy(storage.pool)
        if not per_work or per_byte is None:
            return float(storage.room) if storage.recipe.is_settled else work
        copying = 2.0 * storage.room * per_byte / per_work
        return copying if storage.recipe.is_settled else min(work, copying)

    def copy_ahead(self, storages: Iterable[tuple[Storage, Callable[[], float]]]) -> None:
        """Begin copies of values that may be dropped next; with each, what rebuilding it costs."""
        for storage, work in storages:
            if storage.copy is None and not self.is_full and self.chooses(storage, work()):
                self.copy(storage)

    def copies_beside(self, pool: Pool) -> bool:
        """Whether copies to the host run beside the kernels."""
        return self.to_host and not self.is_full and pool.device.limits.queues is not None

    def copy(self, storage: Storage) -> bool:
        """Copy a present storage's bytes out; whether that succeeded. The caller holds LOCK."""
        try:
            storage.copy = self._copied(storage)
        except (OSError, BudgetError, OutOfMemoryError) as error:
            self.is_full = True
            warnings.warn(
                f"offload: {storage.room} bytes could not be copied out ({error}); from here on "
                "this budget rebuilds values, and those that cannot be rebuilt stay",
                RushlightWarning,
                stacklevel=2,
            )
            return False
        return True

    def _copied(self, storage: Storage) -> Copy:
        if not storage.pool.device.limits.computes:
            return Copy(storage)
        if not self.to_file:
            return HostCopy(storage)
        if self.file is None or self.file.is_shared:
            self.file = File(self.folder)
        return FileCopy(storage, self.file)


NEVER = Offload(False)


def copy_to_host(storage: Storage) -> None:
    """Copy a present storage's bytes to host memory. The caller holds LOCK."""
    computes = storage.pool.device.limits.computes
    storage.copy = HostCopy(storage) if computes else Copy(storage)


def here() -> Offload:
    """What the innermost budget around the calling code that has a say says."""
    region = STATE.get().region
    while region is not None:
        if region.offload is not None:
            found: Offload = region.offload
            return found
        region = region.outer
    return NEVER


class Speed:
    """Seconds per byte copied and per unit of work, measured once for each device.

    Where a device has marks they are timed by it and read later: nothing waits.
    """

    per_byte: ClassVar[dict[Pool, float]] = {}
    copies: ClassVar[dict[Pool, tuple[Any, Any, int]]] = {}  # begin, end, bytes
    launches: ClassVar[dict[Pool, tuple[int, float, float]]] = {}  # count, work, seconds
    begun: ClassVar[dict[Pool, list[tuple[Any, Any, float]]]] = {}  # begin, end, work

    @classmethod
    def of_copy(cls, pool: Pool) -> float | None:
        """Seconds per byte, one way."""
        found = cls.copies.get(pool)
        if found is not None and pool not in cls.per_byte and found[1].done():
            cls.per_byte[pool] = found[1].since(found[0]) / 1e3 / found[2]
        return cls.per_byte.get(pool)

    @classmethod
    def per_work(cls, pool: Pool) -> float | None:
        begun = cls.begun.get(pool, [])
        while begun and begun[0][1].done():
            first, last, work = begun.pop(0)
            cls._add(pool, work, last.since(first) / 1e3)
        count, work, seconds = cls.launches.get(pool, (0, 0.0, 0.0))
        return seconds / work if count >= _MOST_TIMED else None

    @classmethod
    def _add(cls, pool: Pool, work: float, seconds: float) -> None:
        count, before, spent = cls.launches.get(pool, (0, 0.0, 0.0))
        cls.launches[pool] = (count + 1, before + work, spent + seconds)

    @classmethod
    def timed(cls, plan: Plan, launch: Callable[..., None]) -> Callable[..., None]:
        """The launch of a replay, timed where a budget is to measure."""
        pool = plan.pool
        count = cls.launches.get(pool, (0,))[0] + len(cls.begun.get(pool, ()))
        if count >= _MOST_TIMED or not here().is_measured:
            return launch
        queues = pool.device.limits.queues

        def run(*args: Any) -> None:
            pool.device.synchronize()
            began = perf_counter()
            launch(*args)
            pool.device.synchronize()
            cls._add(pool, plan.cost, perf_counter() - began)

        def run_marked(*args: Any) -> None:
            first = queues.main.mark(timed=True)
            launch(*args)
            last = queues.main.mark(timed=True)
            cls.begun.setdefault(pool, []).append((first, last, plan.cost))

        return run if queues is None else run_marked


def _present(storage: Storage) -> int:
    address = storage.present_address
    assert address is not None
    return address


def _view(address: int | None, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")  # type: ignore[arg-type]
