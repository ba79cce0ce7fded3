"""Contract as IR around a BLAS's gemm: layouts are passed through as they are where gemm can take them.

A task is one block of one product. Blocks are chosen by the sizes alone, so that the bits do not depend on the
number of threads; each is one call of gemm on one thread. A matrix with a unit stride either way goes to gemm in place
(transposed, if need be); any other, and halves, go through a dense copy in the compute type. Products with few columns or a
short sum go to `tiles` where the processor allows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType, float32
from rushlight.devices.cpu import tiles
from rushlight.emit.llvm import module
from rushlight.emit.llvm_body import cast, first_lanes, load, pointer, store
from rushlight.emit.llvm_text import COMPUTE, FUNCTION, Arguments, Writer
from rushlight.kernel.shapes import Contract

ROW_MAJOR, COLUMN_MAJOR = "101", "102"
AS_IS, TRANSPOSED = "111", "112"
SMALL, MEDIUM = 1 << 23, 1 << 27  # products of sizes below these are cut finer
WIDTH = 16


@dataclass
class Matrix:
    """A matrix in memory: (rows, columns), their strides, and how gemm is told of it."""

    dtype: DType
    place: str
    sizes: tuple[str, str]
    strides: tuple[str, str]
    flipped: str = ""  # i1: walked by columns
    direct: str = ""  # i1: gemm can use it where it is
    lead: str = ""  # gemm's leading dimension


def text(kernel: Contract) -> str:
    """The module's functions, for `stub`; see `emit.llvm` for what they are."""
    declared: set[str] = set()
    body, counts = Writer(declared), Writer(declared)
    _write_kernel(body, kernel)
    small = tiles.usable(kernel.dtype, kernel.compute)
    numbers = _write_counts(counts, small)
    texts = [body.function(FUNCTION.format(name="products" if small else "kernel"))]
    if small:
        texts += [*tiles.functions(declared), _choice(declared)]
    return "@blas = global [3 x ptr] zeroinitializer\n" + module(texts, counts, numbers)


def _choice(declared: set[str]) -> str:
    """The kernel: tiles in registers or the library, by sizes and strides."""
    writer = Writer(declared)
    chosen = _suited(writer)
    for name, condition in (("tiles", chosen), ("products", writer.value(f"xor i1 {chosen}, true"))):
        with writer.when(condition):
            writer.line(f"call void @{name}(ptr %args, i64 %begin, i64 %end)")
    return writer.function(FUNCTION.format(name="kernel"))


def _suited(writer: Writer) -> str:
    arguments = Arguments(writer)
    arguments.next = 3
    sizes = arguments.words(5)
    return tiles.suited(writer, sizes, [arguments.words(4) for _ in range(3)])


def _blocks(writer: Writer, sizes: list[str]) -> tuple[str, str, str, str]:
    """How many rows and columns a block has, and how many blocks there are along each."""
    _, _, m, n, k = sizes
    product = writer.mul(writer.mul(m, n), k)
    small = writer.value(f"icmp ult i64 {product}, {SMALL}")
    medium = writer.value(f"icmp ult i64 {product}, {MEDIUM}")
    result = []
    for size, finest, fine, coarse in ((m, 256, 256, 512), (n, 64, 128, 256)):
        most = writer.value(f"select i1 {medium}, i64 {fine}, i64 {coarse}")
        most = writer.value(f"select i1 {small}, i64 {finest}, i64 {most}")
        parts = writer.value(f"udiv i64 {writer.add(size, writer.sub(most, '1'))}, {most}")
        parts = writer.value(f"call i64 @llvm.umax.i64(i64 {parts}, i64 1)")
        even = writer.value(f"udiv i64 {writer.add(size, writer.sub(parts, '1'))}, {parts}")
        even = writer.value(f"and i64 {writer.add(even, '15')}, -16")
        even = writer.value(f"call i64 @llvm.umax.i64(i64 {even}, i64 16)")
        result += [even, writer.value(f"udiv i64 {writer.add(size, writer.sub(even, '1'))}, {even}")]
    writer.declared.add("declare i64 @llvm.umax.i64(i64, i64)")
    return result[0], result[2], result[1], result[3]


def _write_counts(writer: Writer, small: bool) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = 3
    sizes = arguments.words(5)
    x, y, m, n, k = sizes
    _, _, down, across = _blocks(writer, sizes)
    tasks = writer.mul(writer.mul(x, y), writer.mul(down, across))
    if small:
        tasks = writer.value(f"select i1 {_suited(writer)}, i64 {tiles.write_counts(writer, sizes)}, i64 {tasks}")
    products = writer.mul(writer.mul(writer.mul(x, y), m), writer.mul(n, k))
    return tasks, writer.value(f"lshr i64 {products}, 3")


def _write_kernel(writer: Writer, kernel: Contract) -> None:
    arguments = Arguments(writer)
    out, a, b = (arguments.address() for _ in range(3))
    sizes = arguments.words(5)
    steps = [arguments.words(4) for _ in range(3)]
    _, y, m, n, k = sizes
    rows, columns, down, across = _blocks(writer, sizes)
    with writer.loop("%begin", "%end") as task:
        rest, column = _divide(writer, task, across)
        batch, row = _divide(writer, rest, down)
        top, left = writer.mul(row, rows), writer.mul(column, columns)
        height = writer.smaller(rows, writer.sub(m, top))
        width = writer.smaller(columns, writer.sub(n, left))
        where = _divide(writer, batch, y)
        corners = ((out, steps[0], top, left), (a, steps[1], top, "0"), (b, steps[2], "0", left))
        places = [_corner(writer, kernel.dtype, base, s, where, r, c) for base, s, r, c in corners]
        shapes = ((height, width), (height, k), (k, width))
        matrices = [
            _matrix(writer, kernel, place, shape, (s[2], s[3]))
            for place, shape, s in zip(places, shapes, steps, strict=True)
        ]
        _multiply(writer, kernel, matrices, (height, width, k))


def _divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def _corner(
    writer: Writer, dtype: DType, base: str, steps: list[str], where: tuple[str, str], row: str, column: str
) -> str:
    positions = (*where, row, column)
    offset = "0"
    for position, step in zip(positions, steps, strict=True):
        offset = writer.add(offset, writer.mul(position, step))
    return pointer(writer, base, dtype, offset)


def _matrix(writer: Writer, kernel: Contract, place: str, sizes: tuple[str, str], strides: tuple[str, str]) -> Matrix:
    """Look at the strides; afterwards sizes and strides are in the order in which the matrix is walked."""
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
    least = writer.value(f"call i64 @llvm.umax.i64(i64 {sizes[1]}, i64 1)")
    single = writer.value(f"icmp sle i64 {sizes[0]}, 1")
    apart = writer.value(f"icmp sge i64 {strides[0]}, {least}")
    spaced = writer.value(f"or i1 {single}, {apart}")
    direct = writer.value(f"and i1 {any_unit}, {spaced}") if kernel.dtype is kernel.compute else "false"
    own = writer.value(f"select i1 {apart}, i64 {strides[0]}, i64 {least}")
    lead = writer.value(f"select i1 {direct}, i64 {own}, i64 {least}")
    return Matrix(kernel.dtype, place, sizes, strides, flipped, direct, lead)


def _multiply(writer: Writer, kernel: Contract, matrices: list[Matrix], sizes: tuple[str, str, str]) -> None:
    """out = a b, the three being where they are or in dense copies."""
    buffers = [_buffer(writer, kernel, matrix, fill=i > 0) for i, matrix in enumerate(matrices)]
    out, a, b = matrices
    scalar = COMPUTE[kernel.compute]
    order = writer.value(f"select i1 {out.flipped}, i32 {COLUMN_MAJOR}, i32 {ROW_MAJOR}")
    turns = []
    for matrix in (a, b):
        turned = writer.value(f"xor i1 {matrix.flipped}, {out.flipped}")
        turns.append(writer.value(f"select i1 {turned}, i32 {TRANSPOSED}, i32 {AS_IS}"))
    gemm = writer.value("load ptr, ptr @blas")
    operands = [f"i32 {order}", *(f"i32 {t}" for t in turns), *(f"i64 {s}" for s in sizes), f"{scalar} 1.0"]
    operands += [f"ptr {buffers[1]}", f"i64 {a.lead}", f"ptr {buffers[2]}", f"i64 {b.lead}"]
    operands += [f"{scalar} 0.0", f"ptr {buffers[0]}", f"i64 {out.lead}"]
    writer.line(f"call void {gemm}({', '.join(operands)})")
    free = writer.value("load ptr, ptr getelementptr (ptr, ptr @blas, i64 2)")
    for i, (matrix, buffer) in enumerate(zip(matrices, buffers, strict=True)):
        with writer.when(writer.value(f"xor i1 {matrix.direct}, true")):
            if i == 0:
                _copy(writer, kernel, matrix, buffer, inward=False)
            writer.line(f"call void {free}(ptr {buffer})")


def _buffer(writer: Writer, kernel: Contract, matrix: Matrix, *, fill: bool) -> str:
    """Where gemm finds the matrix."""
    slot = writer.slot("ptr", matrix.place)
    with writer.when(writer.value(f"xor i1 {matrix.direct}, true")):
        malloc = writer.value("load ptr, ptr getelementptr (ptr, ptr @blas, i64 1)")
        count = writer.mul(matrix.sizes[0], matrix.sizes[1])
        nbytes = writer.mul(writer.add(count, "1"), str(kernel.compute.itemsize))
        dense = writer.value(f"call ptr {malloc}(i64 {nbytes})")
        writer.set(slot, dense)
        if fill:
            _copy(writer, kernel, matrix, dense, inward=True)
    return writer.get(slot)


def _copy(writer: Writer, kernel: Contract, matrix: Matrix, dense: str, *, inward: bool) -> None:
    """Between the matrix and its dense copy; a unit stride is walked by vectors."""
    unit = writer.value(f"icmp eq i64 {matrix.strides[1]}, 1")
    for step, chosen in (("1", unit), ("n", writer.value(f"xor i1 {unit}, true"))):
        with writer.when(chosen), writer.loop("0", matrix.sizes[0]) as i:
            near = pointer(writer, dense, kernel.compute, writer.mul(i, matrix.sizes[1]))
            far = pointer(writer, matrix.place, matrix.dtype, writer.mul(i, matrix.strides[0]))
            with writer.loop("0", matrix.sizes[1], str(WIDTH)) as j:
                mask = first_lanes(writer, writer.sub(matrix.sizes[1], j), WIDTH)
                here = pointer(writer, near, kernel.compute, j)
                there = pointer(writer, far, matrix.dtype, writer.mul(j, matrix.strides[1]))
                _move(writer, kernel, matrix, here, there, step, mask, inward=inward)


def _move(
    writer: Writer, kernel: Contract, matrix: Matrix, dense: str, place: str, step: str, mask: str, *, inward: bool
) -> None:
    own = float32 if matrix.dtype.itemsize == 2 else matrix.dtype
    stride = matrix.strides[1]
    if inward:
        value = load(writer, place, matrix.dtype, step, stride, WIDTH, mask)
        value = cast(writer, value, own, kernel.compute, WIDTH)
        store(writer, value, dense, kernel.compute, "1", "1", WIDTH, mask)
    else:
        value = load(writer, dense, kernel.compute, "1", "1", WIDTH, mask)
        value = cast(writer, value, kernel.compute, own, WIDTH)
        store(writer, value, place, matrix.dtype, step, stride, WIDTH, mask)
