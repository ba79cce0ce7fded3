"""Contract as IR around a BLAS's gemm; layouts that gemm can take are passed unchanged.

A task is one block of one product. Blocks depend on the sizes alone, so that the bits do not depend
on the number of threads; each is one call of gemm on one thread. A matrix with a unit stride either
way goes to gemm in place (transposed, if necessary); any other, and halves, go through a dense copy
in the compute type. `small_products` is asked first, where the processor allows it.

# Note [Copies of halves]
Every factor and result of a product of halves is copied, so the caller gives an arena from the
pool, cut into slots: a thread takes a free slot for its tasks and gives it back. A slot's flag is
an i64 at the arena's start, every 64 bytes; zero is free. With fewer slots than threads, some wait.
A slot holds `DEPTH` columns of the left factor and rows of the right one; longer sums are added up
in the copy of the result, from one panel of them to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rushlight.core.dtypes import DType, float32
from rushlight.devices.cpu import small_products
from rushlight.devices.cpu.small_products import corner, divide
from rushlight.emit.llvm.body import cast, first_lanes, load, pointer, store
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.terms import Term, larger, terms, where
from rushlight.emit.llvm.text import COMPUTE, FUNCTION, Arguments, Writer
from rushlight.kernel.shapes import Contract

ROW_MAJOR, COLUMN_MAJOR = "101", "102"
AS_IS, TRANSPOSED = "111", "112"
SMALL, MEDIUM = 1 << 23, 1 << 27  # products of sizes below these are cut finer
ROWS = (256, 256, 512)  # of a block: below SMALL, below MEDIUM, and beyond
COLUMNS = (64, 128, 256)
FLAG = 64  # bytes
DEPTH = 1024  # see Note [Copies of halves]
WIDTH = 16


@dataclass
class Matrix:
    """A matrix in memory: (rows, columns), their strides, and its description for gemm."""

    dtype: DType
    place: str
    sizes: tuple[str, str]
    strides: tuple[str, str]
    flipped: str = ""  # i1: walked by columns
    direct: str = ""  # i1: gemm can use it in place
    lead: str = ""  # gemm's leading dimension


def text(kernel: Contract, wide: bool) -> str:
    """The module's functions, for `stub`; see `emit.llvm`. `wide` as for `small_products.plan`."""
    declared: set[str] = set()
    counts = Writer(declared)
    small = has_own_ways(kernel)
    texts = [_copy_function(declared, kernel, inward=inward) for inward in (True, False)]
    texts += [small_products.plan(declared, kernel.dtype, wide)] if small else []
    texts += [_blocks(declared), _kernel_function(declared, kernel, small)]
    return f"@blas = global [{OTHERS + 4} x ptr] zeroinitializer\n" + module(
        texts, counts, _write_counts(counts, small)
    )


def has_own_ways(kernel: Contract) -> bool:
    """Whether `small_products` is asked for this kernel."""
    return not kernel.scaled and small_products.usable(kernel.dtype, kernel.compute)


def copied(kernel: Contract) -> bool:
    """Whether a launch takes an arena: its address, its slots and their bytes come last."""
    return kernel.dtype is not kernel.compute


def slots_of(m: int, n: int, k: int, itemsize: int) -> tuple[int, int]:
    """The blocks of one product, and the bytes of a slot, where a compute type has `itemsize`."""
    size = 0 if m * n * k < SMALL else 1 if m * n * k < MEDIUM else 2
    rows, columns = (
        min(most[size], -(-length // 16) * 16) for length, most in ((m, ROWS), (n, COLUMNS))
    )
    blocks = -(-m // max(rows, 1)) * -(-n // max(columns, 1))
    depth = -(-min(k, DEPTH) // 16) * 16
    return blocks, (rows * columns + (rows + columns) * depth) * itemsize


BLOCKS = "define internal void @blocks(ptr readonly %args, ptr %numbers) noinline"
OTHERS = 3  # where in @blas the pointers of `small_products` begin


def _blocks(declared: set[str]) -> str:
    """The rows and columns of a block, and the number of blocks down and across."""
    writer = Writer(declared)
    arguments = Arguments(writer)
    arguments.next = 3
    _, _, m, n, k = terms(writer, arguments.words(5))
    small, medium = m * n * k < SMALL, m * n * k < MEDIUM
    rows, columns = (
        where(small, most[0], where(medium, most[1], most[2])) for most in (ROWS, COLUMNS)
    )
    small_products.store_numbers(writer, small_products.even_blocks(m, n, rows, columns))
    return writer.function(BLOCKS)


def _plan(writer: Writer, small: bool) -> tuple[str, list[str]]:
    """The way, and the blocks. See Note [Ways of a product]."""
    numbers = writer.array("i64", 4)
    way = (
        writer.value(f"call i64 @plan(ptr %args, ptr {numbers})")
        if small
        else str(small_products.LIBRARY)
    )
    with writer.when(writer.value(f"icmp eq i64 {way}, {small_products.LIBRARY}")):
        writer.line(f"call void @blocks(ptr %args, ptr {numbers})")
    places = [writer.value(f"getelementptr i64, ptr {numbers}, i64 {i}") for i in range(4)]
    return way, [writer.value(f"load i64, ptr {place}") for place in places]


def _entry(writer: Writer, table: int, way: str) -> str:
    """The entry of a way in a table of `small_products`."""
    place = _entry_of_blas(writer, OTHERS + table)
    return writer.value(
        f"load ptr, ptr {writer.value(f'getelementptr ptr, ptr {place}, i64 {way}')}"
    )


def _entry_of_blas(writer: Writer, number: int) -> str:
    return writer.value(f"load ptr, ptr getelementptr (ptr, ptr @blas, i64 {number})")


def _write_counts(writer: Writer, small: bool) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = 3
    x, y, m, n, k = arguments.words(5)
    way, (_, _, down, across) = _plan(writer, small)
    tasks = writer.mul(writer.mul(x, y), writer.mul(down, across))
    products = writer.mul(writer.mul(writer.mul(x, y), m), writer.mul(n, k))
    if small:
        tasks = _write_filling(writer, way, tasks)
    return tasks, writer.value(f"lshr i64 {products}, 3")


def _write_filling(writer: Writer, way: str, tasks: str) -> str:
    """Build the way's code if it is missing: the number of tasks, or -1."""
    slot = writer.slot("i64", tasks)
    ours = writer.value(f"icmp ugt i64 {way}, {small_products.BLOCKS}")
    missing = writer.value(f"icmp eq ptr {_entry(writer, 0, way)}, null")
    with writer.when(writer.value(f"and i1 {ours}, {missing}")):
        answer = writer.value(
            f"call ptr {_entry_of_blas(writer, OTHERS + 2)}(ptr {_entry(writer, 1, way)})"
        )
        raised = writer.value(f"icmp eq ptr {answer}, null")
        writer.set(slot, writer.value(f"select i1 {raised}, i64 -1, i64 {tasks}"))
        with writer.when(writer.value(f"xor i1 {raised}, true")):
            writer.line(f"call void {_entry_of_blas(writer, OTHERS + 3)}(ptr {answer})")
    return writer.get(slot)


def _kernel_function(declared: set[str], kernel: Contract, small: bool) -> str:
    writer = Writer(declared)
    arguments = Arguments(writer)
    out, a, b = (arguments.address() for _ in range(3))
    _, y, m, n, k = arguments.words(5)
    steps = [arguments.words(4) for _ in range(3)]
    scalar = COMPUTE[kernel.compute]
    factors = [arguments.param(dtype) for dtype in kernel.params] or ["1.0", "0.0"]
    arena = arguments.words(3) if copied(kernel) else None
    way, (rows, columns, down, across) = _plan(writer, small)
    flag, slot = ("", "") if arena is None else _take_slot(writer, arena)
    ours = writer.value(f"icmp ugt i64 {way}, {small_products.BLOCKS}")
    if small:
        with writer.when(ours):
            writer.line(f"call void {_entry(writer, 0, way)}(ptr %args, i64 %begin, i64 %end)")
    last = writer.value(f"select i1 {ours}, i64 %begin, i64 %end")
    with writer.loop("%begin", last) as task:
        rest, column = divide(writer, task, across)
        batch, row = divide(writer, rest, down)
        top, left = writer.mul(row, rows), writer.mul(column, columns)
        height = writer.smaller(rows, writer.sub(m, top))
        width = writer.smaller(columns, writer.sub(n, left))
        where = divide(writer, batch, y)
        scales = (f"{scalar} {factors[0]}", f"{scalar} {factors[1]}")
        block = _Block(writer, kernel, (out, a, b), steps, (top, left), (height, width, k), where)
        if arena is None:
            _multiply(block, scales)
        else:
            _multiply_copies(block, scales, slot)
    if arena is not None:
        writer.line(f"store atomic i64 0, ptr {flag} release, align 8")
    return writer.function(FUNCTION.format(name="kernel"))


def _take_slot(writer: Writer, arena: Sequence[str]) -> tuple[str, str]:
    """A free slot of the arena: its flag, which is set, and its bytes."""
    at, slots, nbytes = arena
    start = writer.value(f"inttoptr i64 {at} to ptr")
    number = writer.slot("i64", "0")
    look, taken = writer.fresh("look"), writer.fresh("taken")
    writer.line(f"br label %{look}")
    writer.label(look)
    here = writer.get(number)
    flag = writer.value(f"getelementptr i8, ptr {start}, i64 {writer.mul(here, str(FLAG))}")
    found = writer.value(f"cmpxchg ptr {flag}, i64 0, i64 1 acquire monotonic, align 8")
    free = writer.value(f"extractvalue {{i64, i1}} {found}, 1")
    following = writer.value(f"urem i64 {writer.add(here, '1')}, {slots}")
    writer.set(number, following)
    writer.line(f"br i1 {free}, label %{taken}, label %{look}")
    writer.label(taken)
    skip = writer.add(writer.mul(slots, str(FLAG)), writer.mul(here, nbytes))
    return flag, writer.value(f"getelementptr i8, ptr {start}, i64 {skip}")


def _matrix(
    writer: Writer, kernel: Contract, place: str, sizes: tuple[str, str], strides: tuple[str, str]
) -> Matrix:
    """Read the strides; afterwards sizes and strides are in the order of the walk."""
    unit = []
    for size, stride in zip(sizes, strides, strict=True):
        single = writer.value(f"icmp sle i64 {size}, 1")
        unit.append(writer.value(f"or i1 {single}, {writer.value(f'icmp eq i64 {stride}, 1')}"))
    flipped = writer.value(f"and i1 {writer.value(f'xor i1 {unit[1]}, true')}, {unit[0]}")
    any_unit = writer.value(f"or i1 {unit[0]}, {unit[1]}")

    def ordered(pair: tuple[str, str]) -> tuple[str, str]:
        first = writer.value(f"select i1 {flipped}, i64 {pair[1]}, i64 {pair[0]}")
        return first, writer.value(f"select i1 {flipped}, i64 {pair[0]}, i64 {pair[1]}")

    sizes, strides = ordered(sizes), ordered(strides)
    least = larger(Term(writer, sizes[1]), 1).name
    single = writer.value(f"icmp sle i64 {sizes[0]}, 1")
    apart = writer.value(f"icmp sge i64 {strides[0]}, {least}")
    spaced = writer.value(f"or i1 {single}, {apart}")
    direct = (
        writer.value(f"and i1 {any_unit}, {spaced}") if kernel.dtype is kernel.compute else "false"
    )
    own = writer.value(f"select i1 {apart}, i64 {strides[0]}, i64 {least}")
    lead = writer.value(f"select i1 {direct}, i64 {own}, i64 {least}")
    return Matrix(kernel.dtype, place, sizes, strides, flipped, direct, lead)


class _Block:
    """A block of one product: its matrices, and gemm on them."""

    def __init__(
        self,
        writer: Writer,
        kernel: Contract,
        bases: Sequence[str],
        steps: Sequence[list[str]],
        corner: tuple[str, str],
        sizes: tuple[str, str, str],
        batch: tuple[str, str],
    ) -> None:
        self.writer, self.kernel = writer, kernel
        self.bases, self.steps, self.batch = bases, steps, batch
        self.top, self.left = corner
        self.height, self.width, self.depth = sizes

    def _matrix(self, number: int, row: str, column: str, sizes: tuple[str, str]) -> Matrix:
        step, where = self.steps[number], (*self.batch, row, column)
        place = corner(self.writer, self.kernel.dtype, self.bases[number], step, where)
        return _matrix(self.writer, self.kernel, place, sizes, (step[2], step[3]))

    @property
    def out(self) -> Matrix:
        return self._matrix(0, self.top, self.left, (self.height, self.width))

    def factors(self, at: str, depth: str) -> tuple[Matrix, Matrix]:
        """Of so much of the sum, from `at` on."""
        a = self._matrix(1, self.top, at, (self.height, depth))
        return a, self._matrix(2, at, self.left, (depth, self.width))

    def call_gemm(
        self,
        matrices: Sequence[Matrix],
        places: Sequence[str],
        depth: str,
        scales: tuple[str, str],
    ) -> None:
        """out = alpha a b + beta out, for matrices that lie densely at these places."""
        writer, (out, a, b) = self.writer, matrices
        order = writer.value(f"select i1 {out.flipped}, i32 {COLUMN_MAJOR}, i32 {ROW_MAJOR}")
        turns = []
        for matrix in (a, b):
            turned = writer.value(f"xor i1 {matrix.flipped}, {out.flipped}")
            turns.append(writer.value(f"select i1 {turned}, i32 {TRANSPOSED}, i32 {AS_IS}"))
        gemm = writer.value("load ptr, ptr @blas")
        operands = [
            f"i32 {order}",
            *(f"i32 {t}" for t in turns),
            *(f"i64 {s}" for s in (self.height, self.width, depth)),
            scales[0],
        ]
        operands += [f"ptr {places[1]}", f"i64 {a.lead}", f"ptr {places[2]}", f"i64 {b.lead}"]
        operands += [scales[1], f"ptr {places[0]}", f"i64 {out.lead}"]
        writer.line(f"call void {gemm}({', '.join(operands)})")


def _multiply(block: _Block, scales: tuple[str, str]) -> None:
    """Each matrix in place or in a dense copy."""
    writer, kernel = block.writer, block.kernel
    matrices = [block.out, *block.factors("0", block.depth)]
    buffers = [
        _buffer(writer, kernel, matrix, fill=i > 0 or kernel.scaled)
        for i, matrix in enumerate(matrices)
    ]
    block.call_gemm(matrices, buffers, block.depth, scales)
    free = writer.value("load ptr, ptr getelementptr (ptr, ptr @blas, i64 2)")
    for i, (matrix, buffer) in enumerate(zip(matrices, buffers, strict=True)):
        with writer.when(writer.value(f"xor i1 {matrix.direct}, true")):
            if i == 0:
                _copy(writer, matrix, buffer, "deliver")
            writer.line(f"call void {free}(ptr {buffer})")


def _multiply_copies(block: _Block, scales: tuple[str, str], slot: str) -> None:
    """Every matrix in a dense copy in the slot: Note [Copies of halves]."""
    writer, kernel, out = block.writer, block.kernel, block.out
    if kernel.scaled:
        _copy(writer, out, slot, "fetch")
    scalar, once = scales[1].split()
    left = _after(writer, kernel, slot, out)
    end = larger(Term(writer, block.depth), 1).name  # a sum of nothing is 0
    with writer.loop("0", end, str(DEPTH)) as at:
        depth = writer.smaller(str(DEPTH), writer.sub(block.depth, at))
        a, b = block.factors(at, depth)
        right = _after(writer, kernel, left, a)
        _copy(writer, a, left, "fetch")
        _copy(writer, b, right, "fetch")
        first = writer.value(f"icmp eq i64 {at}, 0")
        beta = writer.value(f"select i1 {first}, {scalar} {once}, {scalar} 1.0")
        block.call_gemm((out, a, b), (slot, left, right), depth, (scales[0], f"{scalar} {beta}"))
    _copy(writer, out, slot, "deliver")


def _after(writer: Writer, kernel: Contract, place: str, matrix: Matrix) -> str:
    """Where a dense copy ends, rounded up."""
    count = writer.mul(matrix.sizes[0], matrix.sizes[1])
    whole = writer.value(f"and i64 {writer.add(count, '15')}, -16")
    return pointer(writer, place, kernel.compute, whole)


def _buffer(writer: Writer, kernel: Contract, matrix: Matrix, *, fill: bool) -> str:
    """The address that gemm reads: the matrix, or its copy."""
    slot = writer.slot("ptr", matrix.place)
    with writer.when(writer.value(f"xor i1 {matrix.direct}, true")):
        dense = _allocated(writer, kernel, matrix)
        writer.set(slot, dense)
        if fill:
            _copy(writer, matrix, dense, "fetch")
    return writer.get(slot)


def _allocated(writer: Writer, kernel: Contract, matrix: Matrix) -> str:
    malloc = writer.value("load ptr, ptr getelementptr (ptr, ptr @blas, i64 1)")
    count = writer.mul(matrix.sizes[0], matrix.sizes[1])
    nbytes = writer.mul(writer.add(count, "1"), str(kernel.compute.itemsize))
    return writer.value(f"call ptr {malloc}(i64 {nbytes})")


def _copy(writer: Writer, matrix: Matrix, dense: str, name: str) -> None:
    sizes = ", ".join(f"i64 {n}" for n in (*matrix.sizes, *matrix.strides))
    writer.line(f"call void @{name}(ptr {matrix.place}, ptr {dense}, {sizes})")


COPY = (
    "define internal void @{name}(ptr %place, ptr %dense, i64 %rows, i64 %columns, i64 %row, i64 "
    "%column) noinline "
    '"prefer-vector-width"="512"'
)


def _copy_function(declared: set[str], kernel: Contract, *, inward: bool) -> str:
    """Copy a matrix to its dense copy (@fetch), or back (@deliver)."""
    writer = Writer(declared)
    unit = writer.value("icmp eq i64 %column, 1")
    ways = [(1, writer.value(f"xor i1 {unit}, true")), (WIDTH, unit)]
    if kernel.dtype is kernel.compute:  # gemm takes almost all with a unit stride in place
        ways = [(1, "true")]
    for width, chosen in ways:
        with writer.when(chosen), writer.loop("0", "%rows") as i:
            near = pointer(writer, "%dense", kernel.compute, writer.mul(i, "%columns"))
            far = pointer(writer, "%place", kernel.dtype, writer.mul(i, "%row"))
            with writer.loop("0", "%columns", str(width)) as j:
                mask = first_lanes(writer, writer.sub("%columns", j), width) if width > 1 else None
                here = pointer(writer, near, kernel.compute, j)
                there = pointer(writer, far, kernel.dtype, writer.mul(j, "%column"))
                _move(writer, kernel, here, there, (width, mask), inward=inward)
    return writer.function(COPY.format(name="fetch" if inward else "deliver"))


def _move(
    writer: Writer,
    kernel: Contract,
    dense: str,
    place: str,
    lanes: tuple[int, str | None],
    *,
    inward: bool,
) -> None:
    """`lanes` neighbours of the dense copy and of the matrix: how many, and which."""
    width, mask = lanes
    own = float32 if kernel.dtype.itemsize == 2 else kernel.dtype
    if inward:
        value = load(writer, place, kernel.dtype, "1", "1", width, mask)
        value = cast(writer, value, own, kernel.compute, width)
        store(writer, value, dense, kernel.compute, "1", "1", width, mask)
    else:
        value = load(writer, dense, kernel.compute, "1", "1", width, mask)
        value = cast(writer, value, kernel.compute, own, width)
        store(writer, value, place, kernel.dtype, "1", "1", width, mask)
