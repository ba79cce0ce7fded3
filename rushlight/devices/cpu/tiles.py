"""A matrix product in registers, for sizes at which packing both operands costs too much.

A task is a panel of COLUMNS columns and some rows of one product. The panel of b is copied in
pieces of DEPTH rows, transposed if necessary, into the first-level cache. Then tiles of HEIGHT rows
go over it, and at the end one or two of SHORT rows, so that few registers are idle: a tile's part
of the result stays in registers while k runs, elements of a are read one by one, whatever their
strides. Each element of the result is one chain of fused multiply-adds, k ascending, so its bits
depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm

from rushlight.core.dtypes import float32
from rushlight.emit.llvm.body import load, pointer, splat, store
from rushlight.emit.llvm.terms import Term, ceil_div, smaller, where
from rushlight.emit.llvm.text import Writer, vector

LANES, VECTORS, HEIGHT = 16, 4, 6  # 24 registers of results, 4 of b, 1 of a
SHORT = 4  # the height of the last tiles
COLUMNS = LANES * VECTORS
# Rows of a task; many where a product has columns enough for other threads.
FEW_ROWS, MANY_ROWS, WIDE = (
    132,
    264,
    256,
)
DEPTH = 128
TALL = 48  # rows above which tiles run at full speed
LARGE = 1 << 28  # products of sizes above which packing pays
TYPE = vector("float", LANES)

TILE = (
    "define internal void @tile{height}(ptr %a, {a_kind} %a_row, {a_kind} %a_step, ptr readonly "
    "%b, ptr %c, i64 %c_row, "
    'i64 %height, i64 %width, i64 %k, i1 %more) noinline "prefer-vector-width"="512"'
)


def first_lanes(writer: Writer, count: str) -> str:
    """A mask of the first `count` lanes; |count| is below 2^31."""
    words = vector("i32", LANES)
    short = writer.value(f"trunc i64 {count} to i32")
    one = writer.value(f"insertelement {words} poison, i32 {short}, i64 0")
    spread = writer.value(
        f"shufflevector {words} {one}, {words} poison, <{LANES} x i32> zeroinitializer"
    )
    numbers = ", ".join(f"i32 {i}" for i in range(LANES))
    return writer.value(f"icmp sgt {words} {spread}, <{numbers}>")


@cache
def available() -> bool:
    """Whether the processor has 32 registers of 512 bits."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def write_tile(declared: set[str], *, tables: bool = False, height: int = HEIGHT) -> str:
    """@tile6: c = a b, or c + a b with %more, for up to six rows (`height`) and %width columns.

    b is a panel of COLUMNS. With `tables`, %a_row and %a_step are tables of the offsets of a's rows
    and columns.
    """
    writer = Writer(declared)

    def step(name: str, number: str) -> str:
        if not tables:
            return writer.mul(number, name)
        return writer.value(
            f"load i64, ptr {writer.value(f'getelementptr i64, ptr {name}, i64 {number}')}"
        )

    last = writer.sub("%height", "1")
    # Rows past the end repeat the last one.
    rows = [writer.smaller(str(i), last) for i in range(height)]
    a = [pointer(writer, "%a", float32, step("%a_row", r)) for r in rows]
    c = [pointer(writer, "%c", float32, writer.mul(r, "%c_row")) for r in rows]
    masks = [first_lanes(writer, writer.sub("%width", str(j * LANES))) for j in range(VECTORS)]
    zero = "zeroinitializer"
    sums = [[writer.slot(TYPE, zero) for _ in range(VECTORS)] for _ in range(height)]
    with writer.when("%more"):
        for i in range(height):
            for j in range(VECTORS):
                place = pointer(writer, c[i], float32, str(j * LANES))
                writer.set(sums[i][j], load(writer, place, float32, "1", "1", LANES, masks[j]))
    with writer.loop("0", "%k") as p:
        start = writer.mul(p, str(COLUMNS))
        columns = []
        for j in range(VECTORS):
            place = pointer(writer, "%b", float32, writer.add(start, str(j * LANES)))
            columns.append(writer.value(f"load {TYPE}, ptr {place}, align 64"))
        along = step("%a_step", p)
        for i in range(height):
            element = writer.value(
                f"load float, ptr {pointer(writer, a[i], float32, along)}, align 4"
            )
            spread = splat(writer, element, float32, LANES)
            for j in range(VECTORS):
                operands = [(TYPE, spread), (TYPE, columns[j]), (TYPE, writer.get(sums[i][j]))]
                writer.set(sums[i][j], writer.call(TYPE, "llvm.fma.v16f32", operands))
    # Masked stores are slow: whole panels do without.
    whole = writer.value(f"icmp eq i64 %width, {COLUMNS}")
    for chosen, masked in ((whole, False), (writer.value(f"xor i1 {whole}, true"), True)):
        with writer.when(chosen):
            for i in range(height):
                for j in range(VECTORS):
                    place = pointer(writer, c[i], float32, str(j * LANES))
                    mask = masks[j] if masked else None
                    store(writer, writer.get(sums[i][j]), place, float32, "1", "1", LANES, mask)
    return writer.function(TILE.format(height=height, a_kind="ptr" if tables else "i64"))


@contextmanager
def rows(writer: Writer, first: str, last: str, height: int = HEIGHT) -> Iterator[tuple[str, str]]:
    """A tile's first row and its height, tile by tile."""
    with writer.loop(first, last, str(height)) as row:
        yield row, writer.smaller(writer.sub(last, row), str(height))


def call_tile(
    writer: Writer,
    a: tuple[str, str, str],
    panel: str,
    c: tuple[str, str],
    sizes: tuple[str, str, str],
    more: str,
    height: int = HEIGHT,
) -> None:
    """c = a b, or c + a b: a is (address, rows, columns), c is (address, row stride).

    The rows and columns of a are typed; sizes are (rows, columns, k).
    """
    operands = f"ptr {a[0]}, {a[1]}, {a[2]}, ptr {panel}, ptr {c[0]}, i64 {c[1]}"
    writer.line(
        f"call void @tile{height}({operands}, {', '.join(f'i64 {size}' for size in sizes)}, i1 "
        f"{more})"
    )


PACK = (
    "define internal void @pack(ptr %b, i64 %b_row, i64 %b_column, i64 %depth, i64 %width, ptr "
    "%panel) noinline "
    '"prefer-vector-width"="512"'
)


def write_pack(declared: set[str], *, rows: bool) -> str:
    """Copy %depth rows and %width columns of b into a panel.

    b's columns are dense, or with `rows` its rows. Columns past the last are unspecified.
    """
    writer = Writer(declared)
    if not rows:
        _pack_columns(writer)
        return writer.function(PACK)
    unit = writer.value("icmp eq i64 %b_column, 1")
    with writer.when(unit):
        masks = [first_lanes(writer, writer.sub("%width", str(j * LANES))) for j in range(VECTORS)]
        with writer.loop("0", "%depth") as p:
            far = pointer(writer, "%b", float32, writer.mul(p, "%b_row"))
            near = pointer(writer, "%panel", float32, writer.mul(p, str(COLUMNS)))
            for j in range(VECTORS):
                place = pointer(writer, far, float32, str(j * LANES))
                value = load(writer, place, float32, "1", "1", LANES, masks[j])
                store(
                    writer,
                    value,
                    pointer(writer, near, float32, str(j * LANES)),
                    float32,
                    "1",
                    "1",
                    LANES,
                    None,
                )
    with writer.when(writer.value(f"xor i1 {unit}, true")):
        _pack_columns(writer)
    return writer.function(PACK)


def _pack_columns(writer: Writer) -> None:
    """Dense columns of b: LANES elements of four of them become fours of LANES rows."""
    last = writer.sub("%width", "1")
    quads = range(0, LANES, 4)
    pairs = [[q + i + s for q in quads for i in (at, at + 1) for s in (0, LANES)] for at in (0, 2)]
    halves = [[q + at + i + s for q in quads for s in (0, LANES) for i in (0, 1)] for at in (0, 2)]
    with writer.loop("0", str(COLUMNS), "4") as left, writer.loop("0", "%depth", str(LANES)) as top:
        rest = first_lanes(writer, writer.sub("%depth", top))
        lines = []
        for i in range(4):
            # Columns past the end are never stored.
            column = writer.smaller(writer.add(left, str(i)), last)
            place = pointer(writer, "%b", float32, writer.add(writer.mul(column, "%b_column"), top))
            lines.append(load(writer, place, float32, "1", "1", LANES, rest))
        made = []
        for way in pairs:
            one, two = (_shuffle(writer, TYPE, lines[i], lines[i + 1], way) for i in (0, 2))
            made += [_shuffle(writer, TYPE, one, two, half) for half in halves]
        for q in quads:
            for i in range(4):
                four = _shuffle(writer, TYPE, made[i], "poison", [q + j for j in range(4)])
                row = writer.mul(writer.add(top, str(q + i)), str(COLUMNS))
                place = pointer(writer, "%panel", float32, writer.add(row, left))
                writer.line(f"store <4 x float> {four}, ptr {place}, align 16")


def _shuffle(writer: Writer, kind: str, a: str, b: str, chosen: list[int]) -> str:
    order = ", ".join(f"i32 {i}" for i in chosen)
    return writer.value(f"shufflevector {kind} {a}, {kind} {b}, <{len(chosen)} x i32> <{order}>")


def blocks(sizes: list[Term]) -> list[Term]:
    """The rows and columns of a task, and the number of tasks down and across the product."""
    _, _, m, n, _ = sizes
    rows = where(n >= WIDE, MANY_ROWS, FEW_ROWS)
    return [rows, Term(n.writer, str(COLUMNS)), ceil_div(m, rows), ceil_div(n, COLUMNS)]


def suited(sizes: list[Term], steps: list[list[Term]], wide: bool) -> Term:
    """Whether tiles are faster than packing; `wide` as for `small_products.plan`."""
    _, _, m, n, k = sizes
    idle = ceil_div(n, COLUMNS) * COLUMNS - n
    fits = (m >= SHORT) & (k >= 1)
    dense = (steps[2][2].equals(1) | steps[2][3].equals(1)) & steps[0][3].equals(1)
    if not wide:
        return fits & (idle <= n) & dense
    short = k <= DEPTH
    fits = fits & (idle * 8 <= n) & (short | (n <= 2 * COLUMNS) | (m * n * k < LARGE))
    # Columns of a that share a cache line are harmless where there are few.
    apart = ~(steps[1][3] & 1023).equals(0) | (short & (k >= LANES))
    return fits & apart & dense


def write_task(
    writer: Writer,
    places: list[str],
    steps: list[list[str]],
    sizes: tuple[str, str, str],
    panel: str,
) -> None:
    """out = a b for one task.

    Given are the addresses of out, a and b, their row and column strides, and (rows, columns, k).
    """
    out, a, b = places
    height, width, k = sizes
    tall = tall_rows(Term(writer, height)).name
    with writer.loop("0", k, str(DEPTH)) as first:
        depth = writer.smaller(writer.sub(k, first), str(DEPTH))
        source = pointer(writer, b, float32, writer.mul(first, steps[2][0]))
        operands = (
            f"ptr {source}, i64 {steps[2][0]}, i64 {steps[2][1]}, i64 {depth}, i64 {width}, ptr "
            f"{panel}"
        )
        writer.line(f"call void @pack({operands})")
        more = writer.value(f"icmp ne i64 {first}, 0")
        for begin, end, most in (("0", tall, HEIGHT), (tall, height, SHORT)):
            with rows(writer, begin, end, most) as (r, count):
                offset = writer.add(writer.mul(r, steps[1][0]), writer.mul(first, steps[1][1]))
                given = (
                    pointer(writer, a, float32, offset),
                    f"i64 {steps[1][0]}",
                    f"i64 {steps[1][1]}",
                )
                target = pointer(writer, out, float32, writer.mul(r, steps[0][0]))
                call_tile(
                    writer, given, panel, (target, steps[0][0]), (count, width, depth), more, most
                )


def tall_rows(m: Term) -> Term:
    """The rows that tiles of six take; tiles of four take a remainder of 1, 2, 3 or 4 rows."""
    over = m % HEIGHT
    most = where(over < 3, over + where(over.equals(0), 0, HEIGHT), where(over < 5, over, 0))
    return m - smaller(most, m)


def functions(declared: set[str]) -> list[str]:
    return [
        *(write_tile(declared, height=height) for height in (HEIGHT, SHORT)),
        write_pack(declared, rows=True),
    ]
