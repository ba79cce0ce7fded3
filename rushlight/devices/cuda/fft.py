"""Discrete Fourier transforms by cuFFT on CuPy arrays. See `devices/shared/library/fft.py`.

A plan transforms the last dimensions of a dense array, at most three; other dimensions are moved
to the end by a copy. cuFFT allocates nothing: a transform takes its work area from the allocator of
CuPy, which is the pool's.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight.core.cache import cached
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda.driver import DEFAULT_STREAM, find_library

Array = Any  # a cupy.ndarray
Arrays = Sequence[Array]
Dims = tuple[int, ...]

_MOST_DIMS = 3
# cufftType: single precision, then double
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


class _Plan:
    """A plan of cuFFT, its number and the bytes of its work area."""

    __slots__ = ("library", "number", "work")

    def __init__(self, library: ctypes.CDLL, number: int, work: int) -> None:
        self.library, self.number, self.work = library, number, work

    def __del__(self) -> None:
        self.library.cufftDestroy(self.number)


@cached
def _plan(kind: int, sizes: Dims, batch: int, card: int) -> _Plan:
    """A plan on the current card, which is `card`."""
    importlib.import_module("cupy.cuda.cufft")  # loads the library
    library = find_library("cufft", (12, 11, 10))
    if library is None:
        raise DeviceError("cuFFT, which CuPy loads, is not found")
    number, work = ctypes.c_int(), ctypes.c_size_t()
    _check(library.cufftCreate(ctypes.byref(number)))
    _check(library.cufftSetAutoAllocation(number, 0))
    dense = (None, ctypes.c_longlong(1), ctypes.c_longlong(0))
    _check(
        library.cufftMakePlanMany64(
            number,
            len(sizes),
            (ctypes.c_longlong * len(sizes))(*sizes),
            *dense,
            *dense,
            kind,
            ctypes.c_longlong(batch),
            ctypes.byref(work),
        )
    )
    _check(library.cufftSetStream(number, ctypes.c_void_p(DEFAULT_STREAM)))
    return _Plan(library, number.value, work.value)


def _check(code: int) -> None:
    if code:
        raise DeviceError(f"cuFFT failed with status {code}")


def _run(kinds: tuple[int, int], out: Array, x: Array, sizes: Dims, direction: int) -> None:
    """Transform the last dimensions, of `sizes` real or complex numbers, of `x` into `out`."""
    import cupy

    kind = kinds[out.dtype in (np.complex128, np.float64)]
    plan = _plan(kind, sizes, math.prod(x.shape[: x.ndim - len(sizes)]), x.device.id)
    work = cupy.empty(plan.work, np.uint8)
    operands = [ctypes.c_void_p(x.data.ptr), ctypes.c_void_p(out.data.ptr)]
    more = [direction] if kinds is _COMPLEX else []
    with _RUNNING:
        _check(plan.library.cufftSetWorkArea(plan.number, ctypes.c_void_p(work.data.ptr)))
        _check(getattr(plan.library, _RUNS[kind])(plan.number, *operands, *more))


def _order(rank: int, dims: Dims) -> Dims:
    """The dimensions, `dims` last."""
    return tuple(d for d in range(rank) if d not in dims) + dims


def _back(order: Dims) -> Dims:
    return tuple(np.argsort(order).tolist())


def _transform(out: Array, dims: Dims, direction: int) -> None:
    """Transform a dense complex array in place."""
    import cupy

    for first in range(0, len(dims), _MOST_DIMS):
        some = tuple(sorted(dims[first : first + _MOST_DIMS]))
        order = _order(out.ndim, some)
        sizes = tuple(out.shape[d] for d in some)
        if order == tuple(range(out.ndim)):
            _run(_COMPLEX, out, out, sizes, direction)
            continue
        moved = cupy.ascontiguousarray(out.transpose(order))
        _run(_COMPLEX, moved, moved, sizes, direction)
        out[...] = moved.transpose(_back(order))


def _scale(out: Array, points: int, norm: str, divided: str) -> None:
    if norm == "ortho":
        out *= out.real.dtype.type(1 / math.sqrt(points))
    elif norm == divided:
        out *= out.real.dtype.type(1 / points)


def full(outs: Arrays, ins: Arrays, dims: Dims, norm: str, forward: bool) -> None:
    (out,), (x,) = outs, ins
    if not out.size:
        return
    out[...] = x
    dims = tuple(d % out.ndim for d in dims)
    _transform(out, dims, _FORWARD if forward else _BACKWARD)
    points = math.prod(x.shape[d] for d in dims)
    _scale(out, points, norm, "forward" if forward else "backward")


def half(outs: Arrays, ins: Arrays, dims: Dims, norm: str) -> None:
    import cupy

    (out,), (x,) = outs, ins
    if not out.size:
        return
    dims = tuple(d % x.ndim for d in dims)
    order = _order(x.ndim, dims[-1:])
    moved = cupy.ascontiguousarray(x.transpose(order))
    if moved.data.ptr % (2 * moved.itemsize):  # cuFFT wants the alignment of complex numbers
        moved = moved.copy()
    found = out
    if order != tuple(range(x.ndim)):
        found = cupy.empty((*moved.shape[:-1], moved.shape[-1] // 2 + 1), out.dtype)
    _run(_HALF, found, moved, moved.shape[-1:], _FORWARD)
    if found is not out:
        out[...] = found.transpose(_back(order))
    _transform(out, dims[:-1], _FORWARD)
    _scale(out, math.prod(x.shape[d] for d in dims), norm, "forward")


def from_half(outs: Arrays, ins: Arrays, dims: Dims, norm: str, size: int) -> None:
    import cupy

    (out,), (x,) = outs, ins
    if not out.size:
        return
    dims = tuple(d % x.ndim for d in dims)
    whole = x.copy()  # a transform to real numbers may write to its operand
    _transform(whole, dims[:-1], _BACKWARD)
    order = _order(x.ndim, dims[-1:])
    moved = cupy.ascontiguousarray(whole.transpose(order))
    found = out
    if order != tuple(range(x.ndim)):
        found = cupy.empty((*moved.shape[:-1], out.shape[dims[-1]]), out.dtype)
    _run(_FROM_HALF, found, moved, found.shape[-1:], _BACKWARD)
    if found is not out:
        out[...] = found.transpose(_back(order))
    _scale(out, math.prod(out.shape[d] for d in dims), norm, "backward")


FUNCTIONS: dict[str, Callable[..., None]] = {"full": full, "half": half, "from_half": from_half}
