"""Functions of CUDA's libraries on CuPy arrays over our memory: overrides of `Library` kernels.

`FUNCTIONS` of `cuda/lapack.py` and `cuda/fft.py` have the form of `devices/shared/library`. What
CuPy allocates while one runs comes from the pool and goes back with its last array.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rushlight.devices.cuda import fft, lapack
from rushlight.devices.cuda.driver import Session
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.library import shapes_of
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.interpret import sort_arguments
from rushlight.kernel.shapes import Library

_TABLES: dict[str, dict[str, Callable[..., None]]] = {
    "lapack": lapack.FUNCTIONS,
    "fft": fft.FUNCTIONS,
}


class _Block:
    """A block of the pool that a CuPy array holds; the next use comes later on the stream."""

    def __init__(self, pool: Pool, room: int) -> None:
        self.address = pool.take(room)
        self.pool, self.room = pool, room

    def __del__(self) -> None:
        if hasattr(self, "room"):
            self.pool.give_all([(self.address, self.room)])


def build(kernel: Library, session: Session, pool: Callable[[], Pool]) -> Launch | None:
    """A callable for the kernel; None where no library of CUDA has the function."""
    function = _TABLES.get(kernel.library, {}).get(kernel.function)
    if function is None or session.is_hip:
        return None
    cupy, errstate = session.cupy, importlib.import_module("cupyx").errstate
    count = len(kernel.outputs)
    kinds = [np.dtype(dtype.name) for dtype in kernel.outputs + kernel.inputs]

    def allocate(nbytes: int) -> Any:
        block = _Block(pool(), room_for(nbytes)) if nbytes else None
        return _pointer(session, 0 if block is None else block.address, nbytes, block)

    def launch(*numbers: int) -> None:
        call = sort_arguments(kernel, numbers)
        arrays = [
            cupy.ndarray(
                shape,
                kind,
                _pointer(session, address, math.prod(shape) * kind.itemsize, None),
            )
            for address, kind, shape in zip(
                call.addresses, kinds, shapes_of(kernel, call.sizes), strict=True
            )
        ]
        session.use()
        session.await_arrival()
        # On our stream, whichever of CuPy's is current.
        with cupy.cuda.Stream.null, cupy.cuda.using_allocator(allocate), errstate(linalg="raise"):
            function(arrays[:count], arrays[count:], *kernel.options)

    return launch


def _pointer(session: Session, address: int, nbytes: int, owner: object) -> Any:
    cuda = session.cupy.cuda
    return cuda.MemoryPointer(cuda.UnownedMemory(address, nbytes, owner, session.card), 0)
