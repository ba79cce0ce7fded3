"""The device that interprets kernels with NumPy: slow, and the definition of right.

Elementary functions are NumPy's, computed in float64 and rounded to the type, so that this device
checks the polynomials of `scalar/elementary.py` instead of repeating them. Sums and products are
folded in a wider type and rounded once. Everything else rounds where Note [Scalar instructions]
says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rushlight.core.dtypes import ALL, FLOAT, DType, bfloat16, compute_type, float32
from rushlight.core.errors import BoundsError, OutOfMemoryError
from rushlight.core.interrupts import unheard
from rushlight.devices.reference.convolve import convolve
from rushlight.devices.shared import composed, library
from rushlight.devices.shared.protocol import Kind, Launch, Limits, Tell
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.interpret import interpret, sort_arguments
from rushlight.kernel.machine import Call, Sizes
from rushlight.kernel.shapes import LOADED, Kernel, Library, Map, Rowwise
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify
from rushlight.scalar.interpret import Arithmetic

Array = Any  # an ndarray or a NumPy scalar
Function = Callable[..., Array]

KIND = Kind(public=False)

# bfloat16 has no NumPy type; its memory is seen as words.
_STORED = {d: np.dtype("uint16" if d is bfloat16 else d.name) for d in ALL}
_ALIGNMENT = 64


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of values in a compute type."""
    return np.dtype(dtype.name)


# ---- the instructions ----


def _divide(dtype: DType, a: Array, b: Array) -> Array:
    if dtype.kind == "f":
        return np.divide(a, b)
    floored, left = np.floor_divide(a, b), np.remainder(a, b)
    upwards = (left != 0) & ((a < 0) != (b < 0))
    return floored + upwards.astype(floored.dtype)


def _split(a: Array) -> tuple[Array, Array]:
    """Veltkamp: two halves of at most 26 bits whose sum is `a`."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fma(dtype: DType, a: Array, b: Array, c: Array) -> Array:
    """Two roundings instead of one, the first in at least twice the bits.

    The result is the same except for rare ties.
    """
    if dtype is float32:
        wide = np.multiply(a, b, dtype=np.float64)
        return np.add(wide, c, dtype=np.float64).astype(np.float32)
    product = a * b
    (a1, a0), (b1, b0) = _split(a), _split(b)
    lost = ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0
    total = product + c
    back = total - product
    rounded = (product - (total - back)) + (c - back)
    missing = rounded + lost
    # The split overflows before the product does; and adding 0 would lose the sign of -0.
    return np.where(np.isfinite(missing) & (missing != 0), total + missing, total)


def _mulhi(dtype: DType, a: Array, b: Array) -> Array:
    return (np.multiply(a, b, dtype=np.uint64) >> np.uint64(32)).astype(np.uint32)


def _shift(function: Function) -> Function:
    def shift(dtype: DType, a: Array, count: Array) -> Array:
        width = dtype.itemsize * 8
        return function(a, np.bitwise_and(count, numpy_dtype(dtype).type(width - 1)))

    return shift


def _in_double(function: Function) -> Function:
    def rounded(dtype: DType, *operands: Array) -> Array:
        wide = [np.asarray(a, dtype=np.float64) for a in operands]
        return np.asarray(function(*wide)).astype(numpy_dtype(dtype))

    return rounded


def _plain(function: Function) -> Function:
    return lambda dtype, *operands: function(*operands)


ARITHMETIC: dict[str, Function] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _divide,
    "rem": _plain(np.fmod),
    "min": _plain(np.minimum),
    "max": _plain(np.maximum),
    "neg": _plain(np.negative),
    "abs": _plain(np.absolute),
    "fma": _fma,
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "round": _plain(np.rint),
    "trunc": _plain(np.trunc),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "isnan": _plain(np.isnan),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "not": _plain(np.invert),
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "mulhi": _mulhi,
    "select": _plain(np.where),
    "cast": lambda dtype, a: np.asarray(a).astype(numpy_dtype(dtype)),
    "bitcast": lambda dtype, a: a.view(numpy_dtype(dtype)),
    "sqrt": _plain(np.sqrt),
    "exp": _in_double(np.exp),
    "log": _in_double(np.log),
    "sin": _in_double(np.sin),
    "cos": _in_double(np.cos),
    "tanh": _in_double(np.tanh),
    "erf": _in_double(np.vectorize(math.erf, otypes=[np.float64])),
    "pow": _in_double(np.power),
}


# ---- the arrays ----


class _Memory:
    """The array interface over memory that NumPy does not own."""

    def __init__(self, address: int, dtype: np.dtype[Any], sizes: Sizes, strides: Sizes) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": dtype.str,
            "shape": sizes,
            "strides": tuple(s * dtype.itemsize for s in strides),
        }


def view_memory(address: int, dtype: DType, sizes: Sizes, strides: Sizes) -> np.ndarray:
    """Memory at `address` as an array of the storage type; bfloat16 as uint16.

    Strides count elements.
    """
    stored = _STORED[dtype]
    if math.prod(sizes) == 0:
        return np.empty(sizes, stored)
    return np.asarray(_Memory(address, stored, sizes, strides))


def widen(words: Array) -> Array:
    """bfloat16 words as float32."""
    return (np.asarray(words).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: Array) -> Array:
    """float32 to bfloat16 words, to nearest, ties to even; NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    tie = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + tie) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


_IDENTITY = {"sum": 0, "prod": 1}
_FOLDS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_SCATTERS: dict[str, np.ufunc] = {
    "add": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _identity(kind: str, dtype: np.dtype[Any]) -> Any:
    if kind in _IDENTITY:
        return dtype.type(_IDENTITY[kind])
    if dtype.kind == "f":
        return dtype.type(-math.inf if kind == "max" else math.inf)
    if dtype.kind == "b":
        return dtype.type(kind == "min")
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if kind == "max" else limits.max)


class NumpyMachine:
    """The arrays of `kernel/interpret.py` as NumPy arrays."""

    arithmetic: Arithmetic = ARITHMETIC
    view = staticmethod(view_memory)

    def load(self, dtype: DType, view: Array) -> Array:
        if dtype is bfloat16:
            return widen(view)
        return view.astype(numpy_dtype(compute_type(dtype)), copy=False)

    def store(self, dtype: DType, view: Array, values: Array) -> None:
        view[...] = narrow(values) if dtype is bfloat16 else np.asarray(values).astype(view.dtype)

    def number(self, dtype: DType, value: bool | int | float) -> Array:
        kind = numpy_dtype(dtype)
        if dtype.kind in "iu":  # a Python integer of any size wraps
            return np.asarray(int(value) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(kind)
        return np.asarray(value, kind)

    def positions(self, sizes: Sizes) -> Array:
        return np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)

    def fold(self, kind: str, dtype: DType, values: Array, sizes: Sizes) -> Array:
        own = numpy_dtype(dtype)
        wide = own
        if own.kind == "f" and kind in _IDENTITY:
            wide = np.dtype(np.float64 if own.itemsize == 4 else np.longdouble)
        whole = np.broadcast_to(values, sizes)
        folded = _FOLDS[kind].reduce(
            whole, axis=1, keepdims=True, dtype=wide, initial=_identity(kind, wide)
        )
        return folded.astype(own)

    def contract(self, compute: DType, a: Array, b: Array) -> Array:
        own = numpy_dtype(compute)
        wide = np.dtype(np.float64) if compute is float32 else own
        return np.matmul(a.astype(wide), b.astype(wide)).astype(own)

    def convolve(
        self, of: str, compute: DType, a: Array, b: Array, geometry: Sequence[Sizes]
    ) -> Array:
        own = numpy_dtype(compute)
        wide = np.dtype(np.float64) if compute is float32 else own
        return convolve(of, a.astype(wide), b.astype(wide), geometry).astype(own)

    def gather(self, out: Array, source: Array, index: Array) -> bool:
        bad, place = _resolve(index, source.shape[1])
        if source.size == 0:
            out[...] = 0
        else:
            outer, _, inner = np.indices(index.shape, sparse=True)
            out[...] = np.where(bad, out.dtype.type(0), source[outer, place, inner])
        return bool(bad.any())

    def scatter(self, kind: str, dtype: DType, out: Array, source: Array, index: Array) -> bool:
        bad, place = _resolve(index, out.shape[1])
        for k in range(index.shape[1]):
            outer, inner = np.nonzero(~bad[:, k, :])
            spot = (outer, place[outer, k, inner], inner)
            given = source[outer, k, inner]
            if kind == "set":
                out[spot] = given
                continue
            total = _SCATTERS[kind](self.load(dtype, out[spot]), self.load(dtype, given))
            out[spot] = narrow(total) if dtype is bfloat16 else total.astype(out.dtype)
        return bool(bad.any())

    def search(self, line: Array, wanted: Array, right: bool) -> Array:
        left = line.shape[1]
        place = np.zeros(wanted.shape, np.int64)
        while left:
            step = max(left // 2, 1)
            at = np.take_along_axis(line, place + step - 1, 1)
            place = np.where(at > wanted if right else at >= wanted, place, place + step)
            left -= step
        return place

    def order(self, dtype: DType, source: Array, descending: bool) -> Array:
        keys = _order_keys(np.ascontiguousarray(source), dtype)
        return np.argsort(~keys if descending else keys, axis=1, kind="stable")


# The bits of infinity.
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}


def _order_keys(words: Array, dtype: DType) -> Array:
    """Elements' bits as uint64 in the elements' order: -0.0 is 0.0, every NaN is the largest."""
    bits = 8 * dtype.itemsize
    top = np.uint64(1 << (bits - 1))
    wide = words.view(f"uint{bits}").astype(np.uint64)
    if dtype.kind != "f":
        return wide ^ top if dtype.kind == "i" else wide
    size = wide & (top - np.uint64(1))
    infinity = np.uint64(_INFINITY[dtype.name])
    turned = np.where(wide >= top, top - size, top + size)
    return np.where(size > infinity, np.uint64(1 << 63) + (top - np.uint64(1)), turned)


def _resolve(index: Array, limit: int) -> tuple[Array, Array]:
    """Which indices are outside [0, limit), and the indices with 0 for those."""
    bad = (index < 0) | (index >= limit)
    return bad, np.where(bad, 0, index)


def _run_checked(
    kernel: Map | Rowwise, call: Call, machine: NumpyMachine, inputs: tuple[int, ...]
) -> int:
    """One launch, and the anomalies it found: see Note [Anomaly kernels]."""
    first = len(kernel.outputs)
    found = LOADED * _anomalies(kernel, call, machine, [first + i for i in inputs])
    interpret(kernel, call, machine)
    return found | _anomalies(kernel, call, machine, range(first))


def _anomalies(
    kernel: Map | Rowwise, call: Call, machine: NumpyMachine, operands: Iterable[int]
) -> int:
    found = 0
    for k in operands:
        dtype = (kernel.outputs + kernel.inputs)[k]
        steps, sizes = call.strides[k], call.sizes
        if isinstance(kernel, Map):
            steps = steps or (int(kernel.steps[k]),)
        elif kernel.kinds[k : k + 1] == ("row",):
            sizes = (sizes[0], 1, sizes[2])
        if dtype.kind == "f":
            values = machine.load(dtype, machine.view(call.addresses[k], dtype, sizes, steps))
            found |= 1 if np.isnan(values).any() else 2 if np.isinf(values).any() else 0
    return found


# ---- the device ----


class ReferenceDevice:
    """See `protocol.Device`."""

    name = "reference"
    limits = Limits(
        dtypes=ALL,
        host_memory=True,
        asynchronous=False,
        largest_block=1 << 46,
        attends=tuple((dtype, 1 << 20) for dtype in FLOAT),
        description=f"kernels interpreted by NumPy {np.__version__}",
        convolves=("image", "back", "weights"),
        adds=FLOAT,
    )

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray] = {}
        self._status: dict[str, int] = {}

    def emit(self, kernel: Kernel) -> str:
        return show(kernel)

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        verify(kernel)
        if isinstance(kernel, Library):
            return library.build(self, kernel)
        if composed.is_whole_gradient(kernel):
            return composed.build(kernel, self, lambda: pool_of(self.name))
        machine = NumpyMachine()
        inputs: tuple[int, ...] = ()
        if tell is not None and isinstance(kernel, Map | Rowwise):
            inputs = kernel.anomaly or ()
            kernel = replace(kernel, anomaly=None)  # the flags are returned, not written

        def launch(*numbers: bool | int | float) -> None:
            call = sort_arguments(kernel, numbers)
            with np.errstate(all="ignore"):
                if tell is not None and isinstance(kernel, Map | Rowwise):
                    found = _run_checked(kernel, call, machine, inputs)
                else:
                    found = 0
                    interpret(kernel, call, machine)
            if tell is not None and found:
                tell(found, *numbers)

        return launch

    def alloc(self, nbytes: int) -> int:
        try:
            block = np.empty(nbytes + _ALIGNMENT, np.uint8)
        except MemoryError:
            raise OutOfMemoryError(f"reference: the host has no room for {nbytes} bytes") from None
        address = -(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        self._blocks[address] = block
        return address

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        del self._blocks[address]

    def copy_in(self, address: int, source: memoryview) -> None:
        if not source.nbytes:
            return
        raw = np.frombuffer(source, np.uint8)
        np.asarray(_Memory(address, raw.dtype, raw.shape, (1,)))[...] = raw

    def copy_out(self, address: int, target: memoryview) -> None:
        self.synchronize()
        if not target.nbytes:
            return
        raw = np.frombuffer(target, np.uint8)
        raw[...] = np.asarray(_Memory(address, raw.dtype, raw.shape, (1,)))

    def status_word(self, label: str) -> int:
        address = self._status.get(label)
        if address is None:
            address = self._status[label] = self.alloc(_ALIGNMENT)
            self._blocks[address][:] = 0
        return address

    def synchronize(self) -> None:
        found = [label for label, address in self._status.items() if self._clear(address)]
        if found:
            raise BoundsError(f"{', '.join(found)}: index out of range")

    def _clear(self, address: int) -> bool:
        word = np.asarray(_Memory(address, np.dtype(np.int32), (1,), (1,)))
        was_set = bool(word[0])
        word[0] = 0
        return was_set


def open_device() -> ReferenceDevice:
    return ReferenceDevice()
