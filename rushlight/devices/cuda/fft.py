"""Discrete Fourier transforms by cuFFT, on addresses. See `devices/shared/library/fft.py`.

A plan transforms the first or the last dimensions of a dense array, at most three; others are moved
to the end by a copy. A transform takes its work area, where it has one, from the pool.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.dtypes import DType, float32, real_type
from rushlight.core.errors import DeviceError
from rushlight.core.shapes import contiguous_strides
from rushlight.devices.cuda.driver import DEFAULT_STREAM, address_of, find_library
from rushlight.devices.cuda.lapack import Builder
from rushlight.devices.cuda.solvers import Solvers
from rushlight.devices.cuda.stub import make_caller
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.devices.shared.library import shapes_of
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Library, Map
from rushlight.scalar.ir import arg, param

Dims = tuple[int, ...]
Step = Callable[
    [Sequence[int]], None
]  # its list has the addresses of a launch, then of its scratch
Program = tuple[list[int], list[Step]]  # the rooms of the scratch, and the steps

_MOST_DIMS = 3
# cufftType: single precision, then double, and the functions that run them
_COMPLEX, _HALF, _FROM_HALF = (0x29, 0x69), (0x2A, 0x6A), (0x2C, 0x6C)
_RUNS = {
    0x29: "cufftExecC2C",
    0x69: "cufftExecZ2Z",
    0x2A: "cufftExecR2C",
    0x6A: "cufftExecD2Z",
    0x2C: "cufftExecC2R",
    0x6C: "cufftExecZ2D",
}
_FORWARD, _BACKWARD = -1, 1
_RUNNING = threading.Lock()  # a plan has one work area at a time


@cache
def _library() -> ctypes.CDLL:
    importlib.import_module("cupy.cuda.cufft")  # loads it
    found = find_library("cufft", (12, 11, 10))
    if found is None:
        raise DeviceError("cuFFT, which CuPy loads, is not found")
    return found


def _check(code: int) -> None:
    if code:
        raise DeviceError(f"cuFFT failed with status {code}")


class Transform:
    """A plan of cuFFT: `batch` dense transforms of `sizes` numbers.

    With `is_across` they lie side by side: an element is `batch` after the one before it.
    """

    def __init__(
        self, on: Solvers, kind: int, sizes: Dims, batch: int, is_across: bool = False
    ) -> None:
        self.number: int | None = None
        self.on = on
        self.library = _library()
        number, work, place = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_longlong
        on.session.use()
        _check(self.library.cufftCreate(ctypes.byref(number)))
        self.number = number.value
        _check(self.library.cufftSetAutoAllocation(number, 0))
        given = (place * len(sizes))(*sizes)
        layout = (given, place(batch), place(1)) if is_across else (None, place(1), place(0))
        make = self.library.cufftMakePlanMany64
        more = (kind, place(batch), ctypes.byref(work))
        _check(make(number, len(sizes), given, *layout, *layout, *more))
        _check(self.library.cufftSetStream(number, ctypes.c_void_p(DEFAULT_STREAM)))
        self.room = room_for(work.value) if work.value else 0
        driver, name = on.session.driver, _RUNS[kind]
        self.is_directed = kind in _COMPLEX
        kinds = "ippi" if self.is_directed else "ipp"
        self.call = make_caller(address_of(self.library, name), kinds, driver)
        self.place = make_caller(address_of(self.library, "cufftSetWorkArea"), "ip")

    def __del__(self) -> None:
        if self.number is not None:
            self.library.cufftDestroy(self.number)

    def run(self, source: int, target: int, direction: int) -> None:
        numbers = (self.number, source, target, *((direction,) if self.is_directed else ()))
        if not self.room:
            _check(self.call(*numbers))
            return
        with Scratch(self.on.pool(), self.room) as (work,), _RUNNING:
            _check(self.place(self.number, work))
            _check(self.call(*numbers))


class Writer:
    """The steps of a launch with certain sizes.

    A place is a number: 0 the result, 1 the operand, then blocks of scratch.
    """

    def __init__(self, on: Solvers, kernel: Library, sizes: Dims) -> None:
        self.on = on
        self.out, self.x = shapes_of(kernel, sizes)
        self.complex = next(d for d in kernel.outputs + kernel.inputs if d.kind == "c")
        self.real = real_type(self.complex)
        self.rooms: list[int] = []
        self.steps: list[Step] = []

    def block(self, dtype: DType, shape: Dims) -> int:
        self.rooms.append(room_for(math.prod(shape) * dtype.itemsize))
        return 1 + len(self.rooms)

    def copy(self, target: int, source: int, dtype: DType, shape: Dims, order: Dims) -> None:
        """A dense copy with its dimensions in another order; `shape` is that of the source."""
        steps = contiguous_strides(shape)
        run = self.on.mover(dtype, [shape[d] for d in order], [steps[d] for d in order])
        self.steps.append(lambda at: run(at[target], at[source]))

    def transform(
        self, kinds: tuple[int, int], target: int, source: int, shape: Dims, dims: Dims,
        direction: int, points: int = 0,
    ) -> None:  # fmt: skip
        """Along `dims`, in rising order, the first or the last of a dense array.

        `points`: of the last of them, where the array has half of the frequencies.
        """
        sizes = tuple(shape[d] for d in dims)
        batch = math.prod(shape) // math.prod(sizes)
        kind, is_across = kinds[self.real is not float32], dims[-1] != len(shape) - 1
        plan = Transform(self.on, kind, (*sizes[:-1], points or sizes[-1]), batch, is_across)
        if kinds is not _HALF:
            self.steps.append(lambda at: plan.run(at[source], at[target], direction))
            return
        pair, count = self.complex.itemsize, math.prod(shape)
        copy = self.on.mover(self.real, [count], [1])

        def run(at: Sequence[int]) -> None:
            if not at[source] % pair:
                plan.run(at[source], at[target], direction)
                return
            with self.on.scratch(count * self.real.itemsize) as (place,):
                copy(place, at[source])  # cuFFT wants the alignment of complex numbers
                plan.run(place, at[target], direction)

        self.steps.append(run)

    def complex_ones(
        self, target: int, source: int, shape: Dims, dims: Dims, direction: int
    ) -> int:
        """Complex numbers along `dims`; the place where they are: `source` if there are none."""
        for first in range(0, len(dims), _MOST_DIMS):
            some = tuple(sorted(dims[first : first + _MOST_DIMS]))
            order = _order(len(shape), some)
            if order == tuple(range(len(shape))) or some == tuple(range(len(some))):
                self.transform(_COMPLEX, target, source, shape, some, direction)
            else:
                moved = self.block(self.complex, shape)
                sizes = tuple(shape[d] for d in order)
                last = tuple(range(len(shape) - len(some), len(shape)))
                self.copy(moved, source, self.complex, shape, order)
                self.transform(_COMPLEX, moved, moved, sizes, last, direction)
                self.copy(target, moved, self.complex, sizes, _back(order))
            source = target
        return source

    def scale(self, dtype: DType, dims: Dims, points: int, norm: str, divided: str) -> None:
        """The result divided by the number of points, or by its root."""
        if norm not in ("ortho", divided):
            return
        factor = 1 / math.sqrt(points) if norm == "ortho" else 1 / points
        count, real = math.prod(self.out) * (2 if dtype is self.complex else 1), self.real
        kernel = Map((real,), (real,), (real,), (arg(0, real) * param(0, real),), 0, ("1", "1"))
        run = self.on.own(kernel)
        self.steps.append(lambda at: run(at[0], at[0], count, factor))


def _order(rank: int, dims: Dims) -> Dims:
    """The dimensions, `dims` last."""
    return tuple(d for d in range(rank) if d not in dims) + dims


def _back(order: Dims) -> Dims:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def full(to: Writer, is_real: bool, dims: Dims, norm: str, forward: bool) -> None:
    shape, source = to.out, 1
    dims = tuple(d % len(shape) for d in dims)
    if is_real:
        run, count, source = to.on.kernel("widen", to.complex), math.prod(shape), 0
        to.steps.append(lambda at: run(at[0], at[1], count))
    to.complex_ones(0, source, shape, dims, _FORWARD if forward else _BACKWARD)
    points = math.prod(shape[d] for d in dims)
    to.scale(to.complex, dims, points, norm, "forward" if forward else "backward")


def half(to: Writer, dims: Dims, norm: str) -> None:
    shape, rank = to.x, len(to.x)
    dims = tuple(d % rank for d in dims)
    last = dims[-1]
    if last in (0, rank - 1):
        to.transform(_HALF, 0, 1, shape, (last,), _FORWARD)
    else:
        order = _order(rank, (last,))
        sizes, found = (tuple(some[d] for d in order) for some in (shape, to.out))
        moved, made = to.block(to.real, sizes), to.block(to.complex, found)
        to.copy(moved, 1, to.real, shape, order)
        to.transform(_HALF, made, moved, sizes, (rank - 1,), _FORWARD)
        to.copy(0, made, to.complex, found, _back(order))
    to.complex_ones(0, 0, to.out, dims[:-1], _FORWARD)
    to.scale(to.complex, dims, math.prod(shape[d] for d in dims), norm, "forward")


def from_half(to: Writer, dims: Dims, norm: str) -> None:
    shape, rank = to.x, len(to.x)
    dims = tuple(d % rank for d in dims)
    last, whole = dims[-1], to.block(to.complex, to.x)
    points, plain = to.out[last], tuple(range(rank))
    # A transform to real numbers may write to its operand.
    if to.complex_ones(whole, 1, shape, dims[:-1], _BACKWARD) == 1:
        to.copy(whole, 1, to.complex, shape, plain)
    if last in (0, rank - 1):
        to.transform(_FROM_HALF, 0, whole, shape, (last,), _BACKWARD, points)
    else:
        order = _order(rank, (last,))
        sizes, found = (tuple(some[d] for d in order) for some in (shape, to.out))
        moved, made = to.block(to.complex, sizes), to.block(to.real, found)
        to.copy(moved, whole, to.complex, shape, order)
        to.transform(_FROM_HALF, made, moved, sizes, (rank - 1,), _BACKWARD, points)
        to.copy(0, made, to.real, found, _back(order))
    to.scale(to.real, dims, math.prod(to.out[d] for d in dims), norm, "backward")


def _launcher(on: Solvers, kernel: Library, write: Callable[[Writer], None]) -> Launch:
    """A launch; its steps are kept by its sizes."""
    programs = Cache()

    def launch(*numbers: int) -> None:
        sizes = numbers[2:]
        program: Program | None = programs.get(sizes)
        if program is None:
            to = Writer(on, kernel, sizes)
            if math.prod(to.out) and math.prod(to.x):
                write(to)
            program = programs.keep(sizes, (to.rooms, to.steps))
        rooms, steps = program
        if not rooms:
            for step in steps:
                step(numbers)
            return
        with Scratch(on.pool(), *rooms) as places:
            for step in steps:
                step([*numbers[:2], *places])

    return launch


def _full(on: Solvers, kernel: Library) -> Launch:
    options: Any = kernel.options
    is_real = kernel.inputs[0].kind != "c"
    return _launcher(on, kernel, lambda to: full(to, is_real, *options))


def _half(on: Solvers, kernel: Library) -> Launch:
    options: Any = kernel.options
    return _launcher(on, kernel, lambda to: half(to, *options))


def _from_half(on: Solvers, kernel: Library) -> Launch:
    options: Any = kernel.options[:2]
    return _launcher(on, kernel, lambda to: from_half(to, *options))


BUILDERS: dict[str, Builder] = {"full": _full, "half": _half, "from_half": _from_half}
