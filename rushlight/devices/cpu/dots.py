"""A matrix product as dot products in registers, for operands dense along the sum, as in x @ w.T.

A tile is ROWS rows of a by COLUMNS columns of b; of a single row, one by LINES columns. The sum
runs along the registers, so nothing is packed or transposed: each element of the result is one
chain of fused multiply-adds per lane, k ascending, then the lanes are added in a fixed order. Its
bits depend on k alone, not on the other rows and columns, nor on the tile.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType
from rushlight.devices.cpu import tiles
from rushlight.emit.llvm.body import load, pointer
from rushlight.emit.llvm.terms import Term, ceil_div, larger, smaller, where
from rushlight.emit.llvm.text import COMPUTE, Writer, suffix, vector

ROWS, COLUMNS = 4, 6  # 24 registers of results, 4 of a, 1 of b
LINES = 8  # registers of results, and of the matrix, of a matrix times a vector
REGISTER = 64  # bytes
FEW, MANY = 2 * COLUMNS, 64  # columns and rows of a task
SHORTEST, LONGEST = 96, 1024  # sums
MOST = 256  # rows or columns, whichever are fewer

DOTS = (
    "define internal void @dots{rows}(ptr readonly %a, i64 %a_row, ptr readonly %b, i64 %b_column, "
    "ptr %c, i64 %c_row, i64 %c_column, "
    'i64 %height, i64 %width, i64 %k) noinline "prefer-vector-width"="512"'
)


def functions(declared: set[str], dtype: DType) -> list[str]:
    sizes = (ROWS, COLUMNS), (LINES, 1)
    return [_write_dots(declared, dtype, rows, columns) for rows, columns in sizes]


def _write_dots(declared: set[str], dtype: DType, most_rows: int, most_columns: int) -> str:
    """@dots4: c = a b for up to four rows (`most_rows`), a multiple of four, and some columns.

    a's rows and b's columns are dense, c has any strides.
    """
    writer = Writer(declared)
    lanes = REGISTER // dtype.itemsize
    scalar = COMPUTE[dtype]
    kind = vector(scalar, lanes)
    places = []
    steps = (
        ("%a", "%a_row", "%height", most_rows),
        ("%b", "%b_column", "%width", most_columns),
    )
    for base, step, size, most in steps:
        last = writer.sub(size, "1")
        # Lines past the end repeat the last one.
        numbers = [writer.smaller(str(i), last) for i in range(most)]
        places.append([pointer(writer, base, dtype, writer.mul(n, step)) for n in numbers])
    sums = [
        [writer.slot(kind, "zeroinitializer") for _ in range(most_rows)]
        for _ in range(most_columns)
    ]
    whole = writer.value(f"and i64 %k, {-lanes}")
    with writer.loop("0", "2") as part:  # the whole registers, then the rest
        first = writer.value(f"icmp eq i64 {part}, 0")
        begin = writer.value(f"select i1 {first}, i64 0, i64 {whole}")
        end = writer.value(f"select i1 {first}, i64 {whole}, i64 %k")
        count = writer.value(f"select i1 {first}, i64 {lanes}, i64 {writer.sub('%k', whole)}")
        mask = _first(writer, count, lanes)
        with writer.loop(begin, end, str(lanes)) as p:
            left = [
                load(writer, pointer(writer, a, dtype, p), dtype, "1", "1", lanes, mask)
                for a in places[0]
            ]
            for b, column in zip(places[1], sums, strict=True):
                right = load(writer, pointer(writer, b, dtype, p), dtype, "1", "1", lanes, mask)
                for a, slot in zip(left, column, strict=True):
                    operands = [(kind, a), (kind, right), (kind, writer.get(slot))]
                    writer.set(
                        slot, writer.call(kind, f"llvm.fma.{suffix(scalar, lanes)}", operands)
                    )
    _store(writer, dtype, [[writer.get(slot) for slot in column] for column in sums])
    return writer.function(DOTS.format(rows=most_rows))


def _first(writer: Writer, count: str, lanes: int) -> str:
    """A mask of the first `count` lanes, from a number.

    A comparison would be repeated in every step of the loop.
    """
    bit = writer.value(f"shl i64 1, {count}")
    bits = writer.value(f"trunc i64 {writer.sub(bit, '1')} to i{lanes}")
    return writer.value(f"bitcast i{lanes} {bits} to {vector('i1', lanes)}")


def _store(writer: Writer, dtype: DType, sums: list[list[str]]) -> None:
    scalar = COMPUTE[dtype]
    last = writer.sub("%height", "1")
    rows = [
        pointer(writer, "%c", dtype, writer.mul(writer.smaller(str(i), last), "%c_row"))
        for i in range(len(sums[0]))
    ]
    last = writer.sub("%width", "1")
    for number, column in enumerate(sums):
        totals = [_add_lanes(writer, dtype, column[i : i + 4]) for i in range(0, len(rows), 4)]
        across = writer.mul(writer.smaller(str(number), last), "%c_column")
        for i, row in enumerate(rows):
            lane = f"{vector(scalar, 4)} {totals[i // 4]}, i64 {i % 4}"
            value = writer.value(f"extractelement {lane}")
            writer.line(
                f"store {scalar} {value}, ptr {pointer(writer, row, dtype, across)}, align "
                f"{dtype.itemsize}"
            )


def _add_lanes(writer: Writer, dtype: DType, values: list[str]) -> str:
    """Four registers become one of four: the sums of their lanes."""
    size, group = REGISTER // dtype.itemsize, 1  # neighbours that belong to different sums
    while len(values) > 1:
        span = max(16 // dtype.itemsize, 2 * group)  # lanes of sixteen bytes are cheap to exchange
        halves: list[list[int]] = [[], []]
        for at in range(0, size, group):
            of_both = [start + i for start in (at, size + at) for i in range(group)]
            halves[at % span >= span // 2] += of_both
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [_added(writer, dtype, pair, halves, size) for pair in pairs]
        group *= 2
    value = values[0]
    while size > 4:
        halves = [list(range(size // 2)), list(range(size // 2, size))]
        value = _added(writer, dtype, (value, "poison"), halves, size)
        size //= 2
    return value


def _added(
    writer: Writer, dtype: DType, pair: tuple[str, str], halves: list[list[int]], size: int
) -> str:
    """The sum of two selections of lanes from a pair of registers."""
    scalar = COMPUTE[dtype]
    kind, parts = vector(scalar, size), []
    for half in halves:
        order = ", ".join(f"i32 {i}" for i in half)
        text = f"shufflevector {kind} {pair[0]}, {kind} {pair[1]}, <{len(half)} x i32> <{order}>"
        parts.append(writer.value(text))
    return writer.value(f"fadd {vector(scalar, len(halves[0]))} {parts[0]}, {parts[1]}")


def turned(sizes: list[Term]) -> Term:
    """Whether b's columns serve as rows: the operand with fewer lines is read repeatedly."""
    return sizes[2] > sizes[3]


def blocks(sizes: list[Term]) -> list[Term]:
    """The rows and columns of a task, and the number of tasks down and across the product."""
    _, _, m, n, _ = sizes
    turn = turned(sizes)
    few = where(smaller(m, n).equals(1), MANY, FEW)
    rows, columns = where(turn, few, MANY), where(turn, MANY, few)
    return [rows, columns, ceil_div(m, rows), ceil_div(n, columns)]


def suited(sizes: list[Term], along: Term, fewer: Term, tiled: Term) -> Term:
    """Whether dot products are the fastest way.

    `along`: both operands are dense along the sum. `fewer`: of rows and columns. `tiled`: tiles are
    possible.
    """
    _, _, m, _, k = sizes
    deep = k > tiles.DEPTH
    low = (fewer < tiles.TALL) & (deep | ~tiled)
    few = (m <= MANY) & (k > 2 * tiles.DEPTH)
    some = (fewer <= MOST) & deep & ~tiled
    return along & (fewer >= ROWS) & (k >= SHORTEST) & (low | ((few | some) & (k <= LONGEST)))


def lined(sizes: list[Term], along: Term, fewer: Term) -> Term:
    """Whether it is a matrix times one vector, or a few; `along` and `fewer` as for `suited`."""
    _, _, m, n, k = sizes
    return along & (fewer < ROWS) & (larger(m, n) >= ROWS) & (k >= 1)


def write_task(
    writer: Writer,
    dtype: DType,
    places: list[str],
    steps: list[list[str]],
    sizes: tuple[str, str, str],
    turn: str,
) -> None:
    """out = a b for one task.

    Given are the addresses of out, a and b, their row and column strides, and (rows, columns, k).
    """

    def either(kind: str, a: str, b: str) -> tuple[str, str]:
        first = writer.value(f"select i1 {turn}, {kind} {b}, {kind} {a}")
        return first, writer.value(f"select i1 {turn}, {kind} {a}, {kind} {b}")

    out, a, b = places
    a, b = either("ptr", a, b)
    a_row, b_column = either("i64", steps[1][0], steps[2][1])
    c_row, c_column = either("i64", *steps[0])
    m, n = either("i64", *sizes[:2])

    def line(place: str, step: str, number: str) -> str:
        return pointer(writer, place, dtype, writer.mul(number, step))

    single = writer.value(f"icmp eq i64 {m}, 1")
    with writer.when(single), tiles.rows(writer, "0", n, LINES) as (column, width):
        right, target = line(b, b_column, column), line(out, c_column, column)
        lines = [(right, b_column), (a, a_row), (target, c_column)]
        _call(writer, LINES, lines, c_row, (width, "1", sizes[2]))
    with (
        writer.when(writer.value(f"xor i1 {single}, true")),
        tiles.rows(writer, "0", n, COLUMNS) as (column, width),
    ):
        right, target = line(b, b_column, column), line(out, c_column, column)
        with tiles.rows(writer, "0", m, ROWS) as (row, height):
            left = line(a, a_row, row), a_row
            lines = [left, (right, b_column), (line(target, c_row, row), c_row)]
            _call(writer, ROWS, lines, c_column, (height, width, sizes[2]))


def _call(
    writer: Writer,
    rows: int,
    places: list[tuple[str, str]],
    c_column: str,
    sizes: tuple[str, str, str],
) -> None:
    """One tile: a, b and c by their addresses and the steps of their lines; c has both steps."""
    operands = ", ".join(f"ptr {place}, i64 {step}" for place, step in places)
    numbers = ", ".join(f"i64 {size}" for size in sizes)
    writer.line(f"call void @dots{rows}({operands}, i64 {c_column}, {numbers})")
