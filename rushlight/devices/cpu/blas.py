"""Matrix products by NumPy's OpenBLAS, called by address; else by np.matmul; integers by loops."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from rushlight.core.dtypes import DType, float32, float64
from rushlight.core.errors import BudgetError
from rushlight.devices.cpu import gemm, memory, small_products, stub, threads
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.library.openblas import is_wide, library
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.kernels import arguments
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Contract


def build(kernel: Contract, runner: int, pool: Callable[[], Pool]) -> Launch | None:
    """A callable for the kernel, or None where plain loops are needed."""
    if kernel.compute not in (float32, float64):
        return None
    found = library()
    if found is None:
        return _matmul(kernel)
    name = "scipy_cblas_sgemm64_" if kernel.compute is float32 else "scipy_cblas_dgemm64_"
    pointers = [_address(found, name), *(_address(memory.library, n) for n in ("malloc", "free"))]
    if gemm.has_own_ways(kernel):
        pointers += small_products.pointers(kernel.dtype)
    wide = is_wide()
    key = f"blas {key_of(kernel)} {wide}"
    own = stub.callable_of(
        Source(key, lambda: gemm.text(kernel, wide), combine=False),
        arguments(kernel) + "iii" * gemm.copied(kernel),
        "contract",
        runner,
        {"blas": pointers},
    )
    return _with_arena(own, kernel.compute.itemsize, pool) if gemm.copied(kernel) else own


def _slots(numbers: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The slots of an arena, and the bytes of each."""
    x, y, m, n, k = numbers[:5]
    blocks, each = gemm.slots_of(m, n, k, itemsize)
    return max(1, min(threads.count(), x * y * blocks)), each


def scratch_rooms(kernel: Contract, numbers: Sequence[int]) -> list[int]:
    """The rooms that a launch takes from the pool."""
    if not gemm.copied(kernel) or kernel.compute not in (float32, float64) or library() is None:
        return []
    slots, each = _slots(numbers, kernel.compute.itemsize)
    return [room_for(slots * (gemm.FLAG + each))]


def _with_arena(own: Launch, itemsize: int, pool: Callable[[], Pool]) -> Launch:
    """The launch with memory for its copies. See Note [Copies of halves]."""

    def run(slots: int, each: int, numbers: Sequence[int]) -> None:
        with Scratch(pool(), room_for(slots * (gemm.FLAG + each))) as (arena,):
            ctypes.memset(arena, 0, slots * gemm.FLAG)
            own(*numbers, arena, slots, each)

    def launch(*numbers: int) -> None:
        slots, each = _slots(numbers[3:], itemsize)
        try:
            run(slots, each, numbers)
        except BudgetError:
            if slots == 1:
                raise
            run(1, each, numbers)

    return launch


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _matmul(kernel: Contract) -> Launch | None:
    """np.matmul over views of the addresses; NumPy has no bfloat16, so halves use plain loops."""
    import numpy

    if kernel.dtype is not kernel.compute or kernel.scaled:
        return None

    def view(
        address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType
    ) -> numpy.ndarray:
        count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        block = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        flat = numpy.frombuffer(memoryview(block), dtype.name)
        return numpy.lib.stride_tricks.as_strided(
            flat, shape, [s * dtype.itemsize for s in strides]
        )

    def launch(*numbers: int) -> None:
        out, a, b, x, y, m, n, k, *strides = numbers
        if not x * y * m * n:
            return
        target = view(out, (x, y, m, n), tuple(strides[:4]), kernel.dtype)
        if not k:
            target[...] = 0
            return
        left = view(a, (x, y, m, k), tuple(strides[4:8]), kernel.dtype)
        right = view(b, (x, y, k, n), tuple(strides[8:]), kernel.dtype)
        numpy.matmul(left, right, out=target)

    return launch
