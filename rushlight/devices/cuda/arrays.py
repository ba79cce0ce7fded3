"""`Library` kernels by CUDA's libraries.

Most functions have a launcher on addresses (`BUILDERS` of `lapack.py`, `spectra.py`, `fft.py`). The
rest are composed on CuPy arrays over our memory; they have the form of `devices/shared/library`,
and what CuPy allocates while one runs comes from the pool and goes back with its last array.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight.devices.cuda import fft, lapack, spectra
from rushlight.devices.cuda.driver import Session
from rushlight.devices.cuda.solvers import Solvers
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.library import lapack as host, shapes_of
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.interpret import sort_arguments
from rushlight.kernel.shapes import Library

Array = Any  # a cupy.ndarray
Arrays = Sequence[Array]

_BUILDERS: dict[str, dict[str, lapack.Builder]] = {
    "lapack": {**lapack.BUILDERS, **spectra.BUILDERS},
    "fft": fft.BUILDERS,
}


def build(kernel: Library, on: Solvers) -> Launch | None:
    """A callable for the kernel; None where no library of CUDA has the function."""
    if on.session.is_hip:
        return None
    if kernel.function in ("svd", "svdvals"):
        return _whole(kernel, spectra.svd(on, kernel, _of_arrays(kernel, on.session, on.pool)))
    builder = _BUILDERS[kernel.library].get(kernel.function)
    if builder is not None:
        return _whole(kernel, builder(on, kernel))
    if kernel.library == "lapack" and kernel.function in FUNCTIONS:
        return _of_arrays(kernel, on.session, on.pool)
    return None


def _whole(kernel: Library, run: Launch) -> Launch:
    """`run`, for whole numbers only: the address of dropped memory is None."""
    addresses = len(kernel.ranks)

    def launch(*numbers: int) -> None:
        sum(numbers[:addresses])  # raises TypeError before anything runs
        run(*numbers)

    return launch


# ---- on CuPy arrays ----


class _Block:
    """A block of the pool that a CuPy array holds; the next use comes later on the stream."""

    def __init__(self, pool: Pool, room: int) -> None:
        self.address = pool.take(room)
        self.pool, self.room = pool, room

    def __del__(self) -> None:
        if hasattr(self, "room"):
            self.pool.give_all([(self.address, self.room)])


def _of_arrays(kernel: Library, session: Session, pool: Callable[[], Pool]) -> Launch:
    cupy, errstate = session.cupy, importlib.import_module("cupyx").errstate
    function = FUNCTIONS[kernel.function]
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


def lstsq(outs: Arrays, ins: Arrays, rcond: float) -> None:
    import cupy

    (x, rank, values), (a, b) = outs, ins
    host.check_finite("linalg.lstsq", a)
    host.check_finite("linalg.lstsq", b)
    if not a.size:
        x[...], rank[...] = 0, 0
        return
    u, sizes, vh = cupy.linalg.svd(a, full_matrices=False)
    kept = sizes > rcond * sizes.max(-1)[:, None]
    inverse = cupy.where(kept, 1 / cupy.where(kept, sizes, 1), 0).astype(sizes.dtype)
    x[...] = cupy.matmul(host.adjoint(vh) * inverse[:, None, :], cupy.matmul(host.adjoint(u), b))
    rank[...], values[...] = kept.sum(-1), sizes


FUNCTIONS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        host.cofactor,
        host.cofactor_slope,
        lstsq,
        host.pinv,
        host.svd,
        host.svdvals,
    )
}
