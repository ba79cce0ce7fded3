"""Convolutions in which every channel has its own window, as IR: a task is one channel of one image, or one channel's weights."""

from __future__ import annotations

from rushlight.core.dtypes import float32
from rushlight.devices.cpu.seen import FLAGS, FLOATS, LANES, Seen, Sizes, read_sizes
from rushlight.devices.cpu.tiles import first_lanes
from rushlight.emit.llvm import module
from rushlight.emit.llvm_body import pointer, splat
from rushlight.emit.llvm_rows import fold_lanes
from rushlight.emit.llvm_text import FUNCTION, Slot, Writer
from rushlight.kernel.shapes import Convolve

LETTERS = "i" * (3 + 17)


def write_counts(writer: Writer, kernel: Convolve) -> tuple[str, str]:
    _, z = read_sizes(writer)
    channels = writer.mul(z.n, z.groups)
    work = writer.mul(writer.mul(channels, writer.mul(z.rows, z.columns)), writer.mul(z.p, z.q))
    return z.groups if kernel.of == "depthwise weights" else channels, work


def text(kernel: Convolve) -> str:
    """The module's functions, for `stub`; see `emit.llvm` for what they are."""
    declared: set[str] = set()
    writer, counts = Writer(declared), Writer(declared)
    bases, z = read_sizes(writer)
    write = _weights if kernel.of == "depthwise weights" else _image
    with writer.loop("%begin", "%end") as task:
        write(writer, bases, z, task, kernel.step)
    return module([writer.function(FUNCTION.format(name="kernel"))], counts, write_counts(counts, kernel))


def _fma(writer: Writer, slot: Slot, a: str, b: str) -> None:
    operands = [(FLOATS, a), (FLOATS, b), (FLOATS, writer.get(slot))]
    writer.set(slot, writer.call(FLOATS, "llvm.fma.v16f32", operands))


def _window_row(writer: Writer, z: Sizes, image: str, i: str, p: str) -> tuple[str, str]:
    """The image's row under tap row p of output row i, and its width, 0 where there is no such row."""
    row = writer.sub(writer.add(writer.mul(i, z.si), writer.mul(p, z.di)), z.ti)
    inside = writer.value(f"icmp ult i64 {row}, {z.height}")
    limit = writer.value(f"select i1 {inside}, i64 {z.width}, i64 0")
    return pointer(writer, image, float32, writer.mul(row, z.width)), limit


def _seen(writer: Writer, z: Sizes, line: str, limit: str, v: str, q: str, step: int, lanes: str) -> str:
    """What output columns v, v + 1, ... see under tap column q."""
    column = writer.sub(writer.add(writer.mul(v, z.sj), writer.mul(q, z.dj)), z.tj)
    return Seen(writer, column, limit, step, z.sj, lanes).load(pointer(writer, line, float32, column))


def _image(writer: Writer, bases: list[str], z: Sizes, task: str, step: int) -> None:
    out, x, w = bases
    image = pointer(writer, x, float32, writer.mul(task, writer.mul(z.height, z.width)))
    target = pointer(writer, out, float32, writer.mul(task, writer.mul(z.rows, z.columns)))
    group = writer.value(f"urem i64 {task}, {z.groups}")
    weights = pointer(writer, w, float32, writer.mul(group, writer.mul(z.p, z.q)))
    total = writer.slot(FLOATS, "zeroinitializer")
    with writer.loop("0", z.rows) as i, writer.loop("0", z.columns, str(LANES)) as v:
        lanes = first_lanes(writer, writer.sub(z.columns, v))
        writer.set(total, "zeroinitializer")
        with writer.loop("0", z.p) as p:
            line, limit = _window_row(writer, z, image, i, p)
            with writer.loop("0", z.q) as q:
                place = pointer(writer, weights, float32, writer.add(writer.mul(p, z.q), q))
                weight = writer.value(f"load float, ptr {place}, align 4")
                value = _seen(writer, z, line, limit, v, q, step, lanes)
                _fma(writer, total, splat(writer, weight, float32, LANES), value)
        place = pointer(writer, target, float32, writer.add(writer.mul(i, z.columns), v))
        operands = [(FLOATS, writer.get(total)), ("ptr", place), ("i32", "4"), (FLAGS, lanes)]
        writer.call("void", "llvm.masked.store.v16f32.p0", operands)


def _weights(writer: Writer, bases: list[str], z: Sizes, task: str, step: int) -> None:
    out, g, x = bases
    pixels, area = writer.mul(z.rows, z.columns), writer.mul(z.height, z.width)
    target = pointer(writer, out, float32, writer.mul(task, writer.mul(z.p, z.q)))
    total, part = (writer.slot(FLOATS, "zeroinitializer") for _ in range(2))
    with writer.loop("0", z.p) as p, writer.loop("0", z.q) as q:
        writer.set(total, "zeroinitializer")
        with writer.loop("0", z.n) as n:
            which = writer.add(writer.mul(n, z.groups), task)
            image = pointer(writer, x, float32, writer.mul(which, area))
            gradient = pointer(writer, g, float32, writer.mul(which, pixels))
            writer.set(part, "zeroinitializer")  # sums of images are added up: long sums stay accurate
            with writer.loop("0", z.rows) as i:
                line, limit = _window_row(writer, z, image, i, p)
                with writer.loop("0", z.columns, str(LANES)) as v:
                    lanes = first_lanes(writer, writer.sub(z.columns, v))
                    place = pointer(writer, gradient, float32, writer.add(writer.mul(i, z.columns), v))
                    operands = [("ptr", place), ("i32", "4"), (FLAGS, lanes), (FLOATS, "zeroinitializer")]
                    slope = writer.call(FLOATS, "llvm.masked.load.v16f32.p0", operands)
                    _fma(writer, part, slope, _seen(writer, z, line, limit, v, q, step, lanes))
            sum_ = writer.value(f"fadd {FLOATS} {writer.get(total)}, {writer.get(part)}")
            writer.set(total, sum_)
        place = pointer(writer, target, float32, writer.add(writer.mul(p, z.q), q))
        value = fold_lanes(writer, "sum", float32, [writer.get(total)], LANES)
        writer.line(f"store float {value}, ptr {place}, align 4")
