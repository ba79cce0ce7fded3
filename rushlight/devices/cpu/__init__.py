"""The CPU: LLVM IR built by llvmlite, a native thread pool, NumPy's OpenBLAS for matrix products.

Nothing is built when this package is imported; kernels are built when they are asked for.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence

from rushlight.core.dtypes import ALL
from rushlight.core.errors import BoundsError
from rushlight.core.interrupts import unheard
from rushlight.devices.cpu import blas, cell, convolve, memory, sorting, stub, threads
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared import composed, library
from rushlight.devices.shared.layout import Layout
from rushlight.devices.shared.protocol import Launch, Limits, Tell
from rushlight.devices.shared.registry import pool_of
from rushlight.emit.llvm import attend, kernels
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Cell, Contract, Convolve, Kernel, Library, Map, Sort
from rushlight.kernel.show import show

# Scores of a head, those that a causal mask hides left out, up to which one kernel is faster than
# matrix products and what is between them: forward, backward.
_MOST_SCORES = (1 << 13, 1 << 11)


class _Pages:
    """The system, which takes pages back at once."""

    take = staticmethod(memory.allocate)
    give = staticmethod(memory.release)

    def shrink(self) -> None:
        """Nothing is kept."""


class CpuDevice:
    """The host's processor and memory."""

    name = "cpu"

    def __init__(self) -> None:
        self.layout = Layout(_Pages(), joins=memory.joins)
        self.limits = Limits(
            dtypes=ALL,
            host_memory=True,
            asynchronous=False,
            largest_block=1 << 47,
            description=f"{platform.processor() or platform.machine()}, {threads.count()} threads",
            cells=cell.types(),
            convolves=convolve.kinds(),
            least_scratch=convolve.least_scratch,
            attends=attend.widest(),
            attends_most=_MOST_SCORES,
            attends_dense=True,
            sorts=True,
            join=memory.join if memory.joins else None,
            steps=self.layout.begin_step if memory.joins else None,
        )
        self._status: dict[str, ctypes.c_int32] = {}

    def emit(self, kernel: Kernel) -> str:
        if composed.is_whole_gradient(kernel):
            return "\n".join(map(self.emit, composed.kernels_of(kernel)))
        if isinstance(kernel, Convolve):
            return convolve.text(kernel)
        if isinstance(kernel, Cell):
            return cell.text(kernel)
        return show(kernel) if isinstance(kernel, Library) else kernels.emit(kernel)

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        if isinstance(kernel, Library):
            return library.build(self, kernel)
        if composed.is_whole_gradient(kernel):
            return composed.build(kernel, self, lambda: pool_of(self.name))
        runner = threads.runner()
        if isinstance(kernel, Convolve):
            return convolve.build(kernel, runner, lambda: pool_of(self.name))
        if isinstance(kernel, Cell):
            return cell.build(kernel, runner)
        if isinstance(kernel, Contract):
            launch = blas.build(kernel, runner, lambda: pool_of(self.name))
            if launch is not None:
                return launch
        if isinstance(kernel, Sort):
            return sorting.build(kernel, runner, lambda: pool_of(self.name))
        source = Source(
            key_of(kernel), lambda: kernels.emit(kernel), formula=isinstance(kernel, Map)
        )
        return stub.callable_of(
            source, kernels.arguments(kernel), type(kernel).__name__.lower(), runner, tell=tell
        )

    def alloc(self, nbytes: int) -> int:
        return self.layout.take(nbytes)

    def free_bytes(self) -> int:
        """The memory that the machine, or the process's group, can still give."""
        return memory.free_bytes()

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        self.layout.give(address, nbytes)

    def copy_in(self, address: int, source: memoryview) -> None:
        block = (ctypes.c_char * source.nbytes).from_address(address)
        memoryview(block).cast("B")[:] = source.cast("B")

    def copy_out(self, address: int, target: memoryview) -> None:
        block = (ctypes.c_char * target.nbytes).from_address(address)
        target.cast("B")[:] = memoryview(block).cast("B")

    def status_word(self, label: str) -> int:
        return ctypes.addressof(self._status.setdefault(label, ctypes.c_int32(0)))

    def synchronize(self) -> None:
        """Work is done when a launch returns; this raises for a bad index."""
        for label, word in self._status.items():
            if word.value:
                word.value = 0
                raise BoundsError(f"{label}: index out of range")

    def set_num_threads(self, count: int) -> None:
        threads.set_count(count)

    @property
    def num_threads(self) -> int:
        return threads.count()


def scratch_of(kernel: Kernel, numbers: Sequence[int]) -> Sequence[int]:
    """The rooms that a launch takes from the pool, from the numbers after the addresses."""
    if isinstance(kernel, Convolve):
        return convolve.scratch_rooms(kernel, numbers)
    if isinstance(kernel, Sort):
        room = sorting.scratch_sizes(kernel, numbers)[2]
        return [room] if room else []
    if isinstance(kernel, Library):
        room = library.scratch_room(kernel, library.shapes_of(kernel, numbers))
        return [room] if room else []
    return blas.scratch_rooms(kernel, numbers) if isinstance(kernel, Contract) else ()


def open_device() -> CpuDevice:
    return CpuDevice()


__all__ = ["CpuDevice", "open_device", "scratch_of"]
