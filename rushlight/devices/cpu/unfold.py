"""Windows of an image as rows of numbers, in LLVM IR: what the convolution kernels copy before they multiply.

A row belongs to one tap of the window, (channel, p, q), and has an element per output pixel; outside the image it is 0.
See `kernel.shapes.Convolve` for the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import float32
from rushlight.devices.cpu.tiles import first_lanes
from rushlight.emit.llvm_body import pointer, store
from rushlight.emit.llvm_text import Arguments, Writer, vector

LANES = 16
MOST = 256  # taps that are unfolded at once
FLOATS, WORDS, FLAGS = vector("float", LANES), vector("i32", LANES), vector("i1", LANES)
ZEROS = "zeroinitializer"
NUMBERS = "<" + ", ".join(f"i32 {i}" for i in range(LANES)) + ">"


@dataclass
class Sizes:
    """A Convolve kernel's sizes, by name."""

    n: str
    groups: str
    m: str
    c: str
    rows: str
    columns: str
    p: str
    q: str
    height: str
    width: str
    si: str
    sj: str
    di: str
    dj: str
    ti: str
    tj: str
    parts: str


def read_sizes(writer: Writer) -> tuple[list[str], Sizes]:
    """The three addresses and the sizes."""
    arguments = Arguments(writer)
    bases = [arguments.address() for _ in range(3)]
    return bases, Sizes(*arguments.words(17))


UNFOLD = (
    "define internal void @unfold(ptr readonly %args, ptr readonly %x, i64 %channels, i64 %tap, i64 %taps, i64 %first, "
    'i64 %count, ptr %panel, i64 %pitch) noinline "prefer-vector-width"="512"'
)


@dataclass
class Block:
    """Rows of unfolded windows: some channels, of each the same taps. A row's number is channel * taps + tap."""

    channel: str
    channels: str
    tap: str
    taps: str
    rows: str  # channels * taps
    first: str  # the first row's number among all channels and taps


def block_count(writer: Writer, z: Sizes, most: int) -> tuple[str, str, str]:
    """How many blocks of at most `most` rows there are, how many channels one has, and into how many a channel is cut."""
    window = writer.mul(z.p, z.q)
    channels = writer.value(f"udiv i64 {most}, {window}")
    channels = writer.call("i64", "llvm.umax.i64", [("i64", channels), ("i64", "1")])
    cuts = writer.value(f"udiv i64 {writer.add(window, str(most - 1))}, {most}")
    groups = writer.value(f"udiv i64 {writer.add(z.c, writer.sub(channels, '1'))}, {channels}")
    return writer.mul(groups, cuts), channels, cuts


def block_at(writer: Writer, z: Sizes, most: int, number: str, channels: str, cuts: str) -> Block:
    window = writer.mul(z.p, z.q)
    group, cut = (writer.value(f"{op} i64 {number}, {cuts}") for op in ("udiv", "urem"))
    channel, tap = writer.mul(group, channels), writer.mul(cut, str(most))
    channels = writer.smaller(channels, writer.sub(z.c, channel))
    taps = writer.smaller(str(most), writer.sub(window, tap))
    first = writer.add(writer.mul(channel, window), tap)
    return Block(channel, channels, tap, taps, writer.mul(channels, taps), first)


def call_unfold(writer: Writer, z: Sizes, x: str, block: Block, first: str, count: str, panel: str, pitch: int) -> None:
    """Unfold a block of the image at x for `count` pixels from `first` on."""
    image = pointer(writer, x, float32, writer.mul(block.channel, writer.mul(z.height, z.width)))
    operands = f"ptr %args, ptr {image}, i64 {block.channels}, i64 {block.tap}, i64 {block.taps}, i64 {first}"
    writer.line(f"call void @unfold({operands}, i64 {count}, ptr {panel}, i64 {pitch})")


def write_unfold(declared: set[str], step: int) -> str:
    """%count pixels from %first on, of %channels channels and %taps taps, to rows of the panel that lie %pitch apart."""
    writer = Writer(declared)
    _, z = read_sizes(writer)
    done, span = writer.slot("i64", "0"), writer.slot("i64", "0")
    # A step is the pixels of one row of the output.
    head, body, after = (writer.fresh(stem) for stem in ("head", "body", "done"))
    writer.line(f"br label %{head}")
    writer.label(head)
    at = writer.get(done)
    writer.line(f"br i1 {writer.value(f'icmp slt i64 {at}, %count')}, label %{body}, label %{after}")
    writer.label(body)
    pixel = writer.add("%first", at)
    i, j = (writer.value(f"{op} i64 {pixel}, {z.columns}") for op in ("udiv", "urem"))
    writer.set(span, writer.smaller(writer.sub("%count", at), writer.sub(z.columns, j)))
    with writer.loop("0", writer.get(span), str(LANES)) as v:
        lanes = first_lanes(writer, writer.sub(writer.get(span), v))
        target = pointer(writer, "%panel", float32, writer.add(at, v))
        # A whole vector may be stored where it stays in its row: what it writes too much is overwritten or never read.
        fits = writer.value(f"icmp sle i64 {writer.add(writer.add(at, v), str(LANES))}, %pitch")
        for condition, mask in ((fits, None), (writer.value(f"xor i1 {fits}, true"), lanes)):
            with writer.when(condition):
                _write_taps(writer, z, (i, writer.add(j, v)), target, (lanes, mask), step)
    writer.set(done, writer.add(at, writer.get(span)))
    writer.line(f"br label %{head}")
    writer.label(after)
    return writer.function(UNFOLD)


def _write_taps(
    writer: Writer, z: Sizes, pixel: tuple[str, str], target: str, masks: tuple[str, str | None], step: int
) -> None:
    """A vector of pixels, from `pixel` on, of every tap and channel; `masks` are those of loads and stores."""
    masks_of, store_mask = masks
    offsets, kept = writer.array("i64", MOST), [writer.array("i16", MOST) for _ in range(2)]
    down, right = (writer.slot("i64", writer.value(f"{op} i64 %tap, {z.q}")) for op in ("udiv", "urem"))
    top = writer.sub(writer.mul(pixel[0], z.si), z.ti)
    left = writer.sub(writer.mul(pixel[1], z.sj), z.tj)
    with writer.loop("0", "%taps") as tap:
        p, q = writer.get(down), writer.get(right)
        row = writer.add(top, writer.mul(p, z.di))
        column = writer.add(left, writer.mul(q, z.dj))
        inside = writer.value(f"icmp ult i64 {row}, {z.height}")
        limit = writer.value(f"select i1 {inside}, i64 {z.width}, i64 0")
        seen = Seen(writer, column, limit, step, z.sj, masks_of)
        for room, mask in zip(kept, seen.masks, strict=False):
            bits = writer.value(f"bitcast {FLAGS} {mask} to i16")
            writer.line(f"store i16 {bits}, ptr {writer.value(f'getelementptr i16, ptr {room}, i64 {tap}')}")
        place = writer.value(f"getelementptr i64, ptr {offsets}, i64 {tap}")
        writer.line(f"store i64 {writer.add(writer.mul(row, z.width), column)}, ptr {place}")
        following = writer.add(q, "1")
        full = writer.value(f"icmp eq i64 {following}, {z.q}")
        writer.set(right, writer.value(f"select i1 {full}, i64 0, i64 {following}"))
        writer.set(down, writer.add(p, writer.value(f"zext i1 {full} to i64")))
    area, far = writer.mul(z.height, z.width), writer.mul("%taps", "%pitch")
    with writer.loop("0", "%channels") as c:
        # A channel's taps one after another: they read the same few lines.
        image = pointer(writer, "%x", float32, writer.mul(c, area))
        place = pointer(writer, target, float32, writer.mul(c, far))
        with writer.loop("0", "%taps") as tap:
            found = writer.value(f"getelementptr i64, ptr {offsets}, i64 {tap}")
            line = pointer(writer, image, float32, writer.value(f"load i64, ptr {found}"))
            again = []
            for room in kept[: len(seen.masks)]:
                found = writer.value(f"getelementptr i16, ptr {room}, i64 {tap}")
                bits = writer.value(f"load i16, ptr {found}")
                again.append(writer.value(f"bitcast i16 {bits} to {FLAGS}"))
            value = seen.load(line, again)
            there = pointer(writer, place, float32, writer.mul(tap, "%pitch"))
            store(writer, value, there, float32, "1", "1", LANES, store_mask)


class Seen:
    """Which elements of an image's row a vector of output pixels sees: from `column` on, every `step`-th, if in [0, limit).

    A step of 0 is any other stride, `stride`. Lanes without an element are 0. The masks are made once, here.
    """

    def __init__(self, writer: Writer, column: str, limit: str, step: int, stride: str, lanes: str) -> None:
        self.writer, self.step = writer, step
        first, end = (writer.value(f"trunc i64 {word} to i32") for word in (column, limit))
        if step == 2:  # two vectors, of which the even elements are taken
            second = writer.value(f"add i32 {first}, {LANES}")
            self.masks = [self._inside(start, end, NUMBERS) for start in (first, second)]
            return
        apart = NUMBERS
        self.stride = stride
        if step == 0:
            apart = self._apart()
        self.masks = [writer.value(f"and {FLAGS} {self._inside(first, end, apart)}, {lanes}")]

    def _apart(self) -> str:
        short = self.writer.value(f"trunc i64 {self.stride} to i32")
        return self.writer.value(f"mul {WORDS} {self._spread(short)}, {NUMBERS}")

    def _spread(self, word: str) -> str:
        one = self.writer.value(f"insertelement {WORDS} poison, i32 {word}, i64 0")
        return self.writer.value(f"shufflevector {WORDS} {one}, {WORDS} poison, {WORDS} zeroinitializer")

    def _inside(self, first: str, limit: str, apart: str) -> str:
        columns = self.writer.value(f"add {WORDS} {self._spread(first)}, {apart}")
        return self.writer.value(f"icmp ult {WORDS} {columns}, {self._spread(limit)}")

    def load(self, source: str, masks: list[str] | None = None) -> str:
        """The elements, `source` being where the first of them is."""
        writer, masks = self.writer, masks or self.masks
        if self.step == 0:
            offsets = writer.value(f"sext {WORDS} {self._apart()} to {vector('i64', LANES)}")
            places = writer.value(f"getelementptr float, ptr {source}, {vector('i64', LANES)} {offsets}")
            operands = [(vector("ptr", LANES), places), ("i32", "4"), (FLAGS, masks[0]), (FLOATS, ZEROS)]
            return writer.call(FLOATS, "llvm.masked.gather.v16f32.v16p0", operands)
        parts = []
        for i, mask in enumerate(masks):
            place = pointer(writer, source, float32, str(i * LANES))
            operands = [("ptr", place), ("i32", "4"), (FLAGS, mask), (FLOATS, ZEROS)]
            parts.append(writer.call(FLOATS, "llvm.masked.load.v16f32.p0", operands))
        if self.step == 1:
            return parts[0]
        even = ", ".join(f"i32 {2 * i}" for i in range(LANES))
        return writer.value(f"shufflevector {FLOATS} {parts[0]}, {FLOATS} {parts[1]}, <{LANES} x i32> <{even}>")
