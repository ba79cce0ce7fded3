"""Sort kernels on the CPU: the size of their scratch, taken from the pool for a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.devices.cpu import stub, threads
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm import kernels
from rushlight.emit.llvm.sort import FEW, record_bits
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Sort

_LONG = 1 << 16  # rows above which there is at most one part per thread


def scratch_sizes(kernel: Sort, numbers: Sequence[int]) -> tuple[int, int, int]:
    """The records of a part, the number of parts, and the bytes of all; 0 where there are none."""
    outer, axis, inner, keep = numbers[:4]
    rows = outer * inner
    if not rows or not keep:
        return 0, 0, 0
    room = axis if keep * 4 > axis else min(axis, max(2 * keep, FEW))
    parts = min(rows, threads.count() * (1 if room > _LONG else 4))
    return room, parts, room_for(2 * room * (record_bits(kernel.dtype) // 8) * parts)


def build(kernel: Sort, runner: int, pool: Callable[[], Pool]) -> Launch:
    source = Source(key_of(kernel), lambda: kernels.emit(kernel), combine=True)
    native = stub.callable_of(source, kernels.arguments(kernel), "sort", runner)

    def launch(values: int, positions: int, source: int, *numbers: int) -> None:
        room, parts, size = scratch_sizes(kernel, numbers)
        if not size:
            return
        here = pool()
        scratch = here.take(size)
        try:
            native(values, positions, source, scratch, *numbers, room, parts)
        finally:
            here.give(scratch, size)

    return launch
