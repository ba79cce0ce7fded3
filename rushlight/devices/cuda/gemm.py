"""Contractions by cuBLAS: an override of the contract kernel that changes rounding only.

float32 is computed in float32 (no TF32), halves are summed in float32 and never reduced in less.
cuBLAS gives the same bits from run to run on one stream. The memory that a handle takes, a
workspace, is counted when the handle is made.
"""

from __future__ import annotations

import ctypes
import math
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rushlight.core.dtypes import DType, bfloat16, compute_type, float16, float32, float64
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda.driver import DEFAULT_STREAM, address_of
from rushlight.devices.cuda.stub import make_caller
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Contract, Map
from rushlight.scalar.ir import arg

# cudaDataType and cublasComputeType_t
_TYPES = {float32: (0, 68), float64: (1, 70), float16: (2, 68), bfloat16: (14, 68)}
_NO_REDUCED_PRECISION = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_DEFAULT_ALGORITHM = -1
_INT_MAX = (1 << 31) - 1
_MOST_PLANS = 4096

Sizes = tuple[int, ...]
Strides = tuple[int, ...]


class Side(NamedTuple):
    """One factor for cuBLAS: whether transposed, and the stride of its columns."""

    transposed: int
    leading: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A factor without a unit stride: its sizes and strides, and the layout of its copy."""

    sizes: Sizes
    strides: Strides

    @property
    def packed(self) -> Strides:
        x, y, r, c = self.sizes
        # A batch that repeats one matrix is copied once.
        return (y * r * c if x > 1 else 0, r * c if y > 1 else 0, c, 1)


@dataclass(frozen=True, slots=True)
class Call:
    """One product: sizes, sides and offsets in bytes, in cuBLAS's order (right factor first)."""

    m: int
    n: int
    k: int
    right: Side
    left: Side
    leading: int
    batch: int
    steps: tuple[int, int, int]  # of right, left and out, per product of the batch
    offsets: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    calls: tuple[Call, ...]
    left_copy: Copy | None
    right_copy: Copy | None
    swapped: bool  # out is transposed, so the factors change places


def side_of(rows: int, columns: int, by_row: int, by_column: int) -> Side | None:
    """A matrix read row by row, or column by column; None when neither has unit stride."""
    if (by_column == 1 or columns == 1) and (rows == 1 or by_row >= columns):
        return Side(0, by_row if rows > 1 else columns)
    if (by_row == 1 or rows == 1) and (columns == 1 or by_column >= rows):
        return Side(1, by_column if columns > 1 else rows)
    return None


def _copy(sizes: Sizes, strides: Strides) -> Copy:
    x, y, r, c = sizes
    return Copy((x if strides[0] else 1, y if strides[1] else 1, r, c), strides)


def plan_contract(numbers: Sequence[int], itemsize: int) -> Plan | None:
    """A plan for cuBLAS, or None. `numbers` are the sizes and strides of a contract kernel."""
    if len(numbers) != 17:
        raise TypeError(f"Contract kernel takes 20 numbers, got {len(numbers) + 3}")
    values = tuple(operator.index(n) for n in numbers)
    x, y, m, n, k = values[:5]
    out, a, b = values[5:9], values[9:13], values[13:17]
    if not (x and y and m and n and k):
        return None
    swapped = not ((out[3] == 1 or n == 1) and (m == 1 or out[2] >= n))
    if swapped:  # out transposed = b transposed times a transposed
        m, n = n, m
        out, a, b = (*out[:2], out[3], out[2]), (*b[:2], b[3], b[2]), (*a[:2], a[3], a[2])
        if not ((out[3] == 1 or n == 1) and (m == 1 or out[2] >= n)):
            return None
    left_copy = right_copy = None
    if side_of(m, k, *a[2:]) is None:
        left_copy = _copy((x, y, m, k), a)
        a = left_copy.packed
    if side_of(k, n, *b[2:]) is None:
        right_copy = _copy((x, y, k, n), b)
        b = right_copy.packed
    calls = _calls((x, y, m, n, k), out, a, b, itemsize)
    if (
        max(max(c.m, c.n, c.k, c.batch, c.leading, c.left.leading, c.right.leading) for c in calls)
        > _INT_MAX
    ):
        return None
    return Plan(calls, left_copy, right_copy, swapped)


def _calls(sizes: Sizes, out: Strides, a: Strides, b: Strides, itemsize: int) -> tuple[Call, ...]:
    x, y, m, n, k = sizes
    operands = (b, a, out)
    if x == 1 or y == 1 or all(o[0] == o[1] * y for o in operands):
        loop, batch, inner = 1, x * y, 0 if y == 1 else 1
    else:  # the two batch dimensions do not merge: loop over the shorter
        inner = 0 if x >= y else 1
        loop, batch = (y, x) if x >= y else (x, y)
    steps = (b[inner], a[inner], out[inner]) if batch > 1 else (0, 0, 0)
    tall = batch > 1 and steps == (0, m * a[2], m * out[2]) and out[2] >= n
    # One right factor for all rows: one product of many rows.
    if tall and side_of(m * batch, k, *a[2:]):
        m, batch, steps = m * batch, 1, (0, 0, 0)
    right, left = side_of(k, n, *b[2:]), side_of(m, k, *a[2:])
    assert right is not None and left is not None
    leading = out[2] if m > 1 else n
    by_right, by_left, by_out = (o[1 - inner] * itemsize for o in operands)
    return tuple(
        Call(m, n, k, right, left, leading, batch, steps, (i * by_right, i * by_left, i * by_out))
        for i in range(loop)
    )


class _Holder:
    """A thread's handle. When the thread ends, the next thread reuses it: making one is slow."""

    def __init__(self, handle: int, free: list[int]) -> None:
        self.handle = handle
        self.free = free

    def __del__(self) -> None:
        self.free.append(self.handle)


class Cublas:
    """cuBLAS's two products, with a handle per thread: threads may not share one.

    `counted(make)` calls `make`, which gives a handle, and counts the memory that it takes.
    """

    def __init__(self, library: ctypes.CDLL, counted: Callable[[Callable[[], int]], int]) -> None:
        self.library = library
        self.counted = counted
        self.local = threading.local()
        self.free: list[int] = []
        self.one = make_caller(address_of(library, "cublasGemmEx"), "piiiiippiipiippiiii")
        self.many = make_caller(
            address_of(library, "cublasGemmStridedBatchedEx"), "piiiiippiiqpiiqppiiqiii"
        )

    def handle(self) -> int:
        holder: _Holder | None = getattr(self.local, "holder", None)
        if holder is None:
            holder = self.local.holder = _Holder(
                self.free.pop() if self.free else self._make_handle(), self.free
            )
        return holder.handle

    def _make_handle(self) -> int:
        return self.counted(self._create)

    def _create(self) -> int:
        made = ctypes.c_void_p()
        _check_status(self.library.cublasCreate_v2(ctypes.byref(made)))
        _check_status(self.library.cublasSetStream_v2(made, ctypes.c_void_p(DEFAULT_STREAM)))
        _check_status(self.library.cublasSetMathMode(made, _NO_REDUCED_PRECISION))
        assert made.value is not None
        return made.value


def _check_status(code: int) -> None:
    if code:
        raise DeviceError(f"cuBLAS failed with status {code}")


class Gemm:
    """The launcher of one contract kernel: cuBLAS where it can, else `fallback`."""

    __slots__ = ("constants", "copy", "cublas", "dtype", "fallback", "plans", "pool", "types")

    def __init__(
        self,
        kernel: Contract,
        cublas: Cublas,
        fallback: Launch,
        copy: Launch,
        pool: Callable[[], Pool],
    ) -> None:
        self.dtype = kernel.dtype
        self.types = _TYPES[kernel.dtype]
        self.cublas = cublas
        self.fallback = fallback
        self.copy = copy
        self.pool = pool
        self.plans: dict[tuple[int, ...], Plan | None] = {}
        real = ctypes.c_double if kernel.compute is float64 else ctypes.c_float
        self.constants = (real * 2)(1.0, 0.0)  # alpha and beta, on the host

    def __call__(self, out: int, a: int, b: int, *numbers: int) -> None:
        try:
            plan = self.plans[numbers]
        except KeyError:
            if len(self.plans) >= _MOST_PLANS:
                self.plans.clear()
            plan = self.plans[numbers] = plan_contract(numbers, self.dtype.itemsize)
        if plan is None:
            self.fallback(out, a, b, *numbers)
            return
        left, right = (b, a) if plan.swapped else (a, b)
        if plan.left_copy is None and plan.right_copy is None:
            self._multiply(plan, out, left, right)
        else:
            self._multiply_copies(plan, out, left, right)

    def _multiply(self, plan: Plan, out: int, left: int, right: int) -> None:
        handle, (kind, compute) = self.cublas.handle(), self.types
        alpha = ctypes.addressof(self.constants)
        beta = alpha + ctypes.sizeof(self.constants) // 2
        for call in plan.calls:
            begin = (
                handle,
                call.right.transposed,
                call.left.transposed,
                call.n,
                call.m,
                call.k,
                alpha,
            )
            at_right, at_left, at_out = (
                right + call.offsets[0],
                left + call.offsets[1],
                out + call.offsets[2],
            )
            ld_right, ld_left, ld_out = call.right.leading, call.left.leading, call.leading
            if call.batch == 1:
                code = self.cublas.one(
                    *begin, at_right, kind, ld_right, at_left, kind, ld_left,
                    beta, at_out, kind, ld_out, compute, _DEFAULT_ALGORITHM,
                )  # fmt: skip
            else:
                s_right, s_left, s_out = call.steps
                code = self.cublas.many(
                    *begin, at_right, kind, ld_right, s_right, at_left, kind, ld_left, s_left,
                    beta, at_out, kind, ld_out, s_out, call.batch, compute, _DEFAULT_ALGORITHM,
                )  # fmt: skip
            _check_status(code)

    def _multiply_copies(self, plan: Plan, out: int, left: int, right: int) -> None:
        # The blocks may be reused at once: their next use comes later on the stream.
        with Scratch(self.pool(), *_rooms(plan, self.dtype)) as packed:
            addresses = []
            for address, copy in ((left, plan.left_copy), (right, plan.right_copy)):
                if copy is not None:
                    target = packed.pop(0)
                    self.copy(target, address, *copy.sizes, *copy.packed, *copy.strides)
                    address = target
                addresses.append(address)
            self._multiply(plan, out, addresses[0], addresses[1])


def _rooms(plan: Plan, dtype: DType) -> list[int]:
    """The rooms of the factors' copies."""
    copies = [copy for copy in (plan.left_copy, plan.right_copy) if copy is not None]
    return [room_for(math.prod(copy.sizes) * dtype.itemsize) for copy in copies]


def scratch_rooms(kernel: Contract, numbers: Sequence[int]) -> list[int]:
    """The rooms that a launch takes from the pool."""
    plan = plan_contract(numbers, kernel.dtype.itemsize) if takes(kernel) else None
    return [] if plan is None else _rooms(plan, kernel.dtype)


def takes(kernel: Contract) -> bool:
    return kernel.dtype in _TYPES and kernel.compute is compute_type(kernel.dtype)


def copy_kernel(dtype: DType) -> Map:
    """Four dimensions, packed."""
    return Map((dtype,), (dtype,), (), (arg(0, compute_type(dtype)),), 4, ("1", "n"))
