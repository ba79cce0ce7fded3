"""Convolve as IR: products of weights and windows in registers, the windows made piece by piece.

Of an image: a task is a panel of output pixels and some output channels of one image; its windows are unfolded MOST taps at a
time and multiplied by `tiles`. Of weights: a task is a part of the images and some taps; their windows are unfolded for
some pixels at a time and multiplied with the gradient, transposed. Sums run over taps, or over pixels, ascending.
"""

from __future__ import annotations

from rushlight.core.dtypes import float32
from rushlight.devices.cpu import depthwise, stub, tiles
from rushlight.devices.cpu.native import Source
from rushlight.devices.cpu.unfold import MOST, Sizes, block_at, block_count, call_unfold, read_sizes, write_unfold
from rushlight.devices.protocol import Launch
from rushlight.emit.llvm import module
from rushlight.emit.llvm_body import pointer
from rushlight.emit.llvm_text import FUNCTION, Writer
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve

COLUMNS, DEPTH = tiles.COLUMNS, tiles.DEPTH
CHANNELS = 132  # of a task
TAPS = 192  # of a task for weights
LETTERS = "i" * (3 + 17)


def available() -> bool:
    return tiles.available()


def build(kernel: Convolve, runner: int) -> Launch:
    return stub.callable_of(Source(key_of(kernel), lambda: text(kernel)), LETTERS, "convolve", runner)


def text(kernel: Convolve) -> str:
    """The module's functions, for `stub`; see `emit.llvm` for what they are."""
    declared: set[str] = set()
    counts = Writer(declared)
    if kernel.of in ("depthwise", "depthwise weights"):
        return module(depthwise.functions(kernel, declared), counts, depthwise.write_counts(counts, kernel))
    texts = [*tiles.write_tiles(declared, short=kernel.of == "image"), write_unfold(declared, kernel.step)]
    if kernel.of == "image":
        texts.append(_image(declared))
    else:
        texts += [tiles.write_pack(declared, rows=False), _weights(declared)]
    return module(texts, counts, _counts(counts, kernel))


def _up(writer: Writer, value: str, step: int) -> str:
    return writer.value(f"udiv i64 {writer.add(value, str(step - 1))}, {step}")


def _tap_count(writer: Writer, z: Sizes) -> str:
    return writer.mul(z.c, writer.mul(z.p, z.q))


def _counts(writer: Writer, kernel: Convolve) -> tuple[str, str]:
    _, z = read_sizes(writer)
    pixels, taps = writer.mul(z.rows, z.columns), _tap_count(writer, z)
    if kernel.of == "image":
        blocks = writer.mul(_up(writer, z.m, CHANNELS), writer.divided_up(pixels, COLUMNS))
        tasks = writer.mul(writer.mul(z.n, z.groups), blocks)
    else:
        tasks = writer.mul(writer.mul(z.parts, z.groups), block_count(writer, z, TAPS)[0])
    products = writer.mul(writer.mul(writer.mul(z.n, z.groups), z.m), writer.mul(pixels, taps))
    return tasks, writer.value(f"lshr i64 {products}, 3")


def _divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def _image(declared: set[str]) -> str:
    writer = Writer(declared)
    (out, x, w), z = read_sizes(writer)
    pixels, taps = writer.mul(z.rows, z.columns), _tap_count(writer, z)
    blocks, panels = _up(writer, z.m, CHANNELS), writer.divided_up(pixels, COLUMNS)
    size = writer.mul(z.c, writer.mul(z.height, z.width))
    panel = writer.array("float", MOST * COLUMNS)
    pieces, many, cuts = block_count(writer, z, MOST)
    with writer.loop("%begin", "%end") as task:
        rest, number = _divide(writer, task, panels)
        which, block = _divide(writer, rest, blocks)
        group = writer.value(f"urem i64 {which}, {z.groups}")
        first, channel = writer.mul(number, str(COLUMNS)), writer.mul(block, str(CHANNELS))
        width = writer.smaller(writer.sub(pixels, first), str(COLUMNS))
        last = writer.smaller(z.m, writer.add(channel, str(CHANNELS)))
        image = pointer(writer, x, float32, writer.mul(which, size))
        target = pointer(writer, out, float32, writer.add(writer.mul(writer.mul(which, z.m), pixels), first))
        weights = pointer(writer, w, float32, writer.mul(writer.mul(group, z.m), taps))
        with writer.loop("0", pieces) as piece:
            part = block_at(writer, z, MOST, piece, many, cuts)
            call_unfold(writer, z, image, part, first, width, panel, COLUMNS)
            more = writer.value(f"icmp ne i64 {piece}, 0")
            with tiles.rows(writer, channel, last) as (m, height):
                a = pointer(writer, weights, float32, writer.add(writer.mul(m, taps), part.first))
                c = pointer(writer, target, float32, writer.mul(m, pixels))
                tiles.call_tile(writer, (a, taps, "1"), panel, (c, pixels), (height, width, part.rows), more)
    return writer.function(FUNCTION.format(name="kernel"))


def _weights(declared: set[str]) -> str:
    """out[part, group, tap, m]: the sum over the part's images and their pixels of window times gradient."""
    writer = Writer(declared)
    (out, g, x), z = read_sizes(writer)
    pixels, taps = writer.mul(z.rows, z.columns), _tap_count(writer, z)
    blocks, many, cuts = block_count(writer, z, TAPS)
    size = writer.mul(z.c, writer.mul(z.height, z.width))
    panel = writer.array("float", DEPTH * COLUMNS)
    seen = writer.array("float", DEPTH * TAPS)
    with writer.loop("%begin", "%end") as task:
        rest, block = _divide(writer, task, blocks)
        part, group = _divide(writer, rest, z.groups)
        rows = block_at(writer, z, TAPS, block, many, cuts)
        start = writer.value(f"udiv i64 {writer.mul(part, z.n)}, {z.parts}")
        end = writer.value(f"udiv i64 {writer.mul(writer.add(part, '1'), z.n)}, {z.parts}")
        target = pointer(writer, out, float32, writer.mul(writer.add(writer.mul(rest, taps), rows.first), z.m))
        with writer.loop(start, end) as n, writer.loop("0", pixels, str(DEPTH)) as first:
            depth = writer.smaller(writer.sub(pixels, first), str(DEPTH))
            which = writer.add(writer.mul(n, z.groups), group)
            image = pointer(writer, x, float32, writer.mul(which, size))
            call_unfold(writer, z, image, rows, first, depth, seen, DEPTH)
            begun = [writer.value(f"icmp ne i64 {a}, {b}") for a, b in ((n, start), (first, "0"))]
            more = writer.value(f"or i1 {begun[0]}, {begun[1]}")
            with writer.loop("0", z.m, str(COLUMNS)) as m:
                width = writer.smaller(writer.sub(z.m, m), str(COLUMNS))
                offset = writer.add(writer.mul(writer.add(writer.mul(which, z.m), m), pixels), first)
                source = pointer(writer, g, float32, offset)
                operands = f"ptr {source}, i64 1, i64 {pixels}, i64 {depth}, i64 {width}, ptr {panel}"
                writer.line(f"call void @pack({operands})")
                with tiles.rows(writer, "0", rows.rows) as (row, height):
                    a = pointer(writer, seen, float32, writer.mul(row, str(DEPTH)))
                    c = pointer(writer, target, float32, writer.add(writer.mul(row, z.m), m))
                    tiles.call_tile(writer, (a, str(DEPTH), "1"), panel, (c, z.m), (height, width, depth), more)
    return writer.function(FUNCTION.format(name="kernel"))
