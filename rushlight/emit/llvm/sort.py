"""Sort kernels: rows of records, an order-preserving key above a position, sorted as integers.

# Note [Sorting on the CPU]
1. A record is i64 (keys of up to 32 bits) or i128, the position in its low half. No two are equal,
   so any sort by the whole number is stable.
2. `sort_records` is a radix sort from the lowest byte of the key up (records start in the order of
   position, so the positions' bytes need no pass); a byte that all keys share costs no pass. Few
   records are sorted by insertion.
3. Where few elements of a long row are kept, records enter a buffer if they are below the last kept
   so far; a full buffer is sorted and cut. In random data few records pass; in the worst case each
   is sorted once or twice.
4. The launch has two more numbers than Note [Kernel arguments] says: `room`, the records of a
   buffer, and `parts`, into which the rows are cut; scratch (a fourth address) has two buffers for
   each part.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType, int64
from rushlight.emit.llvm.text import FUNCTION, Arguments, Slot, Writer
from rushlight.kernel.shapes import Sort

FEW = 48  # records up to which insertion is faster
DIGITS = 256
_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
SORT_HEAD = "define internal ptr @sort_records(ptr %a, ptr %b, i64 %n)"


@dataclass
class Frame:
    """A Sort kernel's arguments, by name; strides are (outer, axis, inner)."""

    kernel: Sort
    addresses: list[str]  # values, positions, source, scratch
    sizes: list[str]  # outer, axis, inner, keep
    strides: list[list[str]]
    room: str
    parts: str


def record_bits(dtype: DType) -> int:
    return 128 if dtype.itemsize == 8 else 64


def _read_frame(writer: Writer, kernel: Sort) -> Frame:
    arguments = Arguments(writer)
    addresses = [arguments.address() for _ in range(4)]
    sizes = arguments.words(4)
    strides = [arguments.words(3) for _ in range(3)]
    return Frame(kernel, addresses, sizes, strides, *arguments.words(2))


def write_counts(writer: Writer, kernel: Sort) -> tuple[str, str]:
    """A task is a part of the rows."""
    arguments = Arguments(writer)
    arguments.next = 4
    outer, axis, inner = arguments.words(3)
    arguments.next = 17
    room, parts = arguments.words(2)
    few = writer.value(f"icmp slt i64 {room}, {axis}")
    weight = writer.value(f"select i1 {few}, i64 12, i64 {4 * kernel.dtype.itemsize}")
    return parts, writer.mul(writer.mul(writer.mul(outer, axis), inner), weight)


def functions(kernel: Sort, declared: set[str]) -> list[str]:
    sort, body = Writer(declared), Writer(declared)
    chosen = _write_sort(sort, kernel)
    _write_kernel(body, kernel)
    return [
        sort.function(SORT_HEAD, f"ptr {chosen}"),
        body.function(FUNCTION.format(name="kernel")),
    ]


# ---- rows of a task ----


def _write_kernel(writer: Writer, kernel: Sort) -> None:
    frame = _read_frame(writer, kernel)
    outer, axis, inner, keep = frame.sizes
    rows = writer.mul(outer, inner)
    record = f"i{record_bits(kernel.dtype)}"
    few = writer.value(f"icmp slt i64 {frame.room}, {axis}")
    with writer.loop("%begin", "%end") as part:
        first = writer.value(f"udiv i64 {writer.mul(part, rows)}, {frame.parts}")
        last = writer.value(f"udiv i64 {writer.mul(writer.add(part, '1'), rows)}, {frame.parts}")
        start = writer.mul(writer.mul(part, frame.room), "2")
        a = writer.value(f"getelementptr {record}, ptr {frame.addresses[3]}, i64 {start}")
        b = writer.value(f"getelementptr {record}, ptr {a}, i64 {frame.room}")
        with writer.loop(first, last) as row:
            o, i = (
                writer.value(f"udiv i64 {row}, {inner}"),
                writer.value(f"urem i64 {row}, {inner}"),
            )
            dtypes = (kernel.dtype, int64, kernel.dtype)
            places = [_row_start(writer, frame, n, dtype, o, i) for n, dtype in enumerate(dtypes)]
            found = writer.slot("ptr", a)
            with writer.when(few):
                _write_choosing(writer, frame, places[2], (a, b), found)
            with writer.when(writer.value(f"xor i1 {few}, true")):
                with writer.loop("0", axis) as n:
                    made = _write_record(writer, frame, places[2], n)
                    writer.line(f"store {record} {made}, ptr {_at(writer, record, a, n)}")
                writer.set(
                    found, writer.value(f"call ptr @sort_records(ptr {a}, ptr {b}, i64 {axis})")
                )
            _write_results(writer, frame, places, writer.get(found), keep)


def _at(writer: Writer, type_: str, base: str, offset: str) -> str:
    return writer.value(f"getelementptr {type_}, ptr {base}, i64 {offset}")


def _row_start(writer: Writer, frame: Frame, number: int, dtype: DType, o: str, i: str) -> str:
    steps = frame.strides[number]
    offset = writer.add(writer.mul(o, steps[0]), writer.mul(i, steps[2]))
    return _at(writer, f"i{8 * dtype.itemsize}", frame.addresses[number], offset)


def _write_record(writer: Writer, frame: Frame, source: str, n: str) -> str:
    """The record of element n of the row."""
    dtype, bits = frame.kernel.dtype, 8 * frame.kernel.dtype.itemsize
    place = _at(writer, f"i{bits}", source, writer.mul(n, frame.strides[2][1]))
    raw = writer.value(f"load i{bits}, ptr {place}, align {dtype.itemsize}")
    key = _write_key(writer, raw, dtype, frame.kernel.descending)
    whole = record_bits(dtype)
    high = writer.value(
        f"shl i{whole} {writer.value(f'zext i{bits} {key} to i{whole}')}, {whole // 2}"
    )
    low = n if whole == 64 else writer.value(f"zext i64 {n} to i128")
    return writer.value(f"or i{whole} {high}, {low}")


def _write_key(writer: Writer, raw: str, dtype: DType, descending: bool) -> str:
    """An element's bits as an unsigned integer in the elements' order.

    -0.0 is 0.0, every NaN is the largest.
    """
    bits = 8 * dtype.itemsize
    kind, top = f"i{bits}", 1 << (bits - 1)
    key = raw
    if dtype.kind == "i":
        key = writer.value(f"xor {kind} {raw}, {-top}")
    elif dtype.kind == "f":
        infinity = (top - 1) >> _MANTISSA[dtype.name] << _MANTISSA[dtype.name]
        size = writer.value(f"and {kind} {raw}, {top - 1}")
        is_nan = writer.value(f"icmp ugt {kind} {size}, {infinity}")
        is_zero = writer.value(f"icmp eq {kind} {size}, 0")
        sign = writer.value(f"ashr {kind} {raw}, {bits - 1}")
        turned = writer.value(f"xor {kind} {raw}, {writer.value(f'or {kind} {sign}, {-top}')}")
        key = writer.value(f"select i1 {is_zero}, {kind} {-top}, {kind} {turned}")
        key = writer.value(f"select i1 {is_nan}, {kind} -1, {kind} {key}")
    return writer.value(f"xor {kind} {key}, -1") if descending else key


def _write_results(
    writer: Writer, frame: Frame, places: list[str], records: str, count: str
) -> None:
    dtype = frame.kernel.dtype
    raw, whole = f"i{8 * dtype.itemsize}", record_bits(dtype)
    with writer.loop("0", count) as k:
        record = writer.value(f"load i{whole}, ptr {_at(writer, f'i{whole}', records, k)}")
        low = writer.value(f"trunc i{whole} {record} to i{whole // 2}")
        n = low if whole == 128 else writer.value(f"zext i32 {low} to i64")
        source = _at(writer, raw, places[2], writer.mul(n, frame.strides[2][1]))
        value = writer.value(f"load {raw}, ptr {source}, align {dtype.itemsize}")
        target = _at(writer, raw, places[0], writer.mul(k, frame.strides[0][1]))
        writer.line(f"store {raw} {value}, ptr {target}, align {dtype.itemsize}")
        target = _at(writer, "i64", places[1], writer.mul(k, frame.strides[1][1]))
        writer.line(f"store i64 {n}, ptr {target}, align 8")


def _write_choosing(
    writer: Writer, frame: Frame, source: str, buffers: tuple[str, str], found: Slot
) -> None:
    """Rule 3 of Note [Sorting on the CPU]; `found` then holds the address of the kept records."""
    _, axis, _, keep = frame.sizes
    record = f"i{record_bits(frame.kernel.dtype)}"
    near, far = writer.slot("ptr", buffers[0]), writer.slot("ptr", buffers[1])
    count, bound = writer.slot("i64", "0"), writer.slot(record, "-1")

    def sort_near() -> str:
        """Sort the records of `near`, which then holds the result's address."""
        a, b = writer.get(near), writer.get(far)
        sorted_ = writer.value(f"call ptr @sort_records(ptr {a}, ptr {b}, i64 {writer.get(count)})")
        same = writer.value(f"icmp eq ptr {sorted_}, {a}")
        writer.set(far, writer.value(f"select i1 {same}, ptr {b}, ptr {a}"))
        writer.set(near, sorted_)
        return sorted_

    with writer.loop("0", axis) as n:
        made = _write_record(writer, frame, source, n)
        with writer.when(writer.value(f"icmp ult {record} {made}, {writer.get(bound)}")):
            place = _at(writer, record, writer.get(near), writer.get(count))
            writer.line(f"store {record} {made}, ptr {place}")
            writer.set(count, writer.add(writer.get(count), "1"))
            with writer.when(writer.value(f"icmp eq i64 {writer.get(count)}, {frame.room}")):
                last = _at(writer, record, sort_near(), writer.sub(keep, "1"))
                writer.set(bound, writer.value(f"load {record}, ptr {last}"))
                writer.set(count, keep)
    writer.set(found, sort_near())


# ---- sorting records ----


def _write_sort(writer: Writer, kernel: Sort) -> str:
    """The body of sort_records(a, b, n): sorts the records of a, into a or b; the result's name."""
    result = writer.slot("ptr", "%a")
    few = writer.value(f"icmp sle i64 %n, {FEW}")
    with writer.when(few):
        _write_insertion(writer, f"i{record_bits(kernel.dtype)}")
    with writer.when(writer.value(f"xor i1 {few}, true")):
        _write_radix(writer, kernel.dtype, result)
    return writer.get(result)


def _write_insertion(writer: Writer, record: str) -> None:
    head, move, done = writer.fresh("head"), writer.fresh("move"), writer.fresh("done")
    with writer.loop("1", "%n") as i:
        x = writer.value(f"load {record}, ptr {_at(writer, record, '%a', i)}")
        hole = writer.slot("i64", i)
        writer.line(f"br label %{head}")
        writer.label(head)
        j = writer.get(hole)
        before = _at(writer, record, "%a", writer.sub(j, "1"))
        inside = writer.value(f"icmp sgt i64 {j}, 0")
        look = writer.fresh("look")
        writer.line(f"br i1 {inside}, label %{look}, label %{done}")
        writer.label(look)
        other = writer.value(f"load {record}, ptr {before}")
        writer.line(
            f"br i1 {writer.value(f'icmp ugt {record} {other}, {x}')}, label %{move}, label %{done}"
        )
        writer.label(move)
        writer.line(f"store {record} {other}, ptr {_at(writer, record, '%a', j)}")
        writer.set(hole, writer.sub(j, "1"))
        writer.line(f"br label %{head}")
        writer.label(done)
        writer.line(f"store {record} {x}, ptr {_at(writer, record, '%a', writer.get(hole))}")


def _digit(writer: Writer, record: str, whole: int, number: int) -> str:
    """Byte `number` of a record's key, as i64."""
    shifted = writer.value(f"lshr i{whole} {record}, {whole // 2 + 8 * number}")
    return writer.value(
        f"and i64 {shifted if whole == 64 else writer.value(f'trunc i128 {shifted} to i64')}, 255"
    )


def _write_radix(writer: Writer, dtype: DType, result: Slot) -> None:
    whole, passes = record_bits(dtype), dtype.itemsize
    record = f"i{whole}"
    counts = [writer.array("i32", DIGITS) for _ in range(passes)]
    for table in counts:
        operands = [("ptr", table), ("i8", "0"), ("i64", str(4 * DIGITS)), ("i1", "false")]
        writer.call("void", "llvm.memset.p0.i64", operands)
    with writer.loop("0", "%n") as n:
        x = writer.value(f"load {record}, ptr {_at(writer, record, '%a', n)}")
        for number, table in enumerate(counts):
            _next_of(writer, table, _digit(writer, x, whole, number))
    to = writer.slot("ptr", "%b")
    for number, table in enumerate(counts):
        source, target = writer.get(result), writer.get(to)
        first = writer.value(f"load {record}, ptr {source}")
        shared = writer.value(
            f"load i32, ptr {_at(writer, 'i32', table, _digit(writer, first, whole, number))}"
        )
        alike = writer.value(f"icmp eq i64 {writer.value(f'zext i32 {shared} to i64')}, %n")
        with writer.when(writer.value(f"xor i1 {alike}, true")):
            _write_pass(writer, whole, number, table, (source, target))
            writer.set(result, target)
            writer.set(to, source)


def _next_of(writer: Writer, table: str, digit: str) -> str:
    """The digit's counter, incremented."""
    place = _at(writer, "i32", table, digit)
    old = writer.value(f"load i32, ptr {place}")
    writer.line(f"store i32 {writer.value(f'add i32 {old}, 1')}, ptr {place}")
    return writer.value(f"zext i32 {old} to i64")


def _write_pass(writer: Writer, whole: int, number: int, table: str, ends: tuple[str, str]) -> None:
    """Counts to offsets, then each record to the next place of its digit."""
    total = writer.slot("i32", "0")
    with writer.loop("0", str(DIGITS)) as d:
        place = _at(writer, "i32", table, d)
        count = writer.value(f"load i32, ptr {place}")
        before = writer.get(total)
        writer.line(f"store i32 {before}, ptr {place}")
        writer.set(total, writer.value(f"add i32 {before}, {count}"))
    with writer.loop("0", "%n") as n:
        x = writer.value(f"load i{whole}, ptr {_at(writer, f'i{whole}', ends[0], n)}")
        there = _next_of(writer, table, _digit(writer, x, whole, number))
        writer.line(f"store i{whole} {x}, ptr {_at(writer, f'i{whole}', ends[1], there)}")
