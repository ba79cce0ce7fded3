"""The device that counts bytes and runs nothing: it estimates a program's memory without hardware.

Addresses are distinct numbers without memory. Results read as zeros.
"""

from __future__ import annotations

from rushlight.core.dtypes import ALL
from rushlight.core.errors import OutOfMemoryError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared import composed
from rushlight.devices.shared.protocol import Kind, Launch, Limits, Tell
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.interpret import sort_arguments
from rushlight.kernel.shapes import Kernel, Search, Sort
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
        computes=KIND.computes,
    )

    def __init__(self) -> None:
        self._next = _FIRST_ADDRESS
        self._status: dict[str, int] = {}

    def emit(self, kernel: Kernel) -> str:
        return show(kernel)

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        verify(kernel)
        if isinstance(kernel, Sort | Search):
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


def open_device() -> NullDevice:
    return NullDevice()
