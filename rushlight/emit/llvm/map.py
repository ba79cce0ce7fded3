"""Map kernels: a task is a chunk of the innermost dimension in one row of the outer ones."""

from __future__ import annotations

from rushlight.emit.llvm.anomaly import checked_writer
from rushlight.emit.llvm.body import (
    checked_load,
    first_lanes,
    invariants,
    lane_numbers,
    load,
    load_parts,
    pointer,
    splat,
    store,
    store_parts,
)
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.frame import Frame, Operand, argument_count, lanes, read_frame
from rushlight.emit.llvm.long import body_function, call_body, is_long, leaves_of
from rushlight.emit.llvm.text import FUNCTION, Slot, Writer, vector
from rushlight.emit.llvm.tiles import fits, task_count, tileable, write_tiles
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import Expr, topological

CHUNK = 4096


def functions(kernel: Map, declared: set[str]) -> list[str]:
    writer = checked_writer(Writer(declared), kernel, argument_count(kernel))
    write_kernel(writer, kernel)
    found = [writer.function(FUNCTION.format(name="kernel"))]
    return [*found, body_function(kernel, declared)] if is_long(kernel) else found


def write_counts(writer: Writer, kernel: Map) -> tuple[str, str]:
    """The number of tasks, and of elements times instructions."""
    frame = read_frame(writer, kernel)
    inner = frame.sizes[-1]
    tasks, total = writer.divided_up(inner, CHUNK), inner
    for size in frame.sizes[:-1]:
        tasks, total = writer.mul(tasks, size), writer.mul(total, size)
    if tileable(kernel):
        tasks = writer.value(
            f"select i1 {fits(writer, frame)}, i64 {task_count(writer, frame)}, i64 {tasks}"
        )
    # A load counts as a few instructions; a gathered one as many.
    weight = len(topological(kernel.body)) + 4 * sum(s == "n" for s in kernel.steps)
    return tasks, writer.mul(total, str(max(1, weight // 4)))


def write_kernel(writer: Writer, kernel: Map) -> None:
    frame = read_frame(writer, kernel)
    if kernel.rank == 0:
        begin = writer.mul("%begin", str(CHUNK))
        end = writer.smaller(writer.mul("%end", str(CHUNK)), frame.sizes[0])
        _write_row(writer, frame, begin, end, "0")
    elif tileable(kernel):
        chosen = fits(writer, frame)
        with writer.when(chosen):
            write_tiles(writer, frame)
        with writer.when(writer.value(f"xor i1 {chosen}, true")):
            _write_rows(writer, frame)
    else:
        _write_rows(writer, frame)


def _write_rows(writer: Writer, frame: Frame) -> None:
    """Walk the tasks; the multi-index and every operand's offset are carried along."""
    inner = frame.sizes[-1]
    chunks = writer.divided_up(inner, CHUNK)
    first_row = writer.value(f"sdiv i64 %begin, {chunks}")
    chunk = writer.slot("i64", writer.value(f"srem i64 %begin, {chunks}"))
    row = writer.slot("i64", first_row)
    operands = frame.operands
    places = _split_index(writer, frame, first_row)
    with writer.loop("%begin", "%end"):
        here = writer.get(chunk)
        begin = writer.mul(here, str(CHUNK))
        end = writer.smaller(writer.add(begin, str(CHUNK)), inner)
        _write_row(writer, frame, begin, end, writer.mul(writer.get(row), inner))
        following = writer.add(here, "1")
        writer.set(chunk, following)
        with writer.when(writer.value(f"icmp eq i64 {following}, {chunks}")):
            writer.set(chunk, "0")
            writer.set(row, writer.add(writer.get(row), "1"))
            _advance(writer, frame, operands, places)


def _split_index(writer: Writer, frame: Frame, row: str) -> list[Slot]:
    """The multi-index of `row` over the outer dimensions; sets the operands' offsets to it."""
    outer = frame.sizes[:-1]
    positions: list[str] = []
    rest = row
    for size in reversed(outer):
        positions.insert(0, writer.value(f"srem i64 {rest}, {size}"))
        rest = writer.value(f"sdiv i64 {rest}, {size}")
    last: Slot | None = None
    for operand in frame.operands:
        if operand.step != "o":
            offset = "0"
            for position, stride in zip(positions, operand.strides, strict=False):
                offset = writer.add(offset, writer.mul(position, stride))
            last = writer.slot("i64", offset)
        operand.offset = last
    return [writer.slot("i64", p) for p in positions]


def _advance(writer: Writer, frame: Frame, operands: list[Operand], places: list[Slot]) -> None:
    """To the next row: the last outer dimension steps, and carries where it is full."""
    done = writer.fresh("row")
    for dim in range(len(places) - 1, -1, -1):
        following = writer.add(writer.get(places[dim]), "1")
        full = writer.value(f"icmp eq i64 {following}, {frame.sizes[dim]}")
        writer.set(places[dim], writer.value(f"select i1 {full}, i64 0, i64 {following}"))
        back = writer.value(f"select i1 {full}, i64 {frame.sizes[dim]}, i64 0")
        steps = writer.sub("1", back)
        for operand in operands:
            if operand.step == "o":
                continue
            assert operand.offset is not None
            moved = writer.add(writer.get(operand.offset), writer.mul(operand.strides[dim], steps))
            writer.set(operand.offset, moved)
        carry = writer.fresh("carry")
        writer.line(f"br i1 {full}, label %{carry}, label %{done}")
        writer.label(carry)
    writer.line(f"br label %{done}")
    writer.label(done)


def _write_row(writer: Writer, frame: Frame, begin: str, end: str, index: str) -> None:
    """Elements begin..end of one row: whole vectors, then a masked rest."""
    width, unroll = lanes(frame.kernel)
    row = Row(writer, frame, index, width)
    position = writer.slot("i64", begin)
    span = width * unroll
    with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as i:
        for part in range(unroll):
            row.write(writer.add(i, str(part * width)) if part else i, None)
    with writer.loop(position, end, str(width)) as i:
        row.write(i, writer.sub(end, i))


class Row:
    """One row's operands and loop invariants."""

    def __init__(self, writer: Writer, frame: Frame, index: str, width: int) -> None:
        self.writer, self.frame, self.index, self.width = writer, frame, index, width
        self.places = [_row_base(writer, operand) for operand in frame.operands]
        self.known: dict[Expr, str] = {}
        self.long = is_long(frame.kernel)
        self.leaves = leaves_of(frame.kernel)
        if self.long:
            still = tuple(e for e in self.leaves if not self._moves(e))
        else:
            still = invariants(frame.kernel.body, self._moves)
        for expr, value in zip(still, evaluate(writer, still, 1, self._fixed), strict=True):
            self.known[expr] = splat(writer, value, expr.dtype, width)

    def _moves(self, expr: Expr) -> bool:
        return expr.op == "index" or (
            expr.op == "arg" and self.frame.inputs[int(expr.value or 0)].step != "0"
        )

    def _fixed(self, expr: Expr) -> str:
        k = int(expr.value or 0)
        if expr.op == "param":
            return self.frame.params[k]
        place = self.places[len(self.frame.outputs) + k]
        return checked_load(
            self.writer,
            k,
            expr,
            load(self.writer, place, self.frame.inputs[k].dtype, "0", "0", 1, None),
            1,
        )

    def write(self, i: str, rest: str | None) -> None:
        """The body for the elements from position i on: all loads, then all stores.

        `rest`: there are so many, perhaps fewer than a vector has.
        """
        writer, frame, width = self.writer, self.frame, self.width
        mask = both = None
        if rest is not None:
            mask = first_lanes(writer, rest, width)
            if "e" in frame.kernel.steps:
                both = first_lanes(writer, writer.add(rest, rest), 2 * width)
        places = []
        for operand, base in zip(frame.operands, self.places, strict=True):
            offset = i if operand.step == "1" else writer.mul(i, operand.inner)
            places.append(
                base if operand.step == "0" else pointer(writer, base, operand.dtype, offset)
            )

        def leaf(expr: Expr) -> str:
            if expr.op == "arg":
                k = int(expr.value or 0)
                operand = frame.inputs[k]
                place = places[len(frame.outputs) + k]
                if operand.step in "eo":
                    odd = operand.step == "o"
                    first = places[len(frame.outputs) + k - odd]
                    found = load_parts(writer, first, operand.dtype, odd, width, both)
                else:
                    found = load(
                        writer, place, operand.dtype, operand.step, operand.inner, width, mask
                    )
                return checked_load(writer, k, expr, found, width)
            assert expr.op == "index", f"{expr.op} in a map"
            first = splat(writer, writer.add(self.index, i), expr.dtype, width)
            return writer.value(f"add {vector('i64', width)} {first}, {lane_numbers(width)}")

        if self.long:
            values = [self.known.get(e) or leaf(e) for e in self.leaves]
            results = call_body(writer, frame.kernel, self.leaves, values)
        else:
            results = evaluate(writer, frame.kernel.body, width, leaf, self.known)
        for k, (operand, place, result) in enumerate(
            zip(frame.outputs, places, results, strict=False)
        ):
            if operand.step in "eo":
                if operand.step == "e":
                    parts = result, results[k + 1]
                    store_parts(writer, parts, place, operand.dtype, width, (mask, both))
                continue
            store(writer, result, place, operand.dtype, operand.step, operand.inner, width, mask)


def _row_base(writer: Writer, operand: Operand) -> str:
    if operand.offset is None:
        return operand.base
    return pointer(writer, operand.base, operand.dtype, writer.get(operand.offset))
