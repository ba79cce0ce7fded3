"""Gather and Scatter kernels.

An index out of range is reported in the status word, never followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.llvm.body import first_lanes, load, pointer, store
from rushlight.emit.llvm.gather import write_along
from rushlight.emit.llvm.rowwise import combine
from rushlight.emit.llvm.text import STORED, Arguments, Slot, Writer
from rushlight.kernel.shapes import Gather, Scatter

COLUMNS = 128


@dataclass
class Frame:
    """The arguments of an index kernel, by name; strides are (outer, axis, inner)."""

    dtype: DType
    index_dtype: DType
    out: str
    source: str
    index: str
    status: str
    outer: str
    count: str
    inner: str
    limit: str
    out_strides: list[str]
    source_strides: list[str]
    index_strides: list[str]


def read_frame(writer: Writer, kernel: Gather | Scatter) -> Frame:
    arguments = Arguments(writer)
    out, source, index, status = (arguments.address() for _ in range(4))
    outer, count, inner, limit = arguments.words(4)
    steps = [arguments.words(3) for _ in range(3)]
    types = (kernel.dtype, kernel.index_dtype)
    return Frame(
        *types, out, source, index, status, outer, count, inner, limit, steps[0], steps[1], steps[2]
    )


def write_counts(writer: Writer, kernel: Gather | Scatter) -> tuple[str, str]:
    """Gather: a task is one (outer, k).

    Scatter: one outer and a block of columns, all k in order.
    """
    arguments = Arguments(writer)
    arguments.next = 4
    outer, count, inner, _ = arguments.words(4)
    work = writer.mul(writer.mul(writer.mul(outer, count), inner), "4")
    if isinstance(kernel, Gather):
        some = writer.value(f"icmp sgt i64 {inner}, 0")
        return writer.value(f"select i1 {some}, i64 {writer.mul(outer, count)}, i64 0"), work
    return writer.mul(outer, writer.divided_up(inner, COLUMNS)), work


def write_kernel(writer: Writer, kernel: Gather | Scatter) -> None:
    frame = read_frame(writer, kernel)
    if isinstance(kernel, Gather):
        single = _is_single(writer, frame)
        with writer.when(single):
            addresses = [frame.out, frame.source, frame.index, frame.status]
            steps = [frame.out_strides[0], frame.source_strides[0], frame.index_strides[0]]
            write_along(
                writer,
                frame.dtype,
                frame.index_dtype,
                addresses,
                [frame.count, frame.limit, *steps],
            )
        with writer.when(writer.value(f"xor i1 {single}, true")):
            _write_blocks(writer, frame, _write_gather)
        return
    single = writer.value(f"icmp eq i64 {frame.inner}, 1")
    with writer.when(single):
        _write_scatter(writer, frame, partial(_fold_one, kernel.kind))
    with writer.when(writer.value(f"xor i1 {single}, true")):
        _write_blocks(writer, frame, partial(_write_wide, kernel.kind))


def _is_single(writer: Writer, frame: Frame) -> str:
    """Whether rows are single elements that lie next to each other."""
    flag = writer.value(f"icmp eq i64 {frame.inner}, 1")
    for strides in (frame.out_strides, frame.source_strides, frame.index_strides):
        flag = writer.value(f"and i1 {flag}, {writer.value(f'icmp eq i64 {strides[1]}, 1')}")
    return flag


def _write_blocks(writer: Writer, frame: Frame, write: Callable[..., None]) -> None:
    same = writer.value(f"icmp eq i64 {frame.index_strides[2]}, 0")  # one index for the whole row
    dense = writer.value(f"icmp eq i64 {frame.out_strides[2]}, 1")
    dense = writer.value(
        f"and i1 {dense}, {writer.value(f'icmp eq i64 {frame.source_strides[2]}, 1')}"
    )
    quick = writer.value(f"and i1 {same}, {dense}")
    slow = writer.value(f"xor i1 {quick}, true")
    with writer.when(quick):
        write(writer, frame, quick=True)
    with writer.when(slow):
        write(writer, frame, quick=False)


def _corner(writer: Writer, base: str, dtype: DType, strides: list[str], o: str, k: str) -> str:
    offset = writer.add(writer.mul(o, strides[0]), writer.mul(k, strides[1]))
    return pointer(writer, base, dtype, offset)


def _read_index(writer: Writer, frame: Frame, place: str) -> tuple[str, str]:
    """The index, and whether it is in range; reports it when it is not."""
    index = load(writer, place, frame.index_dtype, "1", "1", 1, None)
    if frame.index_dtype.itemsize == 4:
        index = writer.value(f"sext i32 {index} to i64")
    # Unsigned: a negative index is a large one.
    inside = writer.value(f"icmp ult i64 {index}, {frame.limit}")
    with writer.when(writer.value(f"xor i1 {inside}, true")):
        writer.line(f"store i32 1, ptr {frame.status}, align 4")
    return index, inside


def _write_gather(writer: Writer, frame: Frame, *, quick: bool) -> None:
    outer = writer.slot("i64", writer.value(f"sdiv i64 %begin, {frame.count}"))
    along = writer.slot("i64", writer.value(f"srem i64 %begin, {frame.count}"))
    with writer.loop("%begin", "%end"):
        o, k = writer.get(outer), writer.get(along)
        out = _corner(writer, frame.out, frame.dtype, frame.out_strides, o, k)
        index = _corner(writer, frame.index, frame.index_dtype, frame.index_strides, o, k)
        source = _corner(writer, frame.source, frame.dtype, frame.source_strides, o, "0")
        if quick:
            _copy_row(writer, frame, out, source, index)
        else:
            _gather_row(writer, frame, out, source, index)
        _next(writer, outer, along, frame.count)


def _next(writer: Writer, outer: Slot, along: Slot, count: str) -> None:
    following = writer.add(writer.get(along), "1")
    full = writer.value(f"icmp eq i64 {following}, {count}")
    writer.set(along, writer.value(f"select i1 {full}, i64 0, i64 {following}"))
    writer.set(outer, writer.add(writer.get(outer), writer.value(f"zext i1 {full} to i64")))


def _copy_row(writer: Writer, frame: Frame, out: str, source: str, place: str) -> None:
    index, inside = _read_index(writer, frame, place)
    begin = pointer(writer, source, frame.dtype, writer.mul(index, frame.source_strides[1]))
    nbytes = writer.mul(frame.inner, str(frame.dtype.itemsize))
    with writer.when(inside):
        operands = [("ptr", out), ("ptr", begin), ("i64", nbytes), ("i1", "false")]
        writer.call("void", "llvm.memcpy.p0.p0.i64", operands)
    with writer.when(writer.value(f"xor i1 {inside}, true")):
        operands = [("ptr", out), ("i8", "0"), ("i64", nbytes), ("i1", "false")]
        writer.call("void", "llvm.memset.p0.i64", operands)


def _gather_row(writer: Writer, frame: Frame, out: str, source: str, place: str) -> None:
    """Elements are copied as stored, without conversion."""
    raw, align = STORED[frame.dtype], frame.dtype.itemsize
    zero = "0.0" if raw in ("half", "float", "double") else "0"
    with writer.loop("0", frame.inner, strided=True) as i:
        here = pointer(writer, place, frame.index_dtype, writer.mul(i, frame.index_strides[2]))
        index, inside = _read_index(writer, frame, here)
        found = writer.slot(raw, zero)
        with writer.when(inside):
            steps = [
                writer.mul(index, frame.source_strides[1]),
                writer.mul(i, frame.source_strides[2]),
            ]
            begin = pointer(writer, source, frame.dtype, writer.add(*steps))
            writer.set(found, writer.value(f"load {raw}, ptr {begin}, align {align}"))
        target = pointer(writer, out, frame.dtype, writer.mul(i, frame.out_strides[2]))
        writer.line(f"store {raw} {writer.get(found)}, ptr {target}, align {align}")


# ---- scatter ----

Columns = tuple[str, str]
# Strides of out, source, index.
Fold = Callable[[Writer, Frame, str, str, str, Columns], None]


def _write_scatter(writer: Writer, frame: Frame, fold: Fold) -> None:
    blocks = writer.divided_up(frame.inner, COLUMNS)
    with writer.loop("%begin", "%end") as task:
        o = writer.value(f"sdiv i64 {task}, {blocks}")
        begin = writer.mul(writer.value(f"srem i64 {task}, {blocks}"), str(COLUMNS))
        end = writer.smaller(writer.add(begin, str(COLUMNS)), frame.inner)
        out = _corner(writer, frame.out, frame.dtype, frame.out_strides, o, "0")
        with writer.loop("0", frame.count, strided=True) as k:
            index = _corner(writer, frame.index, frame.index_dtype, frame.index_strides, o, k)
            source = _corner(writer, frame.source, frame.dtype, frame.source_strides, o, k)
            fold(writer, frame, out, source, index, (begin, end))


def _write_wide(kind: str, writer: Writer, frame: Frame, *, quick: bool) -> None:
    _write_scatter(writer, frame, partial(_fold_row if quick else _fold_elements, kind))


def _step(
    writer: Writer, kind: str, dtype: DType, target: str, source: str, width: int, mask: str | None
) -> None:
    """Fold `width` elements at `source` into those at `target`."""
    if kind == "set":
        assert width == 1
        raw, align = STORED[dtype], dtype.itemsize
        found = writer.value(f"load {raw}, ptr {source}, align {align}")
        writer.line(f"store {raw} {found}, ptr {target}, align {align}")
        return
    old, more = (load(writer, p, dtype, "1", "1", width, mask) for p in (target, source))
    after = combine(writer, "sum" if kind == "add" else kind, compute_type(dtype), more, old, width)
    store(writer, after, target, dtype, "1", "1", width, mask)


def _fold_one(
    kind: str, writer: Writer, frame: Frame, out: str, source: str, place: str, columns: Columns
) -> None:
    index, inside = _read_index(writer, frame, place)
    with writer.when(inside):
        target = pointer(writer, out, frame.dtype, writer.mul(index, frame.out_strides[1]))
        _step(writer, kind, frame.dtype, target, source, 1, None)


def _fold_row(
    kind: str, writer: Writer, frame: Frame, out: str, source: str, place: str, columns: Columns
) -> None:
    index, inside = _read_index(writer, frame, place)
    target = pointer(writer, out, frame.dtype, writer.mul(index, frame.out_strides[1]))
    if kind == "set":
        with writer.when(inside):
            begins = [pointer(writer, p, frame.dtype, columns[0]) for p in (target, source)]
            nbytes = writer.mul(writer.sub(columns[1], columns[0]), str(frame.dtype.itemsize))
            operands = [*(("ptr", p) for p in begins), ("i64", nbytes), ("i1", "false")]
            writer.call("void", "llvm.memcpy.p0.p0.i64", operands)
        return
    width = 8 if frame.dtype.itemsize == 8 else 16
    with writer.when(inside):
        position = writer.slot("i64", columns[0])
        with writer.loop(position, writer.sub(columns[1], str(width - 1)), str(width)) as i:
            places = [pointer(writer, p, frame.dtype, i) for p in (target, source)]
            _step(writer, kind, frame.dtype, places[0], places[1], width, None)
        with writer.loop(position, columns[1], str(width)) as i:
            places = [pointer(writer, p, frame.dtype, i) for p in (target, source)]
            mask = first_lanes(writer, writer.sub(columns[1], i), width)
            _step(writer, kind, frame.dtype, places[0], places[1], width, mask)


def _fold_elements(
    kind: str, writer: Writer, frame: Frame, out: str, source: str, place: str, columns: Columns
) -> None:
    with writer.loop(columns[0], columns[1], strided=True) as i:
        here = pointer(writer, place, frame.index_dtype, writer.mul(i, frame.index_strides[2]))
        index, inside = _read_index(writer, frame, here)
        with writer.when(inside):
            steps = [writer.mul(index, frame.out_strides[1]), writer.mul(i, frame.out_strides[2])]
            target = pointer(writer, out, frame.dtype, writer.add(*steps))
            begin = pointer(writer, source, frame.dtype, writer.mul(i, frame.source_strides[2]))
            _step(writer, kind, frame.dtype, target, begin, 1, None)
