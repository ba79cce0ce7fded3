"""Which tiles the matrix products of an adapter have: measured once, and remembered.

# Note [Measured tiles]
1. Few large tiles leave a part of a GPU idle, and small ones read their operands more often. The
   number of large tiles from which they are faster depends on the adapter.
2. The first product for which it matters times both for each of `COUNTS`. The least of these
   for which large tiles are faster is kept on disk, under the adapter's description.
3. Bits do not depend on it: Note [Products in WGSL] 1.
"""

from __future__ import annotations

import hashlib
import struct
import time

from rushlight.core.dtypes import float32
from rushlight.devices.shared.cache import read_object, write_object
from rushlight.devices.webgpu.buffers import NUMBER_BITS, Buffers
from rushlight.devices.webgpu.launch import Built
from rushlight.emit.wgsl.contract import ENOUGH, LARGE, SMALL, Tiling
from rushlight.kernel.shapes import Contract

COUNTS = (4, 16, 64)
_VERSION = 1
_DEPTH = 256  # of the products that are timed
_SPAN = 4e-3  # seconds of a timing
_MOST_RUNS = 256


class Measured:
    """Whether so many large tiles are better than small ones: see Note [Measured tiles]."""

    def __init__(self, device: Buffers) -> None:
        self.device = device
        self.least: int | None = None

    def __call__(self, tiles: int) -> bool:
        if self.least is None:
            if not COUNTS[0] <= tiles < ENOUGH:
                return tiles >= ENOUGH
            with self.device.lock:
                self.least = self._remembered()
        return tiles >= self.least

    def _remembered(self) -> int:
        identity = f"{_VERSION} {self.device.limits.description}"
        key = f"tiles-{hashlib.sha256(identity.encode()).hexdigest()}"
        kept = read_object("webgpu", key)
        if kept is not None:
            return int(kept)
        found = next((count for count in COUNTS if self._is_faster(count)), ENOUGH)
        write_object("webgpu", key, str(found).encode())
        return found

    def _is_faster(self, tiles: int) -> bool:
        """Whether large tiles are faster where there are so many."""
        size = LARGE * round(tiles**0.5)
        rooms = [4 * size * size, 4 * size * _DEPTH, 4 * size * _DEPTH]
        places = [self.device.alloc(room) for room in rooms]
        try:
            small, large = (seconds(self.device, places, size, side) for side in (SMALL, LARGE))
        finally:
            for place, room in zip(places, rooms, strict=True):
                self.device.free(place, room)
        return large < small


def seconds(device: Buffers, places: list[int], size: int, side: int) -> float:
    """The time of a product of square matrices in tiles of this side."""
    built = Built(device, Contract(float32, float32))
    form = Tiling(side, "k", "g", "v").form
    found = built.binding(tuple(place >> NUMBER_BITS for place in places), form)
    strides = (0, 0, size, 1, 0, 0, _DEPTH, 1, 0, 0, size, 1)
    numbers = (0, 0, 0, 0, 0, 1, 1, size, size, _DEPTH, *strides)
    block = struct.pack(built.layout.pack_format(), *numbers)
    groups, work = (size // side) ** 2, side * side * _DEPTH
    runs = 0
    while True:
        began = time.perf_counter()
        for _ in range(max(1, runs)):  # first one that compiles, and is not counted
            device.stream.record(found[0], found[1], block, (groups, 1), groups * work)
        device.wait()
        took = time.perf_counter() - began
        if runs and (took > _SPAN or runs > _MOST_RUNS):
            return took / runs
        runs = 4 * runs or 1
