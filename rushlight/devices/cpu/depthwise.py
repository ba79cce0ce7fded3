"""Depthwise convolutions as IR.

Of an image (`build_image`): a task is a channel; ROWS rows of it are computed together, from a
padded copy (`padded`). Of weights (`text`): a task is one channel's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import float32
from rushlight.devices.cpu import padded, stub
from rushlight.devices.cpu.image_rows import FLAGS, FLOATS, LANES, PixelLoad, Sizes, read_sizes
from rushlight.devices.cpu.native import Source
from rushlight.devices.cpu.tiles import first_lanes
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import pointer, splat, store
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.partial import fold_lanes
from rushlight.emit.llvm.text import FUNCTION, Arguments, Slot, Writer
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve

ROWS = 4
LETTERS, IMAGE_LETTERS = "i" * (3 + 17), "i" * (4 + 7)


def text(kernel: Convolve) -> str:
    """The gradient of weights, as functions for `stub`; see `emit.llvm`."""
    declared: set[str] = set()
    writer, counts = Writer(declared), Writer(declared)
    bases, z = read_sizes(writer)
    with writer.loop("%begin", "%end") as task:
        _weights(writer, bases, z, task, kernel.step)
    _, given = read_sizes(counts)
    pixels = counts.mul(counts.mul(given.n, given.groups), counts.mul(given.rows, given.columns))
    numbers = given.groups, counts.mul(pixels, counts.mul(given.p, given.q))
    return module([writer.function(FUNCTION.format(name="kernel"))], counts, numbers)


def scratch_room(numbers: Sequence[int]) -> int:
    """The room of the padded copy that a launch works on."""
    n, groups, _, _, rows, columns, p, q, _, _, si, sj, di, dj = numbers[:14]
    some, size = padded.some(padded.layout((rows, columns), (p, q), (si, sj), (di, dj)), groups)
    return _room(min(n, some), size)


def _room(count: int, size: int) -> int:
    return room_for((count * size + LANES) * 4)


def build_image(kernel: Convolve, runner: int, pool: Callable[[], Pool]) -> Launch:
    native = stub.callable_of(Source(key_of(kernel), image_text), IMAGE_LETTERS, "convolve", runner)
    pad = padded.build(kernel.step, runner)

    def launch(out: int, x: int, w: int, *numbers: int) -> None:
        n, groups, _, _, rows, columns, p, q, height, width, si, sj, di, dj, ti, tj, _ = numbers
        place = padded.layout((rows, columns), (p, q), (si, sj), (di, dj))
        some, size = padded.some(place, groups)
        sides = (
            height,
            width,
            si,
            sj,
            ti,
            tj,
            *place.parts,
            place.lines,
            place.pitch,
            place.channel,
        )
        here = pool()
        copy, room, some = padded.take(here, min(n, some), lambda count: _room(count, size))
        try:
            for first in range(0, n, some):
                count = min(some, n - first) * groups
                pad(copy, x + first * groups * height * width * 4, count, *sides)
                target, steps = (
                    out + first * groups * rows * columns * 4,
                    (place.pitch, place.channel),
                )
                native(target, copy, w, place.table, count, groups, rows, columns, p * q, *steps)
        finally:
            here.give(copy, room)

    return launch


def image_text() -> str:
    declared: set[str] = set()
    writer, counts = Writer(declared), Writer(declared)
    arguments = Arguments(writer)
    out, x, w, table = (arguments.address() for _ in range(4))
    _, groups, rows, columns, taps, pitch, channel = arguments.words(7)
    sums = [writer.slot(FLOATS, "zeroinitializer") for _ in range(ROWS)]
    last = writer.sub(rows, "1")
    with writer.loop("%begin", "%end") as task:
        image = pointer(writer, x, float32, writer.mul(task, channel))
        target = pointer(writer, out, float32, writer.mul(task, writer.mul(rows, columns)))
        group = writer.value(f"urem i64 {task}, {groups}")
        weights = pointer(writer, w, float32, writer.mul(group, taps))
        with writer.loop("0", rows, str(ROWS)) as i, writer.loop("0", columns, str(LANES)) as v:
            # Past the end: repeat the last.
            lines = [writer.smaller(writer.add(i, str(r)), last) for r in range(ROWS)]
            sources = [
                pointer(writer, image, float32, writer.add(writer.mul(line, pitch), v))
                for line in lines
            ]
            for total in sums:
                writer.set(total, "zeroinitializer")
            with writer.loop("0", taps) as tap:
                start = writer.value(
                    f"load i64, ptr {writer.value(f'getelementptr i64, ptr {table}, i64 {tap}')}"
                )
                weight = writer.value(
                    f"load float, ptr {pointer(writer, weights, float32, tap)}, align 4"
                )
                spread = splat(writer, weight, float32, LANES)
                for total, source in zip(sums, sources, strict=True):
                    place = pointer(writer, source, float32, start)
                    _fma(
                        writer, total, spread, writer.value(f"load {FLOATS}, ptr {place}, align 4")
                    )
            mask = first_lanes(writer, writer.sub(columns, v))
            for total, line in zip(sums, lines, strict=True):
                place = pointer(writer, target, float32, writer.add(writer.mul(line, columns), v))
                store(writer, writer.get(total), place, float32, "1", "1", LANES, mask)
    numbers = Arguments(counts)
    numbers.next = 4
    tasks, _, rows, columns, taps, *_ = numbers.words(7)
    work = counts.mul(counts.mul(tasks, counts.mul(rows, columns)), taps)
    return module(
        [writer.function(FUNCTION.format(name="kernel"))],
        counts,
        (tasks, counts.value(f"lshr i64 {work}, 3")),
    )


def _fma(writer: Writer, slot: Slot, a: str, b: str) -> None:
    operands = [(FLOATS, a), (FLOATS, b), (FLOATS, writer.get(slot))]
    writer.set(slot, writer.call(FLOATS, "llvm.fma.v16f32", operands))


def _window_row(writer: Writer, z: Sizes, image: str, i: str, p: str) -> tuple[str, str]:
    """The image row under tap row p of output row i, and its width.

    0 where there is no such row.
    """
    row = writer.sub(writer.add(writer.mul(i, z.si), writer.mul(p, z.di)), z.ti)
    inside = writer.value(f"icmp ult i64 {row}, {z.height}")
    limit = writer.value(f"select i1 {inside}, i64 {z.width}, i64 0")
    return pointer(writer, image, float32, writer.mul(row, z.width)), limit


def _tap(
    writer: Writer, z: Sizes, line: str, limit: str, v: str, q: str, step: int, lanes: str
) -> str:
    """The inputs of output columns v, v + 1, ... under tap column q."""
    column = writer.sub(writer.add(writer.mul(v, z.sj), writer.mul(q, z.dj)), z.tj)
    return PixelLoad(writer, column, limit, step, z.sj, lanes).load(
        pointer(writer, line, float32, column)
    )


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
            # Each image's sums are added separately: long sums stay accurate.
            writer.set(part, "zeroinitializer")
            with writer.loop("0", z.rows) as i:
                line, limit = _window_row(writer, z, image, i, p)
                with writer.loop("0", z.columns, str(LANES)) as v:
                    lanes = first_lanes(writer, writer.sub(z.columns, v))
                    place = pointer(
                        writer, gradient, float32, writer.add(writer.mul(i, z.columns), v)
                    )
                    operands = [
                        ("ptr", place),
                        ("i32", "4"),
                        (FLAGS, lanes),
                        (FLOATS, "zeroinitializer"),
                    ]
                    slope = writer.call(FLOATS, "llvm.masked.load.v16f32.p0", operands)
                    _fma(writer, part, slope, _tap(writer, z, line, limit, v, q, step, lanes))
            sum_ = writer.value(f"fadd {FLOATS} {writer.get(total)}, {writer.get(part)}")
            writer.set(total, sum_)
        place = pointer(writer, target, float32, writer.add(writer.mul(p, z.q), q))
        value = fold_lanes(writer, "sum", float32, [writer.get(total)], LANES)
        writer.line(f"store float {value}, ptr {place}, align 4")
