"""Search for devices without a kernel of their own: each step is a Gather and a Map."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.core.dtypes import compute_type, int64
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.shapes import Gather, Kernel, Map, Search
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, const, param


def _start_kernel() -> Map:
    """Nothing is counted yet; the parameter is the first position to compare."""
    return Map((int64, int64), (), (int64,), (const(0, int64), param(0, int64)), 2, ("n", "n"))


def _step_kernel(kernel: Search) -> Map:
    """Counts, and the next positions; parameters: this step, the next."""
    compute = compute_type(kernel.dtype)
    place, at, wanted = arg(0, int64), arg(1, compute), arg(2, compute)
    stops = (wanted < at) if kernel.right else (wanted <= at)
    place = s.where(stops, place, place + param(0, int64))
    look = place + param(1, int64) - 1
    inputs = (int64, kernel.dtype, kernel.dtype)
    return Map((int64, int64), inputs, (int64, int64), (place, look), 2, ("n",) * 5)


def kernels_of(kernel: Search) -> tuple[Kernel, ...]:
    return _start_kernel(), _step_kernel(kernel), Gather(kernel.dtype, int64)


def _step_of(left: int) -> int:
    """The number of remaining candidates counted by one step."""
    return max(left // 2, min(left, 1))


def build(kernel: Search, device: Device, pool: Callable[[], Pool]) -> Launch:
    start, step, gather = (device.build(part) for part in kernels_of(kernel))
    status = device.status_word("search")
    itemsize = kernel.dtype.itemsize

    def launch(out: int, line: int, wanted: int, *numbers: int) -> None:
        rows, count, length, *steps = numbers
        if not rows * count:
            return
        here, total = pool(), rows * count
        room = room_for(total * (8 + itemsize))
        places, own, lines, sought = tuple(steps[:2]), (count, 1), steps[2:4], steps[4:6]
        with Scratch(here, room) as (look,):
            at = look + 8 * total
            left, now = length, _step_of(length)
            start(out, look, rows, count, *places, *own, now - 1)
            while left:
                left -= now
                following = _step_of(left)
                along = (count, 1, 0, lines[0], lines[1], 0, count, 1, 0)
                gather(at, line, look, status, rows, count, 1, length, *along)
                strides = (*places, *own, *places, *own, *sought)
                step(out, look, out, at, wanted, rows, count, *strides, now, following)
                now = following

    return launch
