"""Gather along dense rows of single elements: reads and follows several indices at a time."""

from __future__ import annotations

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.body import first_lanes, lane_splat, pointer
from rushlight.emit.llvm.text import STORED, Slot, Writer, suffix, vector

LANES = 8
UNROLL = 2


def write_along(
    writer: Writer, dtype: DType, index_dtype: DType, addresses: list[str], numbers: list[str]
) -> None:
    """Tasks %begin to %end, element by element; out, source and index have unit steps.

    `addresses` are out, source, index, status; `numbers` are count, limit and the outer strides of
    out, source, index.
    """
    out, source, index, status = addresses
    count, limit, *steps = numbers
    bad = writer.slot(vector("i1", LANES), "zeroinitializer")
    first = writer.value(f"sdiv i64 %begin, {count}")
    last = writer.value(f"sdiv i64 {writer.sub('%end', '1')}, {count}")
    with writer.loop(first, writer.add(last, "1")) as o:
        start = writer.mul(o, count)
        behind = writer.sub("%begin", start)
        begin = writer.value(
            f"select i1 {writer.value(f'icmp sgt i64 {behind}, 0')}, i64 {behind}, i64 0"
        )
        end = writer.smaller(writer.sub("%end", start), count)
        row = [
            pointer(writer, base, kind, writer.mul(o, step))
            for base, kind, step in zip(
                (out, source, index), (dtype, dtype, index_dtype), steps, strict=True
            )
        ]
        position = writer.slot("i64", begin)
        span = LANES * UNROLL
        with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as k:
            for part in range(UNROLL):
                here = writer.add(k, str(part * LANES)) if part else k
                _follow(writer, (dtype, index_dtype), row, here, limit, bad, None)
        with writer.loop(position, end, str(LANES)) as k:
            mask = first_lanes(writer, writer.sub(end, k), LANES)
            _follow(writer, (dtype, index_dtype), row, k, limit, bad, mask)
    flags = vector("i1", LANES)
    some = writer.call(
        "i1", f"llvm.vector.reduce.or.{suffix('i1', LANES)}", [(flags, writer.get(bad))]
    )
    with writer.when(some):
        writer.line(f"store i32 1, ptr {status}, align 4")


def _follow(
    writer: Writer,
    types: tuple[DType, DType],
    row: list[str],
    k: str,
    limit: str,
    bad: Slot,
    mask: str | None,
) -> None:
    """out[k + lane] = source[index[k + lane]] for every lane of the mask; 0 where out of range."""
    dtype, index_dtype = types
    out, source, index = row
    flags, longs = vector("i1", LANES), vector("i64", LANES)
    given = mask or "splat (i1 true)"
    places = _read(writer, index_dtype, pointer(writer, index, index_dtype, k), given)
    limits = lane_splat(writer, limit, LANES)
    # Unsigned: a negative index is a large one.
    inside = writer.value(f"icmp ult {longs} {places}, {limits}")
    outside = writer.value(f"xor {flags} {inside}, splat (i1 true)")
    outside = writer.value(f"and {flags} {outside}, {given}")
    writer.set(bad, writer.value(f"or {flags} {writer.get(bad)}, {outside}"))
    wanted = writer.value(f"and {flags} {inside}, {given}")
    raw = STORED[dtype]
    type_, pointers, align = vector(raw, LANES), vector("ptr", LANES), str(dtype.itemsize)
    sources = writer.value(f"getelementptr {raw}, ptr {source}, {longs} {places}")
    name = f"llvm.masked.gather.{suffix(raw, LANES)}.{suffix('ptr', LANES)}"
    operands = [(pointers, sources), ("i32", align), (flags, wanted), (type_, "zeroinitializer")]
    found = writer.call(type_, name, operands)
    target = pointer(writer, out, dtype, k)
    if mask is None:
        writer.line(f"store {type_} {found}, ptr {target}, align {align}")
        return
    name = f"llvm.masked.store.{suffix(raw, LANES)}.p0"
    writer.call("void", name, [(type_, found), ("ptr", target), ("i32", align), (flags, mask)])


def _read(writer: Writer, index_dtype: DType, place: str, mask: str) -> str:
    """Indices as i64."""
    raw = STORED[index_dtype]
    type_ = vector(raw, LANES)
    operands = [("ptr", place), ("i32", str(index_dtype.itemsize)), (vector("i1", LANES), mask)]
    name = f"llvm.masked.load.{suffix(raw, LANES)}.p0"
    found = writer.call(type_, name, [*operands, (type_, "zeroinitializer")])
    if index_dtype.itemsize == 8:
        return found
    return writer.value(f"sext {type_} {found} to {vector('i64', LANES)}")
