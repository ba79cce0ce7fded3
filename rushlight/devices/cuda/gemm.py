"""Contractions by cuBLASLt: an override of the contract kernel that changes rounding only.

# Note [cuBLASLt]
1. float32 is computed in float32 (no TF32). Halves are summed in float32. Partial sums of a split k
   lie in the workspace in the compute type and are added in a fixed order: the same bits from run
   to run.
2. An algorithm is chosen by cuBLASLt's rules of thumb, never by timing, from sizes and strides
   alone. Where the choice leaves most of the GPU idle, because k alone is long, the library is
   asked again with the largest workspace, in which k is split. An operand that does not begin at a
   multiple of `_ALIGNMENT` bytes is copied, so that the bits do not depend on addresses.
3. What is added to a product is the library's bias, where it is one number per column, or its
   matrix C; other layouts take the own kernel. It is added before the result is rounded.
4. The library allocates nothing. A launch takes the workspace of its algorithm from the pool: none
   for small operands, at most as many bytes as its operands have, or 32 MiB where the library is
   asked again. A device without cuBLASLt (`scratch_rooms` in an estimate) does not know the
   algorithm and leaves the workspace out.
"""

from __future__ import annotations

import ctypes
import math
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType, bfloat16, compute_type, float16, float32, float64
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda.driver import DEFAULT_STREAM, address_of
from rushlight.devices.cuda.stub import Driver, make_caller
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Contract, Map
from rushlight.scalar.ir import arg

# cudaDataType and cublasComputeType_t
_TYPES = {float32: (0, 68), float64: (1, 70), float16: (2, 68), bfloat16: (14, 68)}
_FLOAT, _DOUBLE = 0, 1
# Attributes: cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t,
# cublasLtMatmulPreferenceAttributes_t
_TRANSPOSED = (3, 4)  # of the first and the second factor
_EPILOGUE, _BIAS = 7, 8
_ADD_BIAS = 4  # CUBLASLT_EPILOGUE_BIAS
_BATCH_COUNT, _BATCH_STEP = 5, 6
_MOST_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
_IN_COMPUTE_TYPE = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
_LARGEST_WORKSPACE = 32 << 20
_SMALL = 1 << 18  # bytes of operands: a product of fewer needs no workspace
_IDLE = 0.02  # waves of blocks
_ALIGNMENT = 16  # more does not change a choice
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
    if len(numbers) not in (17, 21):
        raise TypeError(f"Contract takes 17 or 21 sizes and strides, got {len(numbers)}")
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


def added_leading(plan: Plan, numbers: Sequence[int]) -> int | None:
    """The row stride of what is added to one product; 0 for a bias, None where it is neither."""
    (call, *rest), steps, rows = plan.calls, numbers[17:21], numbers[2]
    if rest or plan.swapped or call.batch > 1 or (steps[3] != 1 and call.n > 1):
        return None
    if not any(steps[:3]):
        return 0
    one = numbers[0] == numbers[1] == 1
    return steps[2] if one and rows > 1 and steps[2] >= call.n else None


class _Choice(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


Made = list[tuple[str, ctypes.c_void_p]]  # the kind and the address of each descriptor


class Product:
    """One call prepared for cuBLASLt: its descriptors, its algorithm and the workspace's room."""

    __slots__ = ("bias", "choice", "made", "numbers", "release", "room")

    def __init__(self, release: Callable[[Made], None]) -> None:
        self.release = release
        self.made: Made = []
        self.choice = _Choice()
        self.numbers: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
        self.room = 0
        self.bias: int | None = None  # its address in the descriptor; None: there is none

    def __del__(self) -> None:
        self.release(self.made)


class Cublas:
    """cuBLASLt: prepares a product and runs it. All threads share one handle.

    `bind` makes the context current on this thread.
    """

    def __init__(self, library: ctypes.CDLL, bind: Callable[[], object], driver: Driver) -> None:
        self.library = library
        self.bind = bind
        self.local = threading.local()
        handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(handle))
        assert handle.value is not None
        self.handle = handle.value
        self.run = make_caller(address_of(library, "cublasLtMatmul"), "ppppppppppppppqp", driver)
        self.several = driver.several
        self.pointing = threading.Lock()  # a descriptor has one bias at a time

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise DeviceError(f"{name} failed with status {code}")

    def _make(self, product: Product, kind: str, *arguments: Any) -> int:
        made = ctypes.c_void_p()
        self._call(f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
        assert made.value is not None
        product.made.append((kind, made))
        return made.value

    def _set(self, kind: str, target: int, attribute: int, value: Any) -> None:
        self._call(
            f"cublasLt{kind}SetAttribute",
            ctypes.c_void_p(target),
            ctypes.c_int(attribute),
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )

    def release(self, made: Made) -> None:
        for kind, address in made:
            getattr(self.library, f"cublasLt{kind}Destroy")(address)

    def prepare(
        self, call: Call, dtype: DType, alignment: int, added: int | None = None
    ) -> Product | None:
        """The product with its algorithm; None where cuBLASLt has none. For `added` see
        `added_leading`.
        """
        self.use_here()
        product = Product(self.release)
        kind, compute = _TYPES[dtype]
        scale = _DOUBLE if dtype is float64 else _FLOAT
        multiply = self._make(product, "MatmulDesc", ctypes.c_int(compute), ctypes.c_int(scale))
        for attribute, side in zip(_TRANSPOSED, (call.right, call.left), strict=True):
            self._set("MatmulDesc", multiply, attribute, ctypes.c_int32(side.transposed))
        right = (call.k, call.n) if call.right.transposed else (call.n, call.k)
        left = (call.m, call.k) if call.left.transposed else (call.k, call.m)
        layouts = [
            self._layout(product, kind, sizes, leading, call.batch, step)
            for sizes, leading, step in zip(
                (right, left, (call.n, call.m)),
                (call.right.leading, call.left.leading, call.leading),
                call.steps,
                strict=True,
            )
        ]
        if added:
            layouts.append(self._layout(product, kind, (call.n, call.m), added, 1, 0))
        elif added is not None:
            self._set("MatmulDesc", multiply, _EPILOGUE, ctypes.c_uint32(_ADD_BIAS))
            self.point(product, multiply, alignment)
        values = (call.m * call.k + call.k * call.n + call.m * call.n) * call.batch
        most = min(_LARGEST_WORKSPACE, values * dtype.itemsize)
        if most < _SMALL:
            preference = self._preference(product, 0, alignment)
            if self._choose(product, multiply, layouts, preference):
                return product
        found = self._choose(product, multiply, layouts, self._preference(product, most, alignment))
        if found and most < _LARGEST_WORKSPACE and product.choice.waves < _IDLE:
            preference = self._preference(product, _LARGEST_WORKSPACE, alignment)
            found = self._choose(product, multiply, layouts, preference)
        return product if found else None

    def point(self, product: Product, multiply: int, bias: int) -> None:
        """Write the address of a bias into the descriptor."""
        if product.bias != bias:
            self._set("MatmulDesc", multiply, _BIAS, ctypes.c_uint64(bias))
            product.bias = bias

    def _preference(self, product: Product, most: int, alignment: int) -> int:
        preference = self._make(product, "MatmulPreference")
        for attribute, value in (
            (_MOST_WORKSPACE, ctypes.c_uint64(most)),
            (_REDUCTIONS, ctypes.c_uint32(_IN_COMPUTE_TYPE)),
            *((attribute, ctypes.c_uint32(alignment)) for attribute in _ALIGNMENTS),
        ):
            self._set("MatmulPreference", preference, attribute, value)
        return preference

    def _layout(
        self,
        product: Product,
        kind: int,
        sizes: tuple[int, int],
        leading: int,
        batch: int,
        step: int,
    ) -> int:
        rows, columns = map(ctypes.c_uint64, sizes)
        layout = self._make(
            product, "MatrixLayout", ctypes.c_int(kind), rows, columns, ctypes.c_int64(leading)
        )
        if batch > 1:
            self._set("MatrixLayout", layout, _BATCH_COUNT, ctypes.c_int32(batch))
            self._set("MatrixLayout", layout, _BATCH_STEP, ctypes.c_int64(step))
        return layout

    def _choose(self, product: Product, multiply: int, layouts: list[int], preference: int) -> bool:
        """Whether there is an algorithm. The layouts are right, left, out and what is added."""
        right, left, out = layouts[:3]
        added = layouts[-1]
        count = ctypes.c_int()
        operands = map(ctypes.c_void_p, (multiply, right, left, added, out, preference))
        code = self.library.cublasLtMatmulAlgoGetHeuristic(
            ctypes.c_void_p(self.handle),
            *operands,
            ctypes.c_int(1),
            ctypes.byref(product.choice),
            ctypes.byref(count),
        )
        if code or not count.value or product.choice.state:
            return False
        product.numbers = (multiply, right, left, added, out, ctypes.addressof(product.choice))
        product.room = room_for(product.choice.workspace) if product.choice.workspace else 0
        return True

    def use_here(self) -> None:
        """The context is current on this thread."""
        if self.several or not hasattr(self.local, "bound"):
            self.bind()
            self.local.bound = True


Products = list[tuple[Product, tuple[int, int, int]]]  # with the offsets in bytes
Prepared = tuple[Plan | None, Products]


def _check_status(code: int) -> None:
    if code:
        raise DeviceError(f"cuBLAS failed with status {code}")


class Gemm:
    """The launcher of one contract kernel: cuBLASLt where it can, else `fallback`."""

    __slots__ = (
        *("added", "copy", "cublas", "dtype", "fallback", "pair", "plain", "plans", "pool"),
        "scaled",
    )

    def __init__(
        self,
        kernel: Contract,
        cublas: Cublas,
        fallback: Launch,
        copy: Launch,
        pool: Callable[[], Pool],
    ) -> None:
        self.dtype = kernel.dtype
        self.added = kernel.added
        self.cublas = cublas
        self.fallback = fallback
        self.copy = copy
        self.pool = pool
        self.plans: dict[tuple[int, ...], Prepared] = {}
        real = ctypes.c_double if kernel.compute is float64 else ctypes.c_float
        self.pair = real * 2
        self.plain = self.pair(1.0, 0.0)  # alpha and beta, on the host
        self.scaled = kernel.scaled

    def __call__(self, out: int, a: int, b: int, *rest: Any) -> None:
        added, numbers = (rest[0], rest[1:]) if self.added else (0, rest)
        factors = self.plain
        if self.scaled:
            factors = self.pair(*numbers[17:])
            numbers = numbers[:17]
        try:
            plan, products = self.plans[numbers]
        except KeyError:
            plan, products = self._prepare(numbers)
        if not products:
            self.fallback(out, a, b, *rest)
            return
        assert plan is not None
        left, right = (b, a) if plan.swapped else (a, b)
        if added % _ALIGNMENT:
            m, n, by_row = numbers[2], numbers[3], numbers[19]
            span = (m - 1) * by_row + n
            with Scratch(self.pool(), room_for(span * self.dtype.itemsize)) as (place,):
                self.copy(place, added, 1, 1, 1, span, 0, 0, 0, 1, 0, 0, 0, 1)
                self(out, a, b, place, *numbers)
        elif (out | a | b) % _ALIGNMENT:
            self._multiply_aligned(plan, products, (out, left, right), numbers, factors, added)
        elif plan.left_copy is None and plan.right_copy is None:
            self._multiply(products, out, left, right, factors, added)
        else:
            self._multiply_copies(plan, products, out, left, right, factors, added)

    def _multiply_aligned(
        self,
        plan: Plan,
        products: Products,
        given: Sequence[int],
        numbers: Sequence[int],
        factors: Any,
        added: int,
    ) -> None:
        """The product by copies, with the same strides, of what lies at other addresses."""
        x, y, m, n, k = numbers[:5]
        shapes = ((x, y, m, n), (x, y, m, k), (x, y, k, n))
        spans = [
            1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
            for shape, steps in zip(
                shapes, (numbers[5:9], numbers[9:13], numbers[13:17]), strict=True
            )
        ]
        if plan.swapped:
            spans[1:] = spans[2], spans[1]
        copied = (False, plan.left_copy is not None, plan.right_copy is not None)
        moved = [a % _ALIGNMENT != 0 and not c for a, c in zip(given, copied, strict=True)]
        rooms = [room_for(n * self.dtype.itemsize) for n, o in zip(spans, moved, strict=True) if o]
        with Scratch(self.pool(), *rooms) as free:
            places = [free.pop(0) if o else a for a, o in zip(given, moved, strict=True)]
            read = list(zip(places, given, spans, strict=True))[0 if self.scaled else 1 :]
            for place, address, span in read:
                if place != address:
                    self.copy(place, address, 1, 1, 1, span, 0, 0, 0, 1, 0, 0, 0, 1)
            out, left, right = places
            self._multiply_copies(plan, products, out, left, right, factors, added)
            if moved[0]:
                self._store(given[0], places[0], numbers)

    def _store(self, out: int, made: int, numbers: Sequence[int]) -> None:
        """Copy a result to its place; between its elements may lie others."""
        x, y, m, n = numbers[:4]
        sizes, steps = [x, y, m, n], list(numbers[5:9])
        if n > 1 and steps[3] != 1:  # it is transposed
            sizes[2:], steps[2:] = sizes[:1:-1], steps[:1:-1]
        self.copy(out, made, *sizes, *steps, *steps)

    def _prepare(self, numbers: tuple[int, ...]) -> Prepared:
        plans = self.plans
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plan = plan_contract(numbers, self.dtype.itemsize)
        products: Products = []
        added = added_leading(plan, numbers) if plan is not None and self.added else None
        refused = self.added and added is None
        for call in () if plan is None or refused else plan.calls:
            bits = _ALIGNMENT | call.offsets[0] | call.offsets[1] | call.offsets[2]
            product = self.cublas.prepare(call, self.dtype, bits & -bits, added)
            if product is None:
                products = []
                break
            products.append((product, call.offsets))
        plans[numbers] = found = (plan, products)
        return found

    def _multiply(
        self, products: Products, out: int, left: int, right: int, factors: Any, added: int
    ) -> None:
        cublas = self.cublas
        cublas.use_here()
        alpha = ctypes.addressof(factors)
        beta = alpha + ctypes.sizeof(factors) // 2
        for product, (by_right, by_left, by_out) in products:
            multiply, a, b, c, d, algorithm = product.numbers
            target = out + by_out
            more = (alpha, added) if added and product.bias is None else (beta, target)
            begin = (
                cublas.handle, multiply, alpha, right + by_right, a, left + by_left, b,
                *more, c, target, d, algorithm,
            )  # fmt: skip
            if not product.room:
                self._run(product, added, *begin, 0, 0, DEFAULT_STREAM)
                continue
            # The block may be reused at once: its next use comes later on the stream.
            with Scratch(self.pool(), product.room) as (workspace,):
                self._run(product, added, *begin, workspace, product.room, DEFAULT_STREAM)

    def _run(self, product: Product, added: int, *numbers: int) -> None:
        cublas = self.cublas
        if product.bias is None:
            _check_status(cublas.run(*numbers))
            return
        with cublas.pointing:
            cublas.point(product, product.numbers[0], added)
            _check_status(cublas.run(*numbers))

    def _multiply_copies(
        self,
        plan: Plan,
        products: Products,
        out: int,
        left: int,
        right: int,
        factors: Any,
        added: int,
    ) -> None:
        with Scratch(self.pool(), *_rooms(plan, self.dtype)) as packed:
            addresses = []
            for address, copy in ((left, plan.left_copy), (right, plan.right_copy)):
                if copy is not None:
                    target = packed.pop(0)
                    self.copy(target, address, *copy.sizes, *copy.packed, *copy.strides)
                    address = target
                addresses.append(address)
            self._multiply(products, out, addresses[0], addresses[1], factors, added)


def _rooms(plan: Plan, dtype: DType) -> list[int]:
    """The rooms of the factors' copies."""
    copies = [copy for copy in (plan.left_copy, plan.right_copy) if copy is not None]
    return [room_for(math.prod(copy.sizes) * dtype.itemsize) for copy in copies]


def scratch_rooms(kernel: Contract, numbers: Sequence[int]) -> list[int]:
    """The rooms that a launch takes from the pool."""
    plan = plan_contract(numbers[:17], kernel.dtype.itemsize) if takes(kernel) else None
    return [] if plan is None else _rooms(plan, kernel.dtype)


def takes(kernel: Contract) -> bool:
    return kernel.dtype in _TYPES and kernel.compute is compute_type(kernel.dtype)


def copy_kernel(dtype: DType) -> Map:
    """Four dimensions, packed."""
    return Map((dtype,), (dtype,), (), (arg(0, compute_type(dtype)),), 4, ("1", "n"))
