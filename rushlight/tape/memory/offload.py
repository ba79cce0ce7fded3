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
5. Copies are synchronous: `Device.copy_out` and `copy_in`, after all earlier work. One that fails
   (a full disk, no host memory) drops nothing; from then on the budget rebuilds, and settled values
   stay.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable
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
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE

_CHUNK = 1 << 22  # bytes that are staged at a time between a file and memory the host cannot read
_LEAST_TIMED = 1 << 16  # bytes of a copy whose time tells the bandwidth
_MOST_TIMED = 16  # launches whose time tells the speed of a device


class Offloaded:
    """Bytes copied out and back since the start, and those that copies hold."""

    out = 0
    back = 0
    held = 0


class Copy:
    """The bytes of a storage outside of its block; none for a device that computes nothing."""

    __slots__ = ("__weakref__", "room")

    def __init__(self, storage: Storage) -> None:
        self.read(storage)
        Offloaded.out += storage.room
        Offloaded.held += storage.room
        self.room = storage.room

    def read(self, storage: Storage) -> None:
        """Copy out."""

    def write(self, pool: Pool, address: int) -> None:
        """Copy back."""

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
    """Bytes in a block of the CPU's pool."""

    __slots__ = ("block",)

    def read(self, storage: Storage) -> None:
        device, room = storage.pool.device, storage.room
        self.block = Storage(pool_of("cpu"), room)
        timed = room >= _LEAST_TIMED and storage.pool not in Speed.per_byte
        if timed:
            device.synchronize()
        began = perf_counter()
        device.copy_out(_present(storage), _view(self.block.address, room))
        if timed:
            Speed.per_byte[storage.pool] = (perf_counter() - began) / room
        count_copy(device, room, to_host=True)

    def write(self, pool: Pool, address: int) -> None:
        pool.device.copy_in(address, _view(self.block.address, self.room))
        count_copy(pool.device, self.room, to_host=False)


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

    def write(self, pool: Pool, address: int) -> None:
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
        """The budget is entered, or left: values that live on keep the file."""
        self.file, self.is_full = None, False

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
        per_work, per_byte = Speed.per_work(storage.pool), Speed.per_byte.get(storage.pool)
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
        per_work, per_byte = Speed.per_work(storage.pool), Speed.per_byte.get(storage.pool)
        if not per_work or per_byte is None:
            return float(storage.room) if storage.recipe.is_settled else work
        copying = 2.0 * storage.room * per_byte / per_work
        return copying if storage.recipe.is_settled else min(work, copying)

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
    """Seconds per byte copied and per unit of work, measured once for each device."""

    per_byte: ClassVar[dict[Pool, float]] = {}
    launches: ClassVar[dict[Pool, tuple[int, float, float]]] = {}  # count, work, seconds

    @classmethod
    def per_work(cls, pool: Pool) -> float | None:
        count, work, seconds = cls.launches.get(pool, (0, 0.0, 0.0))
        return seconds / work if count >= _MOST_TIMED else None

    @classmethod
    def timed(cls, plan: Plan, launch: Callable[..., None]) -> Callable[..., None]:
        """The launch of a replay, timed where a budget is to measure."""
        count, work, seconds = cls.launches.get(plan.pool, (0, 0.0, 0.0))
        if count >= _MOST_TIMED or not here().is_measured:
            return launch

        def run(*args: Any) -> None:
            plan.pool.device.synchronize()
            began = perf_counter()
            launch(*args)
            plan.pool.device.synchronize()
            cls.launches[plan.pool] = (
                count + 1,
                work + plan.cost,
                seconds + perf_counter() - began,
            )

        return run


def _present(storage: Storage) -> int:
    address = storage.present_address
    assert address is not None
    return address


def _view(address: int | None, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")  # type: ignore[arg-type]
