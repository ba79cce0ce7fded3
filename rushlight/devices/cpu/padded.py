"""Padded images, laid out so that every tap of a window is the same image, shifted.

With stride 1 the window's tap (p, q) at all output pixels is the padded image from (p, q) on. With
strides (si, sj) the copy has a part for each pair of remainders, and a tap is one of the parts,
shifted: there a stride is 1 as well. Output pixels are counted as if a row had `across` of them,
some idle, so that LANES in a row are neighbours in memory: either the copy's rows without a gap, or
rows of whole vectors, whichever has fewer idle pixels. Where those are still many, as in small
images, and products cost more than copies, the copy has a part for each column of the window: its
rows are as long as the output's, so no pixel is idle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from rushlight.core.cache import cached
from rushlight.core.dtypes import float32
from rushlight.devices.cpu import stub, threads
from rushlight.devices.cpu.image_rows import FLAGS, FLOATS, LANES, PixelLoad
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import pointer
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer

LETTERS = "i" * (2 + 12)
# Elements of a copy per thread, or of one image's: the size of the second-level cache.
MOST = 1 << 18


@dataclass(frozen=True)
class Layout:
    """The copy's layout; steps count elements."""

    parts: tuple[int, int]
    lines: int  # rows of a part
    pitch: int  # from row to row
    channel: int  # from channel to channel
    across: int  # output pixels of a row, idle ones included
    vectors: int  # of output pixels of an image
    taps: ctypes.Array[ctypes.c_int64]  # the offset of each tap
    table: int  # the address of `taps`


Pair = tuple[int, int]


def product_layout(pixels: Pair, window: Pair, stride: Pair, spread: Pair) -> Layout:
    """The layout with the fewer vectors, where each is multiplied by many rows of weights."""
    compact = layout(pixels, window, stride, spread)
    fewer = -(-pixels[0] * pixels[1] // LANES)
    if spread[1] == 1 and fewer * 8 <= compact.vectors * 7:
        return layout(pixels, window, stride, spread, True)
    return compact


@cached
def layout(
    pixels: Pair, window: Pair, stride: Pair, spread: Pair, part_per_column: bool = False
) -> Layout:
    """`spread` is the dilation."""
    parts, sizes = [], []
    for count, taps, s, d in zip(pixels, window, stride, spread, strict=True):
        parts.append(min(s, (taps - 1) * d + 1))
        sizes.append(count + (taps - 1) * d // s)
    if part_per_column:
        parts[1], sizes[1] = window[1], pixels[1]
    lines, pitch = sizes
    taps_at = []
    for p in range(window[0]):
        for q in range(window[1]):
            (down, i), (right, j) = (
                divmod(t * d, s) for t, d, s in zip((p, q), spread, stride, strict=True)
            )
            if part_per_column:
                right, j = 0, q
            taps_at.append(((i * parts[1] + j) * lines + down) * pitch + right)
    # A vector may be written past the end; an odd number of cache lines spreads the channels over
    # the cache.
    room = -(-(parts[0] * parts[1] * lines * pitch + LANES - 1) // LANES) | 1
    across = min(pitch, -(-pixels[1] // LANES) * LANES)
    vectors = -(-((pixels[0] - 1) * across + pixels[1]) // LANES)
    table = (ctypes.c_int64 * len(taps_at))(*taps_at)
    return Layout(
        (parts[0], parts[1]),
        lines,
        pitch,
        room * LANES,
        across,
        vectors,
        table,
        ctypes.addressof(table),
    )


def some(place: Layout, channels: int) -> tuple[int, int]:
    """The number of images of so many channels copied at a time, and the elements of each."""
    size = channels * place.channel
    return max(1, threads.count() * MOST // size), size


def take(pool: Pool, count: int, room_of: Callable[[int], int]) -> tuple[int, int, int]:
    """A block for the copies of `count` images: address, room, and how many it has room for.

    At a limit of the pool those are fewer: one per thread, or one, where no more is left. The bits
    do not depend on it.
    """
    limit = pool.limit
    if limit is not None and pool.live + room_of(count) > limit:
        count = min(count, threads.count())
        if room_of(count) > Pool.scratch_left(pool, limit):
            count = 1
    return pool.take(room_of(count)), room_of(count), count


def build(step: int, runner: int) -> Launch:
    """The function that makes the copy.

    launch(copy, x, channels, height, width, si, sj, ti, tj, parts down, parts right, lines, pitch,
    channel).
    """
    return stub.callable_of(Source(f"pad {step}", lambda: text(step)), LETTERS, "pad", runner)


def text(step: int) -> str:
    """A task is a channel of an image."""
    declared: set[str] = set()
    writer, counts = Writer(declared), Writer(declared)
    arguments = Arguments(writer)
    copy, x = arguments.address(), arguments.address()
    _, height, width, si, sj, ti, tj, down, right, lines, pitch, channel = arguments.words(12)
    last = writer.mul(writer.value(f"lshr i64 {writer.sub(pitch, '1')}, 4"), str(LANES))
    with (
        writer.loop("%begin", "%end") as task,
        writer.loop("0", down) as i,
        writer.loop("0", right) as j,
    ):
        image = pointer(writer, x, float32, writer.mul(task, writer.mul(height, width)))
        part = writer.mul(writer.add(writer.mul(i, right), j), writer.mul(lines, pitch))
        target = pointer(writer, copy, float32, writer.add(writer.mul(task, channel), part))
        with writer.loop("0", pitch, str(LANES)) as back:
            # From right to left: a row's last vector writes too far, and the next row overwrites
            # that.
            column = writer.sub(last, back)
            there = writer.sub(writer.add(writer.mul(column, sj), j), tj)
            pixels = PixelLoad(writer, there, width, step, sj, "splat (i1 true)")
            with writer.loop("0", lines) as line:
                row = writer.sub(writer.add(writer.mul(line, si), i), ti)
                inside = writer.value(f"icmp ult i64 {row}, {height}")
                masks = [
                    writer.value(f"select i1 {inside}, {FLAGS} {m}, {FLAGS} zeroinitializer")
                    for m in pixels.masks
                ]
                source = pointer(writer, image, float32, writer.add(writer.mul(row, width), there))
                place = pointer(
                    writer, target, float32, writer.add(writer.mul(line, pitch), column)
                )
                writer.line(f"store {FLOATS} {pixels.load(source, masks)}, ptr {place}, align 4")
    numbers = Arguments(counts)
    numbers.next = 2
    tasks, *_, channel = numbers.words(12)
    work = counts.mul(tasks, channel)
    return module([writer.function(FUNCTION.format(name="kernel"))], counts, (tasks, work))
