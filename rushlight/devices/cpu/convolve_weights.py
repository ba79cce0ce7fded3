"""Gradients of convolution weights as IR: products in registers, of padded images and gradients.

A task is a part of the images and some taps of some channels. A piece of the gradient is transposed
into the first-level cache; then `tiles` multiply, reading the image (`padded`) through tables of
the offset of each tap and of each pixel. Sums run over images and pixels, ascending.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from rushlight.core.dtypes import float32
from rushlight.devices.cpu import padded, stub, tiles
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import pointer
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve

COLUMNS, DEPTH = tiles.COLUMNS, tiles.DEPTH
TAPS = 192  # per task
MOST = 1 << 24  # elements of a padded copy, or of one part's
NUMBERS = 10
LETTERS = "i" * (4 + NUMBERS)


def _cuts(n: int, parts: int, each: int) -> list[int]:
    """The images at which `each` parts begin."""
    return [s * n // parts for s in range(0, parts + 1, each)]


def _room(cuts: Sequence[int], image: int) -> int:
    return room_for(max(end - start for start, end in itertools.pairwise(cuts)) * image * 4)


def _at_once(n: int, image: int, parts: int) -> int:
    """All parts, for threads, where the copy is not too large; else one."""
    return parts if n * image <= MOST else 1


def scratch_room(numbers: Sequence[int]) -> int:
    """The room of the padded copy that a launch works on."""
    n, groups, _, c, rows, columns, p, q, _, _, si, sj, di, dj, _, _, parts = numbers
    image = groups * c * padded.layout((rows, columns), (p, q), (si, sj), (di, dj)).channel
    return _room(_cuts(n, parts, _at_once(n, image, parts)), image)


def build(kernel: Convolve, runner: int, pool: Callable[[], Pool]) -> Launch:
    native = stub.callable_of(Source(key_of(kernel), text), LETTERS, "convolve", runner)
    pad = padded.build(kernel.step, runner)

    def launch(out: int, g: int, x: int, *numbers: int) -> None:
        n, groups, m, c, rows, columns, p, q, height, width, si, sj, di, dj, ti, tj, parts = numbers
        place = padded.layout((rows, columns), (p, q), (si, sj), (di, dj))
        image = groups * c * place.channel
        here, each = pool(), _at_once(n, image, parts)
        limit, room = here.limit, _room(_cuts(n, parts, each), image)
        if limit is not None and here.live + room > limit:
            each = 1  # the bits do not depend on it
        cuts = _cuts(n, parts, each)
        room = _room(cuts, image)
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
        sizes = (groups, m, c, rows, columns, p * q, place.pitch, place.channel, each)
        copy = here.take(room)
        try:
            for s, (start, end) in enumerate(itertools.pairwise(cuts)):
                pad(
                    copy,
                    x + start * groups * c * height * width * 4,
                    (end - start) * groups * c,
                    *sides,
                )
                gradient = g + start * groups * m * rows * columns * 4
                native(
                    out + s * groups * c * p * q * m * 4,
                    gradient,
                    copy,
                    place.table,
                    end - start,
                    *sizes,
                )
        finally:
            here.give(copy, room)

    return launch


def text() -> str:
    declared: set[str] = set()
    counts = Writer(declared)
    functions = [
        tiles.write_tile(declared, tables=True),
        tiles.write_pack(declared, rows=False),
        _write_kernel(declared),
    ]
    return module(functions, counts, _counts(counts))


def _counts(writer: Writer) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = 4
    n, groups, m, c, rows, columns, taps, *_, parts = arguments.words(NUMBERS)
    every = writer.mul(c, taps)
    tasks = writer.mul(writer.mul(parts, groups), _blocks(writer, every))
    products = writer.mul(
        writer.mul(writer.mul(n, groups), m), writer.mul(writer.mul(rows, columns), every)
    )
    return tasks, writer.value(f"lshr i64 {products}, 3")


def _blocks(writer: Writer, rows: str) -> str:
    return writer.value(f"udiv i64 {writer.add(rows, str(TAPS - 1))}, {TAPS}")


def _divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def _set(writer: Writer, table: str, number: str, value: str) -> None:
    writer.line(
        f"store i64 {value}, ptr {writer.value(f'getelementptr i64, ptr {table}, i64 {number}')}"
    )


def _find_taps(
    writer: Writer, starts: str, table: str, span: tuple[str, str], taps: str, channel: str
) -> None:
    """The start of each of the task's rows; a row is a tap of a channel."""
    first, count = span
    with writer.loop("0", count) as i:
        which, tap = _divide(writer, writer.add(first, i), taps)
        begin = writer.value(
            f"load i64, ptr {writer.value(f'getelementptr i64, ptr {table}, i64 {tap}')}"
        )
        _set(writer, starts, i, writer.add(writer.mul(which, channel), begin))


def _find_pixels(
    writer: Writer, places: str, first: str, count: str, columns: str, pitch: str
) -> None:
    """The offset of each pixel; rows are `pitch` apart."""
    row, at = _divide(writer, first, columns)
    column, begin = writer.slot("i64", at), writer.slot("i64", writer.mul(row, pitch))
    with writer.loop("0", count) as i:
        here = writer.get(column)
        _set(writer, places, i, writer.add(writer.get(begin), here))
        following = writer.add(here, "1")
        full = writer.value(f"icmp eq i64 {following}, {columns}")
        writer.set(column, writer.value(f"select i1 {full}, i64 0, i64 {following}"))
        writer.set(
            begin,
            writer.add(writer.get(begin), writer.value(f"select i1 {full}, i64 {pitch}, i64 0")),
        )


def _write_kernel(declared: set[str]) -> str:
    """out[part, group, tap, m] = sum over the part's images and pixels of window times gradient."""
    writer = Writer(declared)
    arguments = Arguments(writer)
    out, g, x, table = (arguments.address() for _ in range(4))
    n, groups, m, c, rows, columns, taps, pitch, channel, parts = arguments.words(NUMBERS)
    pixels, every = writer.mul(rows, columns), writer.mul(c, taps)
    blocks = _blocks(writer, every)
    panel = writer.array("float", DEPTH * COLUMNS)
    starts, places = writer.array("i64", TAPS), writer.array("i64", DEPTH)
    with writer.loop("%begin", "%end") as task:
        rest, block = _divide(writer, task, blocks)
        part, group = _divide(writer, rest, groups)
        top = writer.mul(block, str(TAPS))
        count = writer.smaller(writer.sub(every, top), str(TAPS))
        _find_taps(writer, starts, table, (top, count), taps, channel)
        start = writer.value(f"udiv i64 {writer.mul(part, n)}, {parts}")
        end = writer.value(f"udiv i64 {writer.mul(writer.add(part, '1'), n)}, {parts}")
        target = pointer(
            writer, out, float32, writer.mul(writer.add(writer.mul(rest, every), top), m)
        )
        with writer.loop(start, end) as i, writer.loop("0", pixels, str(DEPTH)) as first:
            depth = writer.smaller(writer.sub(pixels, first), str(DEPTH))
            which = writer.add(writer.mul(i, groups), group)
            image = pointer(writer, x, float32, writer.mul(which, writer.mul(c, channel)))
            _find_pixels(writer, places, first, depth, columns, pitch)
            begun = [writer.value(f"icmp ne i64 {a}, {b}") for a, b in ((i, start), (first, "0"))]
            more = writer.value(f"or i1 {begun[0]}, {begun[1]}")
            with writer.loop("0", m, str(COLUMNS)) as left:
                width = writer.smaller(writer.sub(m, left), str(COLUMNS))
                offset = writer.add(
                    writer.mul(writer.add(writer.mul(which, m), left), pixels), first
                )
                source = pointer(writer, g, float32, offset)
                operands = (
                    f"ptr {source}, i64 1, i64 {pixels}, i64 {depth}, i64 {width}, ptr {panel}"
                )
                writer.line(f"call void @pack({operands})")
                with tiles.rows(writer, "0", count) as (row, height):
                    begins = writer.value(f"getelementptr i64, ptr {starts}, i64 {row}")
                    a = (image, f"ptr {begins}", f"ptr {places}")
                    to = pointer(writer, target, float32, writer.add(writer.mul(row, m), left))
                    tiles.call_tile(writer, a, panel, (to, m), (height, width, depth), more)
    return writer.function(FUNCTION.format(name="kernel"))
