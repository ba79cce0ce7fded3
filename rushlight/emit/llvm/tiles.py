"""Map kernels over transposed inputs: square tiles, transposed in registers.

An input that does not move by 1 along the last dimension often does along the one before. Walking
it row by row then touches a new cache line for each element. Here `width` rows are done together:
the input is read along its own unit stride, a tile of width x width elements is transposed, and the
rows are finished from there. A task is one such band.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType, int64
from rushlight.emit.llvm.body import (
    checked_load,
    fenced,
    first_lanes,
    invariants,
    lane_numbers,
    load,
    pointer,
    splat,
    store,
)
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.frame import Frame, Operand, lanes
from rushlight.emit.llvm.long import call_body, is_long, leaves_of
from rushlight.emit.llvm.text import STORED, Writer, vector
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import Expr


def tileable(kernel: Map) -> bool:
    """Whether tiles may pay, by the kernel alone; `fits` checks the launch."""
    count = len(kernel.outputs)
    turned = kernel.steps[count:].count("n")
    if "e" in kernel.steps:
        return False
    return (
        kernel.rank >= 2 and 1 <= turned <= 2 and all(step == "1" for step in kernel.steps[:count])
    )


def fits(writer: Writer, frame: Frame) -> str:
    """i1: inputs without a unit step along the last dimension have one along the one before.

    And a tile fits.
    """
    width = lanes(frame.kernel)[0]
    good = "true"
    for operand in frame.inputs:
        if operand.step == "n":
            unit = writer.value(f"icmp eq i64 {operand.strides[-2]}, 1")
            good = writer.value(f"and i1 {good}, {unit}")
    for size in frame.sizes[-2:]:
        good = writer.value(f"and i1 {good}, {writer.value(f'icmp sge i64 {size}, {width}')}")
    return good


def task_count(writer: Writer, frame: Frame) -> str:
    tasks = writer.divided_up(frame.sizes[-2], lanes(frame.kernel)[0])
    for size in frame.sizes[:-2]:
        tasks = writer.mul(tasks, size)
    return tasks


def write_tiles(writer: Writer, frame: Frame) -> None:
    width = lanes(frame.kernel)[0]
    rows, columns = frame.sizes[-2:]
    bands = writer.divided_up(rows, width)
    with writer.loop("%begin", "%end") as task:
        first = writer.mul(writer.value(f"srem i64 {task}, {bands}"), str(width))
        outer = writer.value(f"sdiv i64 {task}, {bands}")
        height = writer.smaller(writer.sub(rows, first), str(width))
        places = _band_places(writer, frame, outer, first)
        index = writer.mul(writer.add(writer.mul(outer, rows), first), columns)
        band = Band(writer, frame, places, index)
        with writer.loop("0", columns, str(width)) as j:
            across = writer.smaller(writer.sub(columns, j), str(width))
            for k, operand in enumerate(frame.inputs):
                if operand.step == "n":
                    band.turn(k, operand, j, height, across)
            mask = first_lanes(writer, across, width)
            with writer.loop("0", height) as i:
                band.write(i, j, mask)


def _band_places(writer: Writer, frame: Frame, outer: str, first: str) -> list[str]:
    """The start of each operand's band."""
    positions = [first]
    rest = outer
    for size in reversed(frame.sizes[:-2]):
        positions.insert(0, writer.value(f"srem i64 {rest}, {size}"))
        rest = writer.value(f"sdiv i64 {rest}, {size}")
    places = []
    for operand in frame.operands:
        offset = "0"
        for position, stride in zip(positions, operand.strides[:-1], strict=True):
            offset = writer.add(offset, writer.mul(position, stride))
        places.append(pointer(writer, operand.base, operand.dtype, offset))
    return places


class Band:
    """Up to `width` rows of the output."""

    def __init__(self, writer: Writer, frame: Frame, places: list[str], index: str) -> None:
        self.writer, self.frame, self.places, self.index = writer, frame, places, index
        self.width = lanes(frame.kernel)[0]
        self.tiles = {
            k: writer.array(STORED[o.dtype], self.width**2)
            for k, o in enumerate(frame.inputs)
            if o.step == "n"
        }
        self.leaves = leaves_of(frame.kernel) if is_long(frame.kernel) else None
        if self.leaves is not None:
            still = tuple(e for e in self.leaves if e.op == "param")
        else:
            still = invariants(frame.kernel.body, lambda e: e.op != "param")
        values = evaluate(writer, still, 1, lambda e: frame.params[int(e.value or 0)])
        self.known = {
            e: splat(writer, v, e.dtype, self.width) for e, v in zip(still, values, strict=True)
        }

    def turn(self, k: int, operand: Operand, j: str, height: str, across: str) -> None:
        """Columns j.. of input k into its tile, as rows."""
        writer, width = self.writer, self.width
        origin = self.places[len(self.frame.outputs) + k]
        origin = pointer(writer, origin, operand.dtype, writer.mul(j, operand.inner))
        tall = writer.value(f"icmp eq i64 {height}, {width}")
        full = writer.value(f"and i1 {tall}, {writer.value(f'icmp eq i64 {across}, {width}')}")
        with writer.when(full):
            turn_square(writer, operand, origin, self.tiles[k], width, again=len(self.tiles) > 1)
        with writer.when(writer.value(f"xor i1 {full}, true")):
            raw, align = STORED[operand.dtype], operand.dtype.itemsize
            with writer.loop("0", across) as c, writer.loop("0", height) as r:
                offset = writer.add(r, writer.mul(c, operand.inner))
                value = writer.value(
                    f"load {raw}, ptr {pointer(writer, origin, operand.dtype, offset)}, align "
                    f"{align}"
                )
                target = pointer(
                    writer, self.tiles[k], operand.dtype, writer.add(writer.mul(r, str(width)), c)
                )
                writer.line(f"store {raw} {value}, ptr {target}, align {align}")

    def write(self, i: str, j: str, mask: str) -> None:
        """The body for row i of the band, columns j.."""
        writer, frame, width = self.writer, self.frame, self.width
        count = len(frame.outputs)

        def place(number: int, operand: Operand) -> str:
            offset = writer.mul(i, operand.strides[-2])
            if operand.step == "1":
                offset = writer.add(offset, j)
            return pointer(writer, self.places[number], operand.dtype, offset)

        def leaf(expr: Expr) -> str:
            if expr.op == "arg":
                k = int(expr.value or 0)
                operand = frame.inputs[k]
                if operand.step == "n":
                    here = pointer(writer, self.tiles[k], operand.dtype, writer.mul(i, str(width)))
                    found = load(writer, here, operand.dtype, "1", "1", width, None)
                else:
                    found = load(
                        writer,
                        place(count + k, operand),
                        operand.dtype,
                        operand.step,
                        "1",
                        width,
                        mask,
                    )
                return checked_load(writer, k, expr, found, width, mask)
            assert expr.op == "index", f"{expr.op} in a map"
            position = writer.add(writer.add(self.index, writer.mul(i, frame.sizes[-1])), j)
            first = splat(writer, position, int64, width)
            return writer.value(f"add {vector('i64', width)} {first}, {lane_numbers(width)}")

        if self.leaves is not None:
            values = [self.known.get(e) or leaf(e) for e in self.leaves]
            results = call_body(writer, frame.kernel, self.leaves, values)
        else:
            results = evaluate(writer, frame.kernel.body, width, leaf, self.known)
        for k, (operand, result) in enumerate(zip(frame.outputs, results, strict=True)):
            store(writer, result, place(k, operand), operand.dtype, "1", "1", width, mask)


def turn_square(
    writer: Writer, operand: Operand, origin: str, tile: str, width: int, *, again: bool
) -> None:
    """A whole tile; `again` if there are others, so that it becomes a function."""
    if not again:
        _write_turn(writer, operand.dtype, origin, operand.inner, tile, width)
        return
    own, name = Writer(writer.declared), f"turn.{operand.dtype.name}"
    _write_turn(own, operand.dtype, "%origin", "%step", "%tile", width)
    writer.declared.add(own.function(TURN.format(name=name)))
    writer.line(f"call void @{name}(ptr {origin}, i64 {operand.inner}, ptr {tile})")


TURN = (
    "define internal void @{name}(ptr %origin, i64 %step, ptr %tile) noinline "
    '"prefer-vector-width"="512"'
)


def _write_turn(
    writer: Writer, dtype: DType, origin: str, step: str, tile: str, width: int
) -> None:
    """Load `width` vectors, transpose by exchanging ever smaller blocks, store."""
    type_, align = vector(STORED[dtype], width), dtype.itemsize
    lines = []
    for c in range(width):
        place = pointer(writer, origin, dtype, writer.mul(step, str(c)))
        lines.append(writer.value(f"load {type_}, ptr {place}, align {align}"))
    half = width // 2
    while half:
        for i in (i for i in range(width) if not i & half):
            pair = f"{type_} {lines[i]}, {type_} {lines[i + half]}"
            low = [x if not x & half else width + x - half for x in range(width)]
            high = [x + half if not x & half else width + x for x in range(width)]
            lines[i], lines[i + half] = (
                writer.value(
                    f"shufflevector {pair}, <{width} x i32> "
                    f"<{', '.join(f'i32 {x}' for x in picks)}>"
                )
                for picks in (low, high)
            )
        half //= 2
        if half:
            lines = [fenced(writer, line, STORED[dtype], width) for line in lines]
    for r, line in enumerate(lines):
        place = pointer(writer, tile, dtype, str(r * width))
        writer.line(f"store {type_} {line}, ptr {place}, align {align}")
