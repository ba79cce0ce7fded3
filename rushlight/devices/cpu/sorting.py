"""Sort kernels on the CPU: the size of their scratch, taken from the pool for a launch."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.devices.cpu import stub, threads
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm import kernels
from rushlight.emit.llvm.sort import FEW, record_bits
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Sort

_LONG = 1 << 16  # rows above which there is at most one part per thread


def build(kernel: Sort, runner: int, pool: Callable[[], Pool]) -> Launch:
    source = Source(key_of(kernel), lambda: kernels.emit(kernel), combine=True)
    native = stub.callable_of(source, kernels.arguments(kernel), "sort", runner)
    record = record_bits(kernel.dtype) // 8

    def launch(values: int, positions: int, source: int, *numbers: int) -> None:
        outer, axis, inner, keep = numbers[:4]
        rows = outer * inner
        if not rows or not keep:
            return
        room = axis if keep * 4 > axis else min(axis, max(2 * keep, FEW))
        parts = min(rows, threads.count() * (1 if room > _LONG else 4))
        here, size = pool(), room_for(2 * room * record * parts)
        scratch = here.take(size)
        try:
            native(values, positions, source, scratch, *numbers, room, parts)
        finally:
            here.give(scratch, size)

    return launch
