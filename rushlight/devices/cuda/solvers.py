"""What launches of cuBLAS's and cuSOLVER's routines are made of.

# Note [Solvers]
1. A launch gets addresses and sizes. Its routines see columns: an array stored by rows is the
   transposed matrix to them, and what a routine overwrites is a copy in scratch of the pool.
2. A thread has a handle of each library, on our stream. cuSOLVER's rule of the same bits from run
   to run is its default.
3. What a routine asks for its workspace is remembered by its sizes (`Solvers.asked`).
4. Short routines are builtins (`stub.make_caller`). Those that compute on the host too, or wait for
   the device, are called through ctypes, which lets other threads run (`slow`).
5. The library's `info` is read only where the op raises, when all is queued.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rushlight.core.cache import Cache
from rushlight.core.dtypes import DType, complex64, complex128, float32, float64, real_type
from rushlight.core.errors import DeviceError
from rushlight.core.shapes import contiguous_strides
from rushlight.devices.cuda import gemm, matrix_kernels
from rushlight.devices.cuda.driver import DEFAULT_STREAM, Session, address_of, find_library
from rushlight.devices.cuda.handles import Handles
from rushlight.devices.cuda.stub import make_caller
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Kernel, Map
from rushlight.scalar.ir import arg

LETTERS = {float32: "S", float64: "D", complex64: "C", complex128: "Z"}
TYPES = {float32: 0, float64: 1, complex64: 4, complex128: 5}  # cudaDataType
# cuBLAS's and cuSOLVER's numbers
PLAIN, TRANSPOSED, ADJOINT, LEFT, RIGHT, LOWER, UPPER, NONUNIT, UNIT = 0, 1, 2, 0, 1, 0, 1, 0, 1

ANYWHERE = 256  # an operand's address for a bufferSize, which does not read it

_INT = 4  # bytes of an info
_C_TYPES = {"p": ctypes.c_void_p, "q": ctypes.c_int64, "i": ctypes.c_int}


class Solvers:
    """Routines, kernels and memory for launches on one card. `build` builds an own kernel."""

    def __init__(
        self, session: Session, build: Callable[[Kernel], Launch], pool: Callable[[], Pool]
    ) -> None:
        self.session = session
        self.build = build
        self.pool = pool
        self.modules: list[object] = []
        self.made: dict[object, Any] = {}  # kernels and routines that launches share
        self.asked = Cache()
        bind = self._bind
        several = session.driver.several
        self.blas = Handles(lambda: self._handle(self.cublas, "cublas{}_v2"), bind, several).current
        self.solver = Handles(
            lambda: self._handle(self.cusolver, "cusolverDn{}"), bind, several
        ).current
        self.one = (ctypes.c_double * 2)(1.0), (ctypes.c_float * 2)(1.0)

    # ---- the libraries ----

    def _bind(self) -> None:
        self.session.bind(ctypes.c_void_p(self.session.driver.context))

    @cached_property
    def cublas(self) -> ctypes.CDLL:
        return _library("cublas", (13, 12, 11))

    @cached_property
    def cusolver(self) -> ctypes.CDLL:
        return _library("cusolver", (12, 11))

    @cached_property
    def params(self) -> int:
        """cuSOLVER's default choices of algorithms."""
        made = ctypes.c_void_p()
        check(self.cusolver.cusolverDnCreateParams(ctypes.byref(made)))
        assert made.value is not None
        return made.value

    def _handle(self, library: ctypes.CDLL, name: str) -> int:
        handle = ctypes.c_void_p()
        check(getattr(library, name.format("Create"))(ctypes.byref(handle)))
        check(getattr(library, name.format("SetStream"))(handle, ctypes.c_void_p(DEFAULT_STREAM)))
        assert handle.value is not None
        return handle.value

    def routine(self, library: ctypes.CDLL, name: str, kinds: str) -> Callable[..., int]:
        """A function as a builtin; for `kinds` see `make_caller`."""
        return make_caller(address_of(library, name), kinds, self.session.driver)

    def slow(self, name: str, kinds: str) -> Callable[..., None]:
        """A routine of cuSOLVER for which other threads need not wait."""
        run = getattr(self.cusolver, name)
        run.argtypes = [_C_TYPES[kind] for kind in kinds]
        session = self.session

        def call(*numbers: int) -> None:
            session.await_arrival()
            check(run(*numbers))

        return call

    def rooms(
        self, name: str, kinds: str, bits: int, *numbers: int, after: tuple[int, ...] = ()
    ) -> list[int]:
        """What a routine's bufferSize writes: an int of 32 bits, or two of 64.

        It is called with the thread's handle, `numbers`, the places for these, and `after`.
        """
        key = (name, numbers, after)
        found: list[int] | None = self.asked.get(key)
        if found is None:
            ask = getattr(self.cusolver, f"cusolverDn{name}")
            ask.argtypes = [_C_TYPES[kind] for kind in kinds]
            made = (ctypes.c_int * 1)() if bits == 32 else (ctypes.c_size_t * 2)()
            places = [ctypes.addressof(made) + i * bits // 8 for i in range(len(made))]
            check(ask(self.solver(), *numbers, *places, *after))
            found = self.asked.keep(key, list(made))
        return found

    # ---- own kernels ----

    def kernel(self, name: str, dtype: DType) -> Launch:
        """One of `matrix_kernels`."""
        return self._made(
            (name, dtype),
            lambda: matrix_kernels.build(self.session, self.modules, name, dtype),
        )

    def _made(self, key: object, make: Callable[[], Any]) -> Any:
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = make()
        return found

    def own(self, kernel: Kernel) -> Launch:
        found: Launch = self._made(kernel, lambda: self.build(kernel))
        return found

    def copier(self, dtype: DType) -> Callable[..., None]:
        """`copy(target, source, batch, rows, columns, strides of source, batch and row of target)`.

        Bits are copied, in a dense target unless its strides are given.
        """
        parts = 2 if dtype is complex128 else 1
        run = self.own(gemm.copy_kernel(float64 if dtype.kind == "c" else dtype))

        def copy(
            target: int, source: int, batch: int, rows: int, columns: int, steps: Any, to: Any = ()
        ) -> None:
            by_matrix, by_row = to or (rows * columns, columns)
            if parts == 1:
                run(target, source, 1, batch, rows, columns, 0, by_matrix, by_row, 1, 0, *steps)
                return
            run(
                target, source, batch, rows, columns, 2, 2 * by_matrix, 2 * by_row, 2, 1,
                *(2 * step for step in steps), 1,
            )  # fmt: skip

        return copy

    def mover(
        self, dtype: DType, shape: Sequence[int], steps: Sequence[int]
    ) -> Callable[[int, int], None]:
        """`move(target, source)`: a dense copy of an array of a shape and strides."""
        if dtype is complex128:
            shape, steps = (*shape, 2), (*(2 * step for step in steps), 1)
        unit = float64 if dtype.kind == "c" else dtype
        run = self.own(Map((unit,), (unit,), (), (arg(0, unit),), len(shape), ("1", "n")))
        numbers = (*shape, *contiguous_strides(shape), *steps)
        return lambda target, source: run(target, source, *numbers)

    def conjugate(self, dtype: DType) -> Callable[[int, int], None]:
        """`turn(address, count)` conjugates complex numbers in place."""
        real = real_type(dtype)
        run = self.own(Map((real,), (real,), (), (-arg(0, real),), 1, ("n", "n")))

        def turn(address: int, count: int) -> None:
            run(address + real.itemsize, address + real.itemsize, count, 2, 2)

        return turn

    # ---- memory ----

    def scratch(self, *nbytes: int) -> Scratch:
        return Scratch(self.pool(), *map(room_for, nbytes))

    def clear(self, address: int, nbytes: int) -> None:
        self.session.use()
        self.session.runtime.memsetAsync(address, 0, nbytes, DEFAULT_STREAM)

    def read(self, address: int, count: int, kind: Any = np.int32) -> Any:
        """Numbers of the device, as a NumPy array: waits for all that is queued."""
        session, found = self.session, np.empty(count, kind)
        session.use()
        runtime = session.runtime
        runtime.memcpy(found.ctypes.data, address, found.nbytes, runtime.memcpyDeviceToHost)
        return found

    def failures(self, address: int, count: int) -> Any:
        """The infos of `count` matrices, or None where all are 0."""
        if count != 1:
            found = self.read(address, count)
            return found if found.any() else None
        session, word = self.session, ctypes.c_int()  # in a third of the time
        session.use()
        runtime = session.runtime
        runtime.memcpy(ctypes.addressof(word), address, _INT, runtime.memcpyDeviceToHost)
        return np.array([word.value]) if word.value else None

    def unit(self, dtype: DType) -> int:
        """The address of the number 1 of a type, on the host."""
        return ctypes.addressof(self.one[real_type(dtype) is float32])


def _library(name: str, majors: tuple[int, ...]) -> ctypes.CDLL:
    importlib.import_module(f"cupy_backends.cuda.libs.{name}")  # loads it
    found = find_library(name, majors)
    if found is None:
        raise DeviceError(f"{name}, which CuPy loads, is not found")
    return found


def check(status: int) -> None:
    if status:
        raise DeviceError(f"a routine of cuBLAS or cuSOLVER failed with status {status}")
