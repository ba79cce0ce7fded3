"""The device that counts bytes and runs nothing: it estimates a program's memory without hardware.

Addresses are distinct numbers without memory. A user who asks for elements is refused
(`interop.py`); in an estimate they read as zeros.

# Note [Stand-ins]
1. A stand-in is a null device with another device's name and limits, so ops choose the same kernels
   for it. Its launches take the scratch that the other device's launches take from the pool
   (`scratch_of` in that device's folder), and count calls and work.
2. It has the name while an estimate runs (`memory/standing.py`), else it is called null: a tensor
   that an estimate has left behind is on null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from rushlight.core.dtypes import ALL
from rushlight.core.errors import OutOfMemoryError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared import composed
from rushlight.devices.shared.allocator import Pool, Scratch
from rushlight.devices.shared.protocol import Kind, Launch, Limits, Tell
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.interpret import signature, sort_arguments
from rushlight.kernel.shapes import (
    Attend,
    Cell,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Scatter,
    Search,
    Sort,
)
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify

KIND = Kind(computes=False, public=False)

_ALIGNMENT = 64
# Far above anything a process maps, so that a use as host memory fails at once.
_FIRST_ADDRESS = 1 << 56
_STATUS_BYTES = 4


class NullDevice:
    """See `protocol.Device`. Asynchronous, like the hardware it stands for.

    Nothing is ever pending.
    """

    name = "null"
    limits = Limits(
        dtypes=ALL,
        host_memory=False,
        asynchronous=True,
        largest_block=1 << 46,
        description="counts bytes, runs nothing",
        convolves=("image", "back", "weights"),
        computes=KIND.computes,
    )

    def __init__(self) -> None:
        self._next = _FIRST_ADDRESS
        self._status: dict[str, int] = {}

    def emit(self, kernel: Kernel) -> str:
        return show(kernel)

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        verify(kernel)
        if composed.is_composed(kernel):
            return composed.build(kernel, self, lambda: pool_of(self.name))

        def launch(*numbers: bool | int | float) -> None:
            sort_arguments(kernel, numbers)

        return launch

    def alloc(self, nbytes: int) -> int:
        if nbytes > self.limits.largest_block:
            raise OutOfMemoryError(
                f"null: one block is at most {self.limits.largest_block} bytes, asked for {nbytes}"
            )
        address = self._next
        # Addresses are never reused, and one block's end is never another's start.
        self._next += (nbytes // _ALIGNMENT + 1) * _ALIGNMENT
        return address

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        pass

    def copy_in(self, address: int, source: memoryview) -> None:
        pass

    def copy_out(self, address: int, target: memoryview) -> None:
        if target.nbytes:
            target.cast("B")[:] = bytes(target.nbytes)

    def status_word(self, label: str) -> int:
        if label not in self._status:
            self._status[label] = self.alloc(_STATUS_BYTES)
        return self._status[label]

    def synchronize(self) -> None:
        pass


# Rooms of the scratch that a launch of a kernel with these numbers takes from the pool.
ScratchOf = Callable[[Kernel, Sequence[int]], Sequence[int]]

# Work is counted in elements that are read or written, as `Plan.cost` is. A multiplication of a
# product costs that much on processors, as measured, and on GPUs.
_WORK_OF_PRODUCT = {True: 0.15, False: 0.02}
_WORK_OF_CALL = 10_000  # a call that does nothing


class StandIn(NullDevice):
    """A null device in place of another. See Note [Stand-ins]."""

    def __init__(self, limits: Limits, scratch_of: ScratchOf | None) -> None:
        super().__init__()
        join = None if limits.join is None else self._join
        self.limits = replace(
            limits,
            host_memory=False,
            stands_for_host=limits.host_memory,
            computes=False,
            join=join,
            steps=None,
            driver=None,
            lists=None,  # the other device's launches would read addresses without memory
            queues=None,
        )
        self.scratch_of = scratch_of
        self.pool: Pool | None = None
        self.calls = 0
        self.work = 0.0
        self.read: Callable[[], None] | None = None  # called when elements are read

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        verify(kernel)
        if isinstance(kernel, Sort | Search) and not self.limits.sorts:
            return composed.build(kernel, self, self._pool)
        shape = signature(kernel)
        if composed.is_whole_gradient(kernel):
            parts = composed.build(kernel, self, self._pool)

            def launch_parts(*numbers: bool | int | float) -> None:
                parts(*numbers)
                self._take_scratch(kernel, numbers[shape.addresses :])

            return launch_parts
        first, last = shape.addresses, shape.addresses + shape.sizes
        each, product = float(shape.addresses), _WORK_OF_PRODUCT[self.limits.stands_for_host]
        if isinstance(kernel, Contract | Convolve):
            each = product
        if isinstance(kernel, Attend):
            each = product * (kernel.width + kernel.depth)
        if isinstance(kernel, Cell):
            each = product * kernel.products
        if isinstance(kernel, Convolve):
            last = first + 4 + 2 * kernel.rank  # images, groups, channels, pixels, window
        if isinstance(kernel, Gather | Scatter):
            last -= 1  # the length of the indexed axis

        def launch(*numbers: bool | int | float) -> None:
            self.calls += 1
            self.work += _WORK_OF_CALL + each * prod(numbers[first:last])
            self._take_scratch(kernel, numbers[first:])

        return launch

    def _take_scratch(self, kernel: Kernel, numbers: Sequence[bool | int | float]) -> None:
        """Take and give back what a launch takes on the device it stands for."""
        rooms = self.scratch_of(kernel, numbers) if self.scratch_of is not None else ()  # type: ignore[arg-type]
        pool, least = self._pool(), self.limits.least_scratch
        limit = pool.limit
        if rooms and least is not None and limit is not None and isinstance(kernel, Convolve):
            fits = pool.live + sum(rooms) <= limit  # else it copies fewer images at a time
            rooms = rooms if fits else [least(kernel, numbers)]  # type: ignore[arg-type]
        if rooms:
            with Scratch(pool, *rooms):
                pass

    def _join(self, blocks: list[tuple[int, int]], nbytes: int) -> int:
        blocks.clear()
        return self.alloc(nbytes)

    def _pool(self) -> Pool:
        assert self.pool is not None
        return self.pool

    def copy_out(self, address: int, target: memoryview) -> None:
        super().copy_out(address, target)
        if self.read is not None:
            self.read()


def open_device() -> NullDevice:
    return NullDevice()
