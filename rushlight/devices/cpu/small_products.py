"""Matrix products that are too small for a BLAS to pack: the choice of a way, and its modules.

# Note [Ways of a product]
1. `@plan`, a function of `gemm`'s module, chooses the fastest way by sizes and layouts; the numbers
   in it are measured. A task is one block of one product. Blocks follow from the sizes, never from
   the number of threads.
2. BLOCKS: OpenBLAS has kernels that do not pack, for calls of up to LARGEST products, and up to
   FEW_RESULTS results where both operands are dense along the sum. It is given blocks of that size.
3. DOTS: both operands are dense along the sum, as in x @ w.T and in a matrix times a vector
   (`dots`). The columns, or rows if they are more, are read once.
4. TILES: the rest, as long as rows of the result are dense (`tiles`).
5. LIBRARY: large products, which pay for packing, and all other layouts. OpenBLAS knows processors
   by name. Where it does not know that its registers have 512 bits (`openblas.is_wide`), it runs at
   half of the speed of tiles: those take all products that they can.
6. The code of DOTS and TILES is built when the first product needs it: `counts`, which runs under
   the GIL, finds no address in the table and calls the Python function beside it. Where that
   raises, there are -1 tasks, and the launch raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rushlight.core.dtypes import DType, float32, float64
from rushlight.devices.cpu import dots, tiles
from rushlight.devices.cpu.native import Source, load
from rushlight.devices.cpu.stub import symbol_address
from rushlight.emit.llvm.body import pointer
from rushlight.emit.llvm.terms import Term, ceil_div, larger, smaller, terms, where
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer

LIBRARY, BLOCKS, TILES, DOTS = range(4)
LARGEST, FEW_RESULTS = 1_000_000, 1200
ROWS, COLUMNS, NARROW, LONG = 64, 64, 32, 256  # of a block for the library
# Rows or columns of a product whose blocks have that few results.
FEW = FEW_RESULTS // COLUMNS
SMALL = 1 << 23  # products of sizes below which tiles are no faster than such blocks
PLAN = "define internal i64 @plan(ptr readonly %args, ptr %numbers) noinline"


def usable(dtype: DType, compute: DType) -> bool:
    return dtype is compute and dtype in (float32, float64) and tiles.available()


@cache
def pointers(dtype: DType) -> tuple[int, ...]:
    """The tables of rule 6, never freed.

    They hold the addresses of code, the functions that fill them in, and two functions of CPython.
    """
    table = (ctypes.c_void_p * 4)()

    def filling(way: int) -> Callable[[], None]:
        def fill() -> None:
            source = Source(f"product {way} {dtype.name}", lambda: text(dtype, way))
            (table[way],) = load(source, "kernel")

        return fill

    objects: ctypes.Array[Any] = (ctypes.py_object * 4)()
    for way in range(4):
        objects[way] = filling(way)
    _KEPT.extend((table, objects))
    places = ctypes.addressof(table), ctypes.addressof(objects)
    return (*places, *(symbol_address(name) for name in ("PyObject_CallNoArgs", "Py_DecRef")))


_KEPT: list[object] = []


def text(dtype: DType, way: int) -> str:
    """The module of a way: kernel(args, begin, end)."""
    declared: set[str] = set()
    made = dots.functions(declared, dtype) if way == DOTS else tiles.functions(declared)
    made.append(_kernel(declared, dtype, way))
    return "\n".join([*made, *sorted(declared), ""])


def plan(declared: set[str], dtype: DType, wide: bool) -> str:
    """@plan: the way, the rows and columns of a block, and the number of blocks down and across.

    It does not compute the blocks of LIBRARY. `wide`: the library's registers have 512 bits.
    """
    writer = Writer(declared)
    arguments = Arguments(writer)
    arguments.next = 3
    sizes = terms(writer, arguments.words(5))
    steps = [terms(writer, arguments.words(4)) for _ in range(3)]
    _, _, m, n, _ = sizes
    along = steps[1][3].equals(1) & steps[2][2].equals(1)
    fewer = smaller(m, n)
    tiled = tiles.suited(sizes, steps, wide) if dtype is float32 else Term(writer, "false", "i1")
    limit = SMALL if dtype is float32 else tiles.LARGE
    chosen, rows, columns = _library_blocks(sizes, steps, along, fewer, tiled, limit)
    filled = tiled
    if not wide:
        chosen, filled = chosen & ~tiled, tiled & tiles.suited(sizes, steps, True)
    lined = dots.lined(sizes, along, fewer)
    dotted = lined | dots.suited(sizes, along, fewer, filled)
    way = where(chosen & ~lined, BLOCKS, where(dotted, DOTS, where(tiled, TILES, LIBRARY)))
    ways: list[tuple[int, Callable[[], Sequence[Term]]]] = [
        (BLOCKS, lambda: even_blocks(m, n, rows, columns)),
        (DOTS, lambda: dots.blocks(sizes)),
        (TILES, lambda: tiles.blocks(sizes)),
    ]
    for number, blocks in ways:
        with writer.when(way.equals(number).name):
            store_numbers(writer, blocks())
    return writer.function(PLAN, f"i64 {way.name}")


def store_numbers(writer: Writer, numbers: Sequence[Term]) -> None:
    for i, number in enumerate(numbers):
        place = writer.value(f"getelementptr i64, ptr %numbers, i64 {i}")
        writer.line(f"store i64 {number.name}, ptr {place}")


def even_blocks(m: Term, n: Term, rows: Term, columns: Term) -> list[Term]:
    """Blocks of about equal size, at most `rows` by `columns`: size and count.

    A block has at least sixteen lines.
    """
    height, width = (
        larger(ceil_div(ceil_div(size, larger(ceil_div(size, most), 1)), 16) * 16, 16)
        for size, most in ((m, rows), (n, columns))
    )
    return [height, width, ceil_div(m, height), ceil_div(n, width)]


def _library_blocks(
    sizes: list[Term], steps: list[list[Term]], along: Term, fewer: Term, tiled: Term, limit: int
) -> tuple[Term, Term, Term]:
    """Whether the library is fast with blocks that it need not pack; their rows and columns.

    `along`, `fewer` and `tiled` as for `dots.suited`; from `limit` products on another way is
    faster.
    """
    _, _, m, n, k = sizes
    # Where both are dense along the sum, blocks have few rows or few columns, or are small squares.
    square = along & (fewer > FEW) & (m * n > FEW_RESULTS)
    thin, flat, deep = (
        n <= where(along, FEW_RESULTS // LONG, NARROW),
        m < tiles.TALL,
        k >= tiles.DEPTH,
    )
    rows = where(square, NARROW, where(thin, LONG, ROWS))
    depth = smaller(m, rows) * k
    small, wide = m * n * k < limit, (depth * smaller(n, COLUMNS) <= LARGEST) & ~square
    columns = where(wide, COLUMNS, NARROW)
    # Narrow blocks read b in pieces of cache lines; the more lines share a cache set, the slower.
    apart = ~(tiled & (steps[2][2] & 1023).equals(0))
    narrow = (depth * smaller(n, NARROW) <= LARGEST) & small & apart
    between = (
        (k >= dots.SHORTEST)
        & (k <= 2 * tiles.DEPTH)
        & ((flat & deep) | (~tiled & (deep | (m <= LONG))))
    )
    fits = (wide & flat & (m >= tiles.SHORT)) | ((wide | narrow) & small)
    enough = (k >= where(along, COLUMNS, NARROW)) | (flat & ~(along & tiled & (k < NARROW)))
    chosen = fits & enough & (between | ~square)
    for step in steps:  # others are copied, more often with smaller blocks
        chosen = chosen & (step[2].equals(1) | step[3].equals(1))
    return chosen, rows, columns


def _kernel(declared: set[str], dtype: DType, way: int) -> str:
    writer = Writer(declared)
    arguments = Arguments(writer)
    bases = [arguments.address() for _ in range(3)]
    sizes = terms(writer, arguments.words(5))
    _, y, m, n, k = (size.name for size in sizes)
    steps = [arguments.words(4) for _ in range(3)]
    rows, columns, down, across = (
        each.name for each in (dots if way == DOTS else tiles).blocks(sizes)
    )
    turned = dots.turned(sizes).name
    panel = writer.array("float", tiles.DEPTH * tiles.COLUMNS) if way == TILES else ""
    with writer.loop("%begin", "%end") as task:
        rest, column = divide(writer, task, across)
        batch, row = divide(writer, rest, down)
        top, left = writer.mul(row, rows), writer.mul(column, columns)
        size = (
            writer.smaller(rows, writer.sub(m, top)),
            writer.smaller(columns, writer.sub(n, left)),
            k,
        )
        where = divide(writer, batch, y)
        corners = [
            corner(writer, dtype, base, step, (*where, r, c))
            for base, step, (r, c) in zip(
                bases, steps, ((top, left), (top, "0"), ("0", left)), strict=True
            )
        ]
        inner = [step[2:] for step in steps]
        if way == DOTS:
            dots.write_task(writer, dtype, corners, inner, size, turned)
        else:
            tiles.write_task(writer, corners, inner, size, panel)
    return writer.function(FUNCTION.format(name="kernel").replace("internal ", ""))


def divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def corner(
    writer: Writer, dtype: DType, base: str, steps: list[str], positions: tuple[str, ...]
) -> str:
    """Where a block begins."""
    offset = "0"
    for position, step in zip(positions, steps, strict=True):
        offset = writer.add(offset, writer.mul(position, step))
    return pointer(writer, base, dtype, offset)
