"""Weights of a transposed convolution as IR: a window's taps reversed, channels in and out swapped.

A table has the offsets that a channel's elements are read from; they are the same for all channels.
A task is some channels: for each vector of the table all of them are read, so that of weights that
lie apart by whole pages whole cache lines are used.
"""

from __future__ import annotations

import ctypes

from rushlight.core.cache import cached
from rushlight.core.dtypes import float32
from rushlight.devices.cpu import stub
from rushlight.devices.cpu.image_rows import FLAGS, FLOATS, LANES, ZEROS
from rushlight.devices.cpu.native import Source
from rushlight.devices.cpu.tiles import first_lanes
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import pointer, store
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer, vector
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve

CHANNELS = 16  # of a task
OFFSETS = vector("i64", LANES)
LETTERS = "i" * (3 + 5)
Pair = tuple[int, int]


@cached
def _offsets(
    outs: int, apart: int, taps: Pair, window: Pair, step: Pair, first: Pair
) -> ctypes.Array[ctypes.c_int64]:
    """Of each element of a channel, outs by taps; weights of two outs lie `apart`."""
    inside = []
    for p, q in ((p, q) for p in range(taps[0]) for q in range(taps[1])):
        row, column = (
            f + s * (t - 1 - i) for f, s, t, i in zip(first, step, taps, (p, q), strict=True)
        )
        inside.append(row * window[1] + column)
    every = [m * apart + offset for m in range(outs) for offset in inside]
    return (ctypes.c_int64 * len(every))(*every)


def build(kernel: Convolve, runner: int) -> Launch:
    native = stub.callable_of(Source(key_of(kernel), text), LETTERS, "turn", runner)

    def launch(out: int, w: int, *numbers: int) -> None:
        _, groups, m, c, rows, columns, p, q, _, _, si, sj, _, _, ti, tj, _ = numbers
        size = p * q
        table = _offsets(m, c * size, (rows, columns), (p, q), (si, sj), (ti, tj))
        native(out, w, ctypes.addressof(table), groups, c, m * rows * columns, size, m * c * size)

    return launch


def text() -> str:
    declared: set[str] = set()
    writer, counts = Writer(declared), Writer(declared)
    arguments = Arguments(writer)
    out, w, table = (arguments.address() for _ in range(3))
    _, channels, length, size, group_size = arguments.words(5)
    blocks = _blocks(writer, channels)
    with writer.loop("%begin", "%end") as task:
        group = writer.value(f"udiv i64 {task}, {blocks}")
        first = writer.mul(writer.value(f"urem i64 {task}, {blocks}"), str(CHANNELS))
        end = writer.smaller(writer.add(first, str(CHANNELS)), channels)
        source = pointer(writer, w, float32, writer.mul(group, group_size))
        target = pointer(writer, out, float32, writer.mul(group, writer.mul(channels, length)))
        with writer.loop("0", length, str(LANES)) as i:
            lanes = first_lanes(writer, writer.sub(length, i))
            place = writer.value(f"getelementptr i64, ptr {table}, i64 {i}")
            known = [("ptr", place), ("i32", "8"), (FLAGS, lanes), (OFFSETS, ZEROS)]
            offsets = writer.call(OFFSETS, "llvm.masked.load.v16i64.p0", known)
            with writer.loop(first, end) as channel:
                near = pointer(writer, source, float32, writer.mul(channel, size))
                value = _gathered(writer, near, offsets, lanes)
                at = writer.add(writer.mul(channel, length), i)
                store(
                    writer,
                    value,
                    pointer(writer, target, float32, at),
                    float32,
                    "1",
                    "1",
                    LANES,
                    lanes,
                )
    return module([writer.function(FUNCTION.format(name="kernel"))], counts, _counts(counts))


def _gathered(writer: Writer, near: str, offsets: str, lanes: str) -> str:
    places = writer.value(f"getelementptr float, ptr {near}, {OFFSETS} {offsets}")
    operands = [(f"<{LANES} x ptr>", places), ("i32", "4"), (FLAGS, lanes), (FLOATS, ZEROS)]
    return writer.call(FLOATS, "llvm.masked.gather.v16f32.v16p0", operands)


def _blocks(writer: Writer, channels: str) -> str:
    return writer.value(f"udiv i64 {writer.add(channels, str(CHANNELS - 1))}, {CHANNELS}")


def _counts(writer: Writer) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = 3
    groups, channels, length, *_ = arguments.words(5)
    tasks = writer.mul(groups, _blocks(writer, channels))
    return tasks, writer.mul(writer.mul(groups, channels), length)
