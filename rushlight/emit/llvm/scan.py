"""Scan kernels: serial along the axis; neighbouring columns share vectors, a fold per lane.

A long body is vectorised whatever the layout: columns that are not neighbours are gathered, and
where there is one column (inner is 1), the rows of `outer` take its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.body import first_lanes, load, pointer, splat, store
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.text import COMPUTE, Arguments, Writer, constant, vector
from rushlight.kernel.shapes import Scan
from rushlight.scalar.ir import Expr, topological

COLUMNS = 64
ROWS = 3  # more columns would evict each other from a cache where rows lie a page apart
SMALL_BODY = 12  # instructions up to which loads cost more than the body


@dataclass
class Operand:
    """The output or an input; `place` is the start of the current column."""

    dtype: DType
    base: str
    strides: list[str]  # outer, axis, inner
    place: str = ""


@dataclass
class Frame:
    """A Scan kernel's arguments, by name; the output is the first operand."""

    kernel: Scan
    operands: list[Operand]
    outer: str
    axis: str
    inner: str


def read_frame(writer: Writer, kernel: Scan) -> Frame:
    arguments = Arguments(writer)
    dtypes = (kernel.output, *kernel.inputs)
    bases = [arguments.address() for _ in dtypes]
    outer, axis, inner = arguments.words(3)
    operands = [Operand(d, b, arguments.words(3)) for d, b in zip(dtypes, bases, strict=True)]
    if is_large(kernel):
        for operand in operands:
            operand.strides[2] = _choose_rows(
                writer, inner, operand.strides[0], operand.strides[2]
            )[1]
        outer, inner = _choose_rows(writer, inner, outer, inner)
    return Frame(kernel, operands, outer, axis, inner)


def _choose_rows(
    writer: Writer, inner: str, outer_number: str, inner_number: str
) -> tuple[str, str]:
    """Sizes or strides with outer in the place of an inner of 1; outer is then 1."""
    single = writer.value(f"icmp eq i64 {inner}, 1")
    return (
        writer.value(f"select i1 {single}, i64 1, i64 {outer_number}"),
        writer.value(f"select i1 {single}, i64 {outer_number}, i64 {inner_number}"),
    )


def is_large(kernel: Scan) -> bool:
    return len(topological((kernel.body,))) > SMALL_BODY


def _block(kernel: Scan) -> int:
    """Columns of a task."""
    return _lane_count(kernel) if is_large(kernel) else COLUMNS


def write_counts(writer: Writer, kernel: Scan) -> tuple[str, str]:
    """A task is one outer position and a block of columns."""
    arguments = Arguments(writer)
    arguments.next = 1 + len(kernel.inputs)
    outer, axis, inner = arguments.words(3)
    weight = str(2 + len(topological((kernel.body,))) // 4)
    work = writer.mul(writer.mul(writer.mul(outer, axis), inner), weight)
    if is_large(kernel):
        outer, inner = _choose_rows(writer, inner, outer, inner)
    return writer.mul(outer, writer.divided_up(inner, _block(kernel))), work


def write_kernel(writer: Writer, kernel: Scan) -> None:
    frame = read_frame(writer, kernel)
    quick = writer.value(f"icmp sgt i64 {frame.inner}, 1")
    for operand in frame.operands:
        quick = writer.value(
            f"and i1 {quick}, {writer.value(f'icmp eq i64 {operand.strides[2]}, 1')}"
        )
    with writer.when(quick):
        _write_tasks(writer, frame, _lane_count(kernel), "1")
    slow = writer.value(f"xor i1 {quick}, true")
    if is_large(kernel):
        with writer.when(slow):
            _write_tasks(writer, frame, _lane_count(kernel), "n")
        return
    single = writer.value(f"icmp eq i64 {frame.inner}, 1")
    with writer.when(single):
        _write_rows(writer, frame)
    with writer.when(writer.value(f"and i1 {slow}, {writer.value(f'xor i1 {single}, true')}")):
        _write_tasks(writer, frame, 1, "n")


def _lane_count(kernel: Scan) -> int:
    types = (kernel.output, *kernel.inputs, *(e.dtype for e in topological((kernel.body,))))
    return 8 if max(d.itemsize for d in types) == 8 else 16


def _write_tasks(writer: Writer, frame: Frame, width: int, step: str) -> None:
    parts = 4 if width > 1 and not is_large(frame.kernel) else 1
    span, columns = width * parts, _block(frame.kernel)
    blocks = writer.divided_up(frame.inner, columns)
    with writer.loop("%begin", "%end") as task:
        o = writer.value(f"sdiv i64 {task}, {blocks}")
        first = writer.mul(writer.value(f"srem i64 {task}, {blocks}"), str(columns))
        end = writer.smaller(writer.add(first, str(columns)), frame.inner)
        position = writer.slot("i64", first)
        with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as i:
            _place_columns(writer, frame, o, i)
            _fold(writer, frame, width, parts, step, None)
        if width > 1:
            with writer.loop(position, end, str(width)) as i:
                _place_columns(writer, frame, o, i)
                _fold(writer, frame, width, 1, step, first_lanes(writer, writer.sub(end, i), width))


def _write_rows(writer: Writer, frame: Frame) -> None:
    """Tasks of one column each, several side by side.

    A fold waits for its own last step, not for the other folds.
    """
    position = writer.slot("i64", "%begin")
    for rows in (ROWS, 1):
        with writer.loop(position, writer.sub("%end", str(rows - 1)), str(rows)) as task:
            _place_columns(writer, frame, task, "0")
            _fold(writer, frame, 1, rows, "n", None, axis=0)


def _place_columns(writer: Writer, frame: Frame, o: str, i: str) -> None:
    for operand in frame.operands:
        offset = writer.add(writer.mul(o, operand.strides[0]), writer.mul(i, operand.strides[2]))
        operand.place = pointer(writer, operand.base, operand.dtype, offset)


def _fold(
    writer: Writer, frame: Frame, width: int, parts: int, step: str, mask: str | None, axis: int = 2
) -> None:
    """Walk the axis for `parts` vectors of columns, neighbours along inner or outer.

    With width 1, a vector is one column.
    """
    kernel, (output, *inputs) = frame.kernel, frame.operands
    start = kernel.start
    assert start.value is not None
    first, type_ = constant(start.value, start.dtype, width), vector(COMPUTE[start.dtype], width)
    states = [writer.slot(type_, first) for _ in range(parts)]
    places = [
        {
            id(o): pointer(writer, o.place, o.dtype, writer.mul(str(part * width), o.strides[axis]))
            for o in frame.operands
        }
        if part
        else {id(o): o.place for o in frame.operands}
        for part in range(parts)
    ]
    with writer.loop("0", frame.axis, strided=True) as a:
        for part, slot in enumerate(states):
            state = writer.get(slot)

            def place(operand: Operand, begins: dict[int, str] = places[part]) -> str:
                return pointer(
                    writer, begins[id(operand)], operand.dtype, writer.mul(a, operand.strides[1])
                )

            def leaf(expr: Expr, state: str = state) -> str:
                if expr.op == "row":
                    return state
                if expr.op == "index":
                    return splat(writer, a, expr.dtype, width)
                operand = inputs[int(expr.value or 0)]
                return load(
                    writer, place(operand), operand.dtype, step, operand.strides[2], width, mask
                )

            (value,) = evaluate(writer, (kernel.body,), width, leaf)
            writer.set(slot, value)
            store(writer, value, place(output), output.dtype, step, output.strides[2], width, mask)
