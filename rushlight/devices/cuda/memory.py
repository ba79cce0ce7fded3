"""Blocks from the driver's own pool, which keeps what is freed while a step repeats.

# Note [Driver memory]
1. The driver allocates and frees in the order of the stream, and waits for no work. What is freed
   stays reserved until the next synchronisation, which gives back all beyond a threshold.
2. What a step frees to take other blocks stays reserved: given back at a synchronisation, it would
   be asked for again in the next step, which costs a system call for each part. So the threshold is
   the most that was reserved. Where the blocks are fewer than `KEPT` of their largest number, a
   synchronisation gives back all that the driver can part with, and both are taken anew.
3. Beyond the blocks the driver reserves what lies between them, more with every step that exchanges
   blocks of different sizes, until a step repeats (Note [Layout]). Where that is more than `MUCH`
   times a limit at a synchronisation, the cached blocks go and all that the driver can part with,
   so that the next blocks lie close together.
4. Where the driver has no room for a block it is asked once more after all work, when what was
   freed has gone back to the system: then it maps other addresses to these pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import DeviceError, OutOfMemoryError
from rushlight.core.interrupts import unheard

DEFAULT_STREAM = 0  # the legacy one, also CuPy's and PyTorch's: work of all three is in order
KEPT = 7 / 8
MUCH = 2  # of a limit: with 1.125 steps took a fifth longer, since one alone exceeds it
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, hipErrorOutOfMemory
_THRESHOLD, _RESERVED = 4, 5  # cudaMemPoolAttrReleaseThreshold, ...ReservedMemCurrent


def is_out_of_memory(error: Any) -> bool:
    return getattr(error, "status", None) == _OUT_OF_MEMORY


class DriverMemory:
    """The blocks that one GPU's driver gave."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.ordered = self._frees_in_order()
        self.pool = self._find_pool()
        self.given = self.most = self.threshold = 0  # bytes

    def _frees_in_order(self) -> bool:
        """Whether the driver allocates and frees in the stream's order, waiting for no work."""
        try:
            self.runtime.freeAsync(self.runtime.mallocAsync(64, DEFAULT_STREAM), DEFAULT_STREAM)
        except (AttributeError, RuntimeError):  # an old driver, or HIP
            return False
        return True

    def _find_pool(self) -> int | None:
        """The handle of the driver's pool; None where there is none."""
        runtime = self.runtime
        try:
            found = int(runtime.deviceGetDefaultMemPool(runtime.getDevice()))
            runtime.memPoolGetAttribute(found, _RESERVED)
        except (AttributeError, RuntimeError):
            return None
        return found if self.ordered else None

    def take(self, nbytes: int) -> int:
        try:
            address = self._allocate(nbytes)
        except self.runtime.CUDARuntimeError as error:
            if not is_out_of_memory(error):
                raise DeviceError(f"allocating {nbytes} bytes on cuda: {error}") from error
            free, total = self.runtime.memGetInfo()
            raise OutOfMemoryError(
                f"cuda has no room for {nbytes} bytes: {free} of {total} are free; make the batch "
                "smaller, "
                f"or set a budget with rushlight.memory.budget"
            ) from error
        self.given += nbytes
        if self.given > self.most:
            self.most = self.given
            if self.given > self.threshold:
                self._keep(self.given)
        return address

    def _allocate(self, nbytes: int) -> int:
        if not self.ordered:
            return int(self.runtime.malloc(nbytes))
        try:
            return int(self.runtime.mallocAsync(nbytes, DEFAULT_STREAM))
        except self.runtime.CUDARuntimeError as error:
            if self.pool is None or not is_out_of_memory(error):
                raise
        self.runtime.deviceSynchronize()
        self.runtime.memPoolTrimTo(self.pool, 0)
        return int(self.runtime.mallocAsync(nbytes, DEFAULT_STREAM))

    @unheard
    def give(self, address: int, nbytes: int) -> None:
        if self.ordered:
            self.runtime.freeAsync(address, DEFAULT_STREAM)
        else:
            self.runtime.free(address)  # waits for the work that uses it
        self.given -= nbytes

    def shrink(self) -> None:
        """Give all that is in no block back to the system, after all work."""
        self.most = self.given
        self._keep(self.given)
        if self.pool is not None:
            self.runtime.deviceSynchronize()
            self.runtime.memPoolTrimTo(self.pool, 0)

    def settle(self, limit: int | None = None, trim: Callable[[], object] | None = None) -> None:
        """Set the threshold; called before the host waits for the device.

        `limit` is that of the calling thread, and `trim` frees cached blocks: Note [Driver memory]
        3.
        """
        if limit is not None and trim is not None and self.reserved() > MUCH * limit:
            trim()
            self.most = self.given
            self._keep(self.given)
            return
        if self.given < KEPT * self.most:
            self.most = self.given
            self._keep(self.given)
        elif self.pool is not None:
            reserved = self.reserved()
            if reserved > self.threshold:
                self._keep(reserved)

    def _keep(self, nbytes: int) -> None:
        self.threshold = nbytes
        if self.pool is not None:
            self.runtime.memPoolSetAttribute(self.pool, _THRESHOLD, nbytes)

    def reserved(self) -> int:
        """The bytes that the driver holds for this process's blocks."""
        if self.pool is None:
            return self.given
        return int(self.runtime.memPoolGetAttribute(self.pool, _RESERVED))

    def free_bytes(self) -> int:
        """The memory that the driver can still give."""
        return int(self.runtime.memGetInfo()[0])
