"""Products that are too small for a BLAS to pack: which way they go, and the modules of the ways that are ours.

# Note [Ways of a product]
1. `@plan`, a function of `gemm`'s module, looks at sizes and layouts and says which way is the fastest; the numbers in it are
   measured. A task is one block of one product. Blocks follow from the sizes, never from the number of threads.
2. BLOCKS: OpenBLAS has kernels that do not pack, for calls of up to LARGEST products, and up to FEW_RESULTS results where both
   operands are dense along the sum. It is given blocks of that size.
3. DOTS: both operands are dense along the sum, as in x @ w.T (`dots`). The columns, or rows if they are more, are read once.
4. TILES: the rest, as long as rows of the result are dense (`tiles`).
5. LIBRARY: large products, which pay for packing, and everything odd.
6. The code of DOTS and TILES is built when the first product needs it: `counts`, which runs under the GIL, finds no address in the
   table and calls the Python function beside it. Where that raises, there are -1 tasks, and the launch raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight.core.dtypes import DType, float32, float64
from rushlight.devices.cpu import dots, tiles
from rushlight.devices.cpu.native import Source, load
from rushlight.devices.cpu.stub import symbol_address
from rushlight.emit.llvm_body import pointer
from rushlight.emit.llvm_text import FUNCTION, Arguments, Writer, all_of

LIBRARY, BLOCKS, TILES, DOTS = range(4)
LARGEST, FEW_RESULTS = 1_000_000, 1200
ROWS, COLUMNS, NARROW, LONG = 64, 64, 32, 256  # of a block for the library
FEW = FEW_RESULTS // COLUMNS  # rows or columns of a product with which its blocks have that few results
SMALL = 1 << 23  # products of sizes below which tiles are no better than such blocks
PLAN = "define internal i64 @plan(ptr readonly %args, ptr %numbers) noinline"


def usable(dtype: DType, compute: DType) -> bool:
    return dtype is compute and dtype in (float32, float64) and tiles.available()


@cache
def pointers(dtype: DType) -> tuple[int, ...]:
    """What `gemm` needs for rule 6, kept for good: the table of addresses, that of functions that fill it, and two of CPython's."""
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
    made = [dots.write_dots(declared, dtype)] if way == DOTS else tiles.functions(declared)
    made.append(_kernel(declared, dtype, way))
    return "\n".join([*made, *sorted(declared), ""])


def plan(declared: set[str], dtype: DType) -> str:
    """@plan gives the way, the rows and columns of a block, and how many blocks there are down and across a product.

    It does not know the blocks of LIBRARY.
    """
    writer = Writer(declared)
    arguments = Arguments(writer)
    arguments.next = 3
    sizes = arguments.words(5)
    steps = [arguments.words(4) for _ in range(3)]
    fewer = writer.smaller(sizes[2], sizes[3])
    along = all_of(writer, f"icmp eq i64 {steps[1][3]}, 1", f"icmp eq i64 {steps[2][2]}, 1")
    tiled = tiles.suited(writer, sizes, steps) if dtype is float32 else "false"
    known = along, fewer, tiled
    chosen, numbers = _library_blocks(writer, sizes, steps, known, SMALL if dtype is float32 else tiles.LARGE)
    way = writer.value(f"select i1 {chosen}, i64 {BLOCKS}, i64 {LIBRARY}")
    others = [(DOTS, dots.suited(writer, sizes, known), dots.blocks(writer, sizes))]
    if dtype is float32:
        others.insert(0, (TILES, tiled, tiles.blocks(writer, sizes)))
    for number, suited, blocks in others:
        taken = writer.value(f"select i1 {chosen}, i1 false, i1 {suited}")
        way = writer.value(f"select i1 {taken}, i64 {number}, i64 {way}")
        numbers = [writer.value(f"select i1 {taken}, i64 {a}, i64 {b}") for a, b in zip(blocks, numbers, strict=True)]
    for i, value in enumerate(numbers):
        place = writer.value(f"getelementptr i64, ptr %numbers, i64 {i}")
        writer.line(f"store i64 {value}, ptr {place}")
    return writer.function(PLAN, f"i64 {way}")


def even_blocks(writer: Writer, size: str, most: str) -> tuple[str, str]:
    """How large blocks of about the same size are, `most` at most, and how many; sixteen lines and more."""
    parts = writer.value(f"udiv i64 {writer.add(size, writer.sub(most, '1'))}, {most}")
    parts = writer.value(f"call i64 @llvm.umax.i64(i64 {parts}, i64 1)")
    even = writer.value(f"udiv i64 {writer.add(size, writer.sub(parts, '1'))}, {parts}")
    even = writer.value(f"and i64 {writer.add(even, '15')}, -16")
    even = writer.value(f"call i64 @llvm.umax.i64(i64 {even}, i64 16)")
    writer.declared.add("declare i64 @llvm.umax.i64(i64, i64)")
    return even, writer.value(f"udiv i64 {writer.add(size, writer.sub(even, '1'))}, {even}")


def _library_blocks(
    writer: Writer, sizes: list[str], steps: list[list[str]], known: tuple[str, str, str], limit: int
) -> tuple[str, list[str]]:
    """Whether the library is quick with blocks that it need not pack: i1; the blocks, as `tiles.blocks` has them.

    Known: whether both operands are dense along the sum, the fewer of rows and columns, whether tiles would do. From `limit`
    products on there is something better.
    """
    _, _, m, n, k = sizes
    along, fewer, tiled = known
    # Where both are dense along the sum, blocks have few rows or few columns, or are small squares.
    square = all_of(writer, f"and i1 {along}, true", f"icmp ugt i64 {fewer}, {FEW}")
    thinnest = writer.value(f"select i1 {along}, i64 {FEW_RESULTS // LONG}, i64 {NARROW}")
    bounds = [f"icmp ule i64 {n}, {thinnest}", f"icmp ult i64 {m}, {tiles.TALL}", f"icmp uge i64 {k}, {NARROW}"]
    thin, flat, some = (writer.value(bound) for bound in bounds)
    rows = writer.value(f"select i1 {thin}, i64 {LONG}, i64 {ROWS}")
    rows = writer.value(f"select i1 {square}, i64 {NARROW}, i64 {rows}")
    depth = writer.mul(writer.smaller(m, rows), k)
    wide, fits = (
        writer.value(f"icmp ule i64 {writer.mul(depth, writer.smaller(n, str(most)))}, {LARGEST}")
        for most in (COLUMNS, NARROW)
    )
    small = writer.value(f"icmp ult i64 {writer.mul(writer.mul(m, n), k)}, {limit}")
    deep, low = writer.value(f"icmp uge i64 {k}, {tiles.DEPTH}"), writer.value(f"icmp ule i64 {m}, {LONG}")
    alone = writer.value(f"select i1 {tiled}, i1 false, i1 {writer.value(f'or i1 {deep}, {low}')}")
    wanted = writer.value(f"or i1 {alone}, {writer.value(f'and i1 {flat}, {deep}')}")
    bounds = [f"icmp ugt i64 {k}, {COLUMNS}", f"icmp ule i64 {k}, {2 * tiles.DEPTH}"]
    between = all_of(writer, *bounds, f"and i1 {wanted}, true")
    conditions = [
        f"and i1 {fits}, {writer.value(f'or i1 {small}, {flat}')}",
        f"or i1 {some}, {flat}",
        f"or i1 {between}, {_not(writer, square)}",
    ]
    for step in steps:
        dense = [writer.value(f"icmp eq i64 {each}, 1") for each in step[2:]]
        conditions.append(f"or i1 {dense[0]}, {dense[1]}")  # others are copied, and with smaller blocks more often
    wide = writer.value(f"select i1 {square}, i1 false, i1 {wide}")
    columns = writer.value(f"select i1 {wide}, i64 {COLUMNS}, i64 {NARROW}")
    height, down = even_blocks(writer, m, rows)
    width, across = even_blocks(writer, n, columns)
    return all_of(writer, *conditions), [height, width, down, across]


def _not(writer: Writer, condition: str) -> str:
    return writer.value(f"xor i1 {condition}, true")


def _kernel(declared: set[str], dtype: DType, way: int) -> str:
    writer = Writer(declared)
    arguments = Arguments(writer)
    bases = [arguments.address() for _ in range(3)]
    sizes = arguments.words(5)
    _, y, m, n, k = sizes
    steps = [arguments.words(4) for _ in range(3)]
    rows, columns, down, across = (dots if way == DOTS else tiles).blocks(writer, sizes)
    turned = dots.turned(writer, m, n) if way == DOTS else ""
    panel = writer.array("float", tiles.DEPTH * tiles.COLUMNS) if way == TILES else ""
    with writer.loop("%begin", "%end") as task:
        rest, column = divide(writer, task, across)
        batch, row = divide(writer, rest, down)
        top, left = writer.mul(row, rows), writer.mul(column, columns)
        size = (writer.smaller(rows, writer.sub(m, top)), writer.smaller(columns, writer.sub(n, left)), k)
        where = divide(writer, batch, y)
        corners = [
            corner(writer, dtype, base, step, (*where, r, c))
            for base, step, (r, c) in zip(bases, steps, ((top, left), (top, "0"), ("0", left)), strict=True)
        ]
        inner = [step[2:] for step in steps]
        if way == DOTS:
            dots.write_task(writer, dtype, corners, inner, size, turned)
        else:
            tiles.write_task(writer, corners, inner, size, panel)
    return writer.function(FUNCTION.format(name="kernel").replace("internal ", ""))


def divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def corner(writer: Writer, dtype: DType, base: str, steps: list[str], positions: tuple[str, ...]) -> str:
    """Where a block begins."""
    offset = "0"
    for position, step in zip(positions, steps, strict=True):
        offset = writer.add(offset, writer.mul(position, step))
    return pointer(writer, base, dtype, offset)
