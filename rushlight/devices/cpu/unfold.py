"""Windows of an image as rows of numbers, in LLVM IR: what the convolution kernels copy before they multiply.

A row belongs to one tap of the window, (channel, p, q), and has an element per output pixel; outside the image it is 0.
See `kernel.shapes.Convolve` for the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import float32
from rushlight.emit.llvm_body import first_lanes, pointer
from rushlight.emit.llvm_text import Arguments, Writer, vector

LANES = 16
FLOATS, WORDS, FLAGS = vector("float", LANES), vector("i32", LANES), vector("i1", LANES)
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


TAPS = "define internal void @taps(ptr readonly %args, i64 %first, i64 %count, ptr %table) noinline"


def write_taps(declared: set[str]) -> str:
    """For each of %count taps from %first on: offset in the image, rows down and columns to the right."""
    writer = Writer(declared)
    _, z = read_sizes(writer)
    window = writer.mul(z.p, z.q)
    rest = writer.value(f"urem i64 %first, {window}")
    channel = writer.slot("i64", writer.value(f"udiv i64 %first, {window}"))
    down = writer.slot("i64", writer.value(f"udiv i64 {rest}, {z.q}"))
    right = writer.slot("i64", writer.value(f"urem i64 {rest}, {z.q}"))
    area = writer.mul(z.height, z.width)
    with writer.loop("0", "%count") as i:
        c, p, q = (writer.get(s) for s in (channel, down, right))
        rows, columns = writer.mul(p, z.di), writer.mul(q, z.dj)
        offset = writer.add(writer.mul(c, area), writer.add(writer.mul(rows, z.width), columns))
        place = writer.value(f"getelementptr i64, ptr %table, i64 {writer.mul(i, '3')}")
        for number, value in enumerate((offset, rows, columns)):
            spot = writer.value(f"getelementptr i64, ptr {place}, i64 {number}")
            writer.line(f"store i64 {value}, ptr {spot}")
        q, over = _next(writer, q, z.q)
        p = writer.add(p, over)
        fresh, over = _wrapped(writer, p, z.p)
        for slot, value in ((right, q), (down, fresh), (channel, writer.add(c, over))):
            writer.set(slot, value)
    return writer.function(TAPS)


def _next(writer: Writer, value: str, limit: str) -> tuple[str, str]:
    return _wrapped(writer, writer.add(value, "1"), limit)


def _wrapped(writer: Writer, value: str, limit: str) -> tuple[str, str]:
    """0 in place of the limit, and 1 if it was reached."""
    full = writer.value(f"icmp eq i64 {value}, {limit}")
    return writer.value(f"select i1 {full}, i64 0, i64 {value}"), writer.value(f"zext i1 {full} to i64")


UNFOLD = (
    "define internal void @unfold(ptr readonly %args, ptr readonly %x, ptr readonly %table, i64 %taps, i64 %first, "
    'i64 %count, ptr %panel, i64 %pitch) noinline "prefer-vector-width"="512"'
)


def write_unfold(declared: set[str]) -> str:
    """%count pixels from %first on, of %taps taps, to rows of the panel that lie %pitch apart."""
    writer = Writer(declared)
    _, z = read_sizes(writer)
    done = writer.slot("i64", "0")
    kinds = [writer.value(f"icmp eq i64 {z.sj}, {step}") for step in (1, 2)]
    other = writer.value(f"xor i1 {writer.value(f'or i1 {kinds[0]}, {kinds[1]}')}, true")
    width = writer.value(f"trunc i64 {z.width} to i32")
    head, body, after = (writer.fresh(stem) for stem in ("head", "body", "done"))
    writer.line(f"br label %{head}")
    writer.label(head)
    at = writer.get(done)
    writer.line(f"br i1 {writer.value(f'icmp slt i64 {at}, %count')}, label %{body}, label %{after}")
    writer.label(body)
    pixel = writer.add("%first", at)
    i, j = (writer.value(f"{op} i64 {pixel}, {z.columns}") for op in ("udiv", "urem"))
    length = writer.smaller(writer.sub("%count", at), writer.sub(z.columns, j))
    top = writer.sub(writer.mul(i, z.si), z.ti)
    for step, chosen in ((1, kinds[0]), (2, kinds[1]), (0, other)):
        with writer.when(chosen), writer.loop("0", length, str(LANES)) as v:
            left = writer.sub(writer.mul(writer.add(j, v), z.sj), z.tj)
            lanes = first_lanes(writer, writer.sub(length, v), LANES)
            base = pointer(writer, "%x", float32, writer.add(writer.mul(top, z.width), left))
            target = pointer(writer, "%panel", float32, writer.add(at, v))
            with writer.loop("0", "%taps") as tap:
                offset, down, right = _tap(writer, tap)
                inside = writer.value(f"icmp ult i64 {writer.add(top, down)}, {z.height}")
                limit = writer.value(f"select i1 {inside}, i32 {width}, i32 0")
                source = pointer(writer, base, float32, offset)
                first = writer.value(f"trunc i64 {writer.add(left, right)} to i32")
                value = load_row(writer, source, first, limit, step, z.sj, lanes)
                place = pointer(writer, target, float32, writer.mul(tap, "%pitch"))
                operands = [(FLOATS, value), ("ptr", place), ("i32", "4"), (FLAGS, lanes)]
                writer.call("void", "llvm.masked.store.v16f32.p0", operands)
    writer.set(done, writer.add(at, length))
    writer.line(f"br label %{head}")
    writer.label(after)
    return writer.function(UNFOLD)


def _tap(writer: Writer, tap: str) -> list[str]:
    place = writer.value(f"getelementptr i64, ptr %table, i64 {writer.mul(tap, '3')}")
    found = []
    for number in range(3):
        spot = writer.value(f"getelementptr i64, ptr {place}, i64 {number}")
        found.append(writer.value(f"load i64, ptr {spot}"))
    return found


def spread(writer: Writer, word: str) -> str:
    one = writer.value(f"insertelement {WORDS} poison, i32 {word}, i64 0")
    return writer.value(f"shufflevector {WORDS} {one}, {WORDS} poison, {WORDS} zeroinitializer")


def load_row(writer: Writer, source: str, first: str, limit: str, step: int, stride: str, lanes: str) -> str:
    """Elements of an image's row from column `first` on (i32), every `step`-th; 0 outside [0, limit) and the lanes.

    A step of 0 is any other stride, `stride` (i64).
    """
    if step == 2:
        halves = []
        for half in (0, 1):
            place = pointer(writer, source, float32, str(half * LANES))
            column = writer.value(f"add i32 {first}, {half * LANES}")
            halves.append(_masked(writer, place, _inside(writer, column, limit, None)))
        even = ", ".join(f"i32 {2 * i}" for i in range(LANES))
        return writer.value(f"shufflevector {FLOATS} {halves[0]}, {FLOATS} {halves[1]}, <{LANES} x i32> <{even}>")
    if step == 1:
        valid = _inside(writer, first, limit, None)
        return _masked(writer, source, writer.value(f"and {FLAGS} {valid}, {lanes}"))
    valid = _inside(writer, first, limit, writer.value(f"trunc i64 {stride} to i32"))
    valid = writer.value(f"and {FLAGS} {valid}, {lanes}")
    longs = vector("i64", LANES)
    one = writer.value(f"insertelement {longs} poison, i64 {stride}, i64 0")
    strides = writer.value(f"shufflevector {longs} {one}, {longs} poison, <{LANES} x i32> zeroinitializer")
    numbers = "<" + ", ".join(f"i64 {i}" for i in range(LANES)) + ">"
    offsets = writer.value(f"mul {longs} {strides}, {numbers}")
    places = writer.value(f"getelementptr float, ptr {source}, {longs} {offsets}")
    operands = [(vector("ptr", LANES), places), ("i32", "4"), (FLAGS, valid), (FLOATS, "zeroinitializer")]
    return writer.call(FLOATS, "llvm.masked.gather.v16f32.v16p0", operands)


def _inside(writer: Writer, first: str, limit: str, stride: str | None) -> str:
    numbers = NUMBERS if stride is None else writer.value(f"mul {WORDS} {spread(writer, stride)}, {NUMBERS}")
    columns = writer.value(f"add {WORDS} {spread(writer, first)}, {numbers}")
    return writer.value(f"icmp ult {WORDS} {columns}, {spread(writer, limit)}")


def _masked(writer: Writer, place: str, mask: str) -> str:
    operands = [("ptr", place), ("i32", "4"), (FLAGS, mask), (FLOATS, "zeroinitializer")]
    return writer.call(FLOATS, "llvm.masked.load.v16f32.p0", operands)
