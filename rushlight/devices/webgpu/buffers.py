"""Blocks of memory as wgpu buffers: addresses, copies and status words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import ALL, FLOAT, DType, bfloat16, float16, float32, float64
from rushlight.core.errors import BoundsError, DeviceError, OutOfMemoryError
from rushlight.core.interrupts import Uninterrupted, unheard
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Limits, Marks
from rushlight.devices.webgpu.adapter import TIMING, Opened
from rushlight.devices.webgpu.copies import Copies
from rushlight.devices.webgpu.driver import Driver
from rushlight.devices.webgpu.marks import WebGPUMarks
from rushlight.devices.webgpu.stream import BLOCKS
from rushlight.emit.wgsl.attend import widest
from rushlight.emit.wgsl.contract import Occupied, occupied_by_default
from rushlight.emit.wgsl.types import NATIVE_FLOAT64

NUMBER_BITS = 40  # an address is (buffer number << 40) + byte offset
OFFSET_MASK = (1 << NUMBER_BITS) - 1
MOST_BINDINGS = 8
STATUS_WORDS = 4096


class Buffers(Driver):
    """A driver with one buffer per block. Addresses are (buffer number << 40) + byte offset.

    `pool` gives the pool of launches' scratch blocks.
    """

    def __init__(self, opened: Opened, pool: Callable[[], Pool]) -> None:
        super().__init__(opened)
        self.pool = pool
        self.copies = Copies(self)
        self.most_bindings = max(
            MOST_BINDINGS, opened.limits["max-storage-buffers-per-shader-stage"]
        )
        timed = TIMING in opened.gpu.features
        self.limits = _limits(opened, (lambda: WebGPUMarks(self)) if timed else None)
        self.users: dict[int, set[Any]] = {}  # by buffer: (Built, key) of the bind groups on it
        self.compiled: dict[Any, None] = {}  # (Built, aliases, form), the oldest first
        self.status_used = False
        self.occupied: Occupied = occupied_by_default  # see Note [Measured tiles]
        self._buffers: dict[int, Any] = {}
        self._next = 1
        self._labels: dict[str, int] = {}
        self._status = self.alloc(STATUS_WORDS * 4)

    def buffer(self, number: int) -> Any:
        found = self._buffers.get(number)
        if found is None:
            raise DeviceError(
                f"webgpu: no block has the address {number << NUMBER_BITS:#x}; it was freed, or is "
                "not webgpu's"
            )
        return found

    def alloc(self, nbytes: int) -> int:
        if nbytes > self.limits.largest_block:
            raise OutOfMemoryError(
                f"webgpu: {nbytes} bytes in one block; this adapter binds at most "
                f"{self.limits.largest_block}"
            )
        with self.lock:
            try:
                buffer = self._create(nbytes)
            except self.errors:
                self.wait()  # freed blocks are destroyed when their work is done
                try:
                    buffer = self._create(nbytes)
                except self.errors as error:
                    raise OutOfMemoryError(f"webgpu: {nbytes} bytes: {error}") from error
            number = self._next
            self._next += 1
            self._buffers[number] = buffer
        return number << NUMBER_BITS

    def _create(self, nbytes: int) -> Any:
        usage = self.wgpu.BufferUsage
        size = max(64, -(-nbytes // 4) * 4)
        return self.gpu.create_buffer(
            size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        )

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        with Uninterrupted(), self.lock:
            number = address >> NUMBER_BITS
            buffer = self._buffers.pop(number)
            for built, key in list(self.users.get(number, ())):
                built.forget(key)
            self.users.pop(number, None)
            self.stream.doomed.append(buffer)
            if self.stream.idle:
                self.stream.flush()

    def copy_in(self, address: int, source: memoryview) -> None:
        with self.lock:
            self.copies.write(
                self.buffer(address >> NUMBER_BITS), address & OFFSET_MASK, source.cast("B")
            )

    def copy_out(self, address: int, target: memoryview) -> None:
        with self.lock:
            self.copies.read(
                self.buffer(address >> NUMBER_BITS), address & OFFSET_MASK, target.cast("B")
            )
            self._check_status()

    def status_word(self, label: str) -> int:
        with self.lock:
            place = self._labels.setdefault(label, len(self._labels))
            if place >= STATUS_WORDS:
                raise DeviceError(f"webgpu: more than {STATUS_WORDS} status words")
            return self._status + 4 * place

    def synchronize(self) -> None:
        with self.lock:
            if not self.status_used:
                self.wait()
            self._check_status()

    def wait(self) -> None:
        """Wait for all work, and leave errors for `synchronize`."""
        self._read_status(1)  # a read waits for all work before it

    def _read_status(self, words: int) -> bytearray:
        content = bytearray(4 * words)
        self.copies.read(self.buffer(self._status >> NUMBER_BITS), 0, memoryview(content))
        return content

    def _check_status(self) -> None:
        if not self.status_used:
            return
        self.status_used = False
        words = self._read_status(len(self._labels))
        bad = [
            label for label, place in self._labels.items() if any(words[4 * place : 4 * place + 4])
        ]
        if bad:
            self.copies.write(
                self.buffer(self._status >> NUMBER_BITS), 0, memoryview(bytes(len(words)))
            )
            raise BoundsError(f"{', '.join(bad)}: an index is out of range")


def _limits(opened: Opened, marks: Callable[[], Marks] | None) -> Limits:
    largest = min(
        opened.limits["max-storage-buffer-binding-size"], opened.limits["max-buffer-size"], 1 << 31
    )
    dtypes = tuple(d for d in ALL if d is not float64 or NATIVE_FLOAT64 in opened.features)
    return Limits(
        dtypes=dtypes,
        host_memory=False,
        asynchronous=True,
        largest_block=largest // 64 * 64,
        description=opened.description,
        convolves=("image", "back", "weights"),
        attends=_widest_heads(opened.limits),
        adds=tuple(d for d in FLOAT if d in dtypes),
        software=opened.software,
        own=STATUS_WORDS * 4 + BLOCKS,
        marks=marks,
        remembers=True,
    )


def _widest_heads(limits: dict[str, int]) -> tuple[tuple[DType, int], ...]:
    found = widest(
        limits["max-compute-workgroup-storage-size"], limits["max-storage-buffers-per-shader-stage"]
    )
    return tuple((dtype, found) for dtype in (float32, float16, bfloat16))
