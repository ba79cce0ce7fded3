"""Image convolution as IR: products in registers, of weights and a padded copy of the image.

A task is VECTORS vectors of output pixels, of any images, and some output channels. A tile of
HEIGHT channels stays in registers while the taps of some channels of the image are read; in
between, its sums are stored in the task's scratch. An element of the result is one chain of fused
multiply-adds over channels and taps, ascending. `padded` makes the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import float32
from rushlight.devices.cpu import padded, stub
from rushlight.devices.cpu.native import Source
from rushlight.devices.cpu.tiles import COLUMNS, HEIGHT, LANES, TYPE, VECTORS, first_lanes
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import load, pointer, splat, store
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve

CHANNELS = 132  # per task
SHORT = 4  # the height of a tile for the last few channels
TAPS = 576  # taps of all channels read by a tile at once; half as many where a stride spreads them
NUMBERS = 12
LETTERS = "i" * (4 + NUMBERS)


def scratch_room(numbers: Sequence[int]) -> int:
    """The room of the padded copy that a launch works on."""
    n, groups, _, c, rows, columns, p, q, _, _, si, sj, di, dj = numbers[:14]
    some, size = padded.some(
        padded.product_layout((rows, columns), (p, q), (si, sj), (di, dj)), groups * c
    )
    return _room(min(n, some), size)


def _room(count: int, size: int) -> int:
    return room_for((count * size + COLUMNS) * 4)


def build(kernel: Convolve, runner: int, pool: Callable[[], Pool]) -> Launch:
    native = stub.callable_of(Source(key_of(kernel), text), LETTERS, "convolve", runner)
    pad = padded.build(kernel.step, runner)

    def launch(out: int, x: int, w: int, *numbers: int) -> None:
        n, groups, m, c, rows, columns, p, q, height, width, si, sj, di, dj, ti, tj, _ = numbers
        place = padded.product_layout((rows, columns), (p, q), (si, sj), (di, dj))
        some, size = padded.some(place, groups * c)
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
        most = TAPS if si == sj == 1 else TAPS // 2
        steps = (
            place.pitch,
            place.channel,
            place.across,
            place.vectors,
            max(1, min(64, most // (p * q))),
        )
        here = pool()
        copy, room, some = padded.take(here, min(n, some), lambda count: _room(count, size))
        try:
            for first in range(0, n, some):
                count = min(some, n - first)
                pad(copy, x + first * groups * c * height * width * 4, count * groups * c, *sides)
                target = out + first * groups * m * rows * columns * 4
                native(
                    target, copy, w, place.table, count, groups, m, c, rows, columns, p * q, *steps
                )
        finally:
            here.give(copy, room)

    return launch


def text() -> str:
    declared: set[str] = set()
    counts = Writer(declared)
    tiles = [_write_tile(declared, height) for height in (HEIGHT, SHORT)]
    return module(
        [*tiles, _write_place(declared), _write_kernel(declared)], counts, _counts(counts)
    )


class _Sizes:
    """The launch's numbers by name."""

    def __init__(self, writer: Writer, arguments: Arguments) -> None:
        words = arguments.words(NUMBERS)
        self.n, self.groups, self.m, self.c, self.rows, self.columns, self.taps = words[:7]
        self.pitch, self.channel, self.across, self.vectors, self.each = words[7:]
        self.blocks = writer.value(f"udiv i64 {writer.add(self.m, str(CHANNELS - 1))}, {CHANNELS}")
        self.all = writer.mul(self.n, self.vectors)
        self.quads = writer.divided_up(self.all, VECTORS)


def _counts(writer: Writer) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = 4
    z = _Sizes(writer, arguments)
    tasks = writer.mul(writer.mul(z.groups, z.blocks), z.quads)
    products = writer.mul(writer.mul(writer.mul(z.groups, z.m), z.all), writer.mul(z.c, z.taps))
    return tasks, writer.value(f"shl i64 {products}, 1")


def _divide(writer: Writer, a: str, b: str) -> tuple[str, str]:
    return writer.value(f"udiv i64 {a}, {b}"), writer.value(f"urem i64 {a}, {b}")


def _get(writer: Writer, type_: str, table: str, number: str) -> str:
    return writer.value(f"load {type_}, ptr {_entry(writer, table, number)}")


def _entry(writer: Writer, table: str, number: str) -> str:
    return writer.value(f"getelementptr i64, ptr {table}, i64 {number}")


TILE = (
    "define internal void @tile{height}(ptr readonly %a, i64 %a_row, ptr readonly %sources, i64 "
    "%shift, ptr readonly %table, "
    "i64 %taps, i64 %channels, i64 %channel, ptr %c, i64 %height) noinline "
    '"prefer-vector-width"="512"'
)


def _write_tile(declared: set[str], height: int) -> str:
    """c + a b for up to `height` rows: %channels channels and %taps taps of each of the sources.

    Rows begin at %shift.
    """
    writer = Writer(declared)
    b = [
        pointer(writer, _get(writer, "ptr", "%sources", str(j)), float32, "%shift")
        for j in range(VECTORS)
    ]
    last = writer.sub("%height", "1")
    # Rows past the end repeat the last one.
    rows = [writer.smaller(str(i), last) for i in range(height)]
    a = [pointer(writer, "%a", float32, writer.mul(r, "%a_row")) for r in rows]
    c = [pointer(writer, "%c", float32, writer.mul(r, str(COLUMNS))) for r in rows]
    sums, places = [], []
    for i in range(height):
        places.append([pointer(writer, c[i], float32, str(j * LANES)) for j in range(VECTORS)])
        values = [writer.value(f"load {TYPE}, ptr {place}, align 64") for place in places[i]]
        sums.append([writer.slot(TYPE, value) for value in values])
    number = writer.slot("i64", "0")
    with writer.loop("0", "%channels") as channel:
        shift = writer.mul(channel, "%channel")
        with writer.loop("0", "%taps") as tap:
            start = writer.add(_get(writer, "i64", "%table", tap), shift)
            columns = []
            for j in range(VECTORS):
                columns.append(
                    writer.value(
                        f"load {TYPE}, ptr {pointer(writer, b[j], float32, start)}, align 4"
                    )
                )
            k = writer.get(number)
            writer.set(number, writer.add(k, "1"))
            for i in range(height):
                element = writer.value(
                    f"load float, ptr {pointer(writer, a[i], float32, k)}, align 4"
                )
                spread = splat(writer, element, float32, LANES)
                for j in range(VECTORS):
                    operands = [(TYPE, spread), (TYPE, columns[j]), (TYPE, writer.get(sums[i][j]))]
                    writer.set(sums[i][j], writer.call(TYPE, "llvm.fma.v16f32", operands))
    for i in range(height):
        for j in range(VECTORS):
            writer.line(f"store {TYPE} {writer.get(sums[i][j])}, ptr {places[i][j]}, align 64")
    return writer.function(TILE.format(height=height))


PLACE = (
    "define internal void @place(ptr readonly %c, ptr %out, i64 %at, i64 %across, i64 %rows, i64 "
    "%columns, "
    'i64 %channels) noinline "prefer-vector-width"="512"'
)


def _write_place(declared: set[str]) -> str:
    """Store a vector of %channels sums, of pixels from %at on; idle pixels are left out."""
    writer = Writer(declared)
    pixels = writer.mul("%rows", "%columns")
    done, span = writer.slot("i64", "0"), writer.slot("i64", "0")
    with writer.loop("0", str(LANES)) as lane:
        begins = writer.value(f"icmp eq i64 {lane}, {writer.get(done)}")
        with writer.when(begins):
            row, column = _divide(writer, writer.add("%at", lane), "%across")
            writer.set(
                span, writer.smaller(writer.sub(str(LANES), lane), writer.sub("%across", column))
            )
            writer.set(done, writer.add(lane, writer.get(span)))
            count = writer.smaller(writer.get(span), writer.sub("%columns", column))
            mask = first_lanes(writer, count)
            real = [
                writer.value(f"icmp sgt i64 {count}, 0"),
                writer.value(f"icmp slt i64 {row}, %rows"),
            ]
            channels = writer.value(
                f"select i1 {writer.value(f'and i1 {real[0]}, {real[1]}')}, i64 %channels, i64 0"
            )
            target = pointer(
                writer, "%out", float32, writer.add(writer.mul(row, "%columns"), column)
            )
            source = pointer(writer, "%c", float32, lane)
            with writer.loop("0", channels) as m:
                near = pointer(writer, source, float32, writer.mul(m, str(COLUMNS)))
                far = pointer(writer, target, float32, writer.mul(m, pixels))
                store(
                    writer,
                    load(writer, near, float32, "1", "1", LANES, mask),
                    far,
                    float32,
                    "1",
                    "1",
                    LANES,
                    mask,
                )
    return writer.function(PLACE)


def _expect(writer: Writer, place: str) -> None:
    """Prefetch a cache line for writing."""
    writer.call(
        "void", "llvm.prefetch.p0", [("ptr", place), ("i32", "1"), ("i32", "3"), ("i32", "1")]
    )


class _Vectors:
    """A task's vectors: addresses, image positions, first pixels, channel counts."""

    def __init__(self, writer: Writer) -> None:
        self.source, self.begin, self.target, self.at, self.channels = (
            writer.array("i64", VECTORS) for _ in range(5)
        )

    def find(
        self,
        writer: Writer,
        z: _Sizes,
        bases: tuple[str, str],
        block: tuple[str, str, str],
        quad: str,
    ) -> None:
        """`block` is (group, first channel, channels).

        A vector past the last one has no channels.
        """
        group, channel, channels = block
        with writer.loop("0", str(VECTORS)) as j:
            number = writer.add(writer.mul(quad, str(VECTORS)), j)
            more = writer.value(f"icmp slt i64 {number}, {z.all}")
            number = writer.value(f"select i1 {more}, i64 {number}, i64 0")
            image, vector = _divide(writer, number, z.vectors)
            at = writer.mul(vector, str(LANES))
            row, column = _divide(writer, at, z.across)
            which = writer.add(writer.mul(image, z.groups), group)
            start = writer.mul(which, writer.mul(z.c, z.channel))
            source = pointer(
                writer,
                bases[1],
                float32,
                writer.add(start, writer.add(writer.mul(row, z.pitch), column)),
            )
            offset = writer.mul(
                writer.add(writer.mul(which, z.m), channel), writer.mul(z.rows, z.columns)
            )
            target = pointer(writer, bases[0], float32, offset)
            begin = pointer(writer, target, float32, writer.add(writer.mul(row, z.columns), column))
            for table, value in ((self.source, source), (self.begin, begin), (self.target, target)):
                writer.line(f"store ptr {value}, ptr {_entry(writer, table, j)}")
            count = writer.value(f"select i1 {more}, i64 {channels}, i64 0")
            for table, value in ((self.at, at), (self.channels, count)):
                writer.line(f"store i64 {value}, ptr {_entry(writer, table, j)}")


def _write_kernel(declared: set[str]) -> str:
    writer = Writer(declared)
    arguments = Arguments(writer)
    out, x, w, table = (arguments.address() for _ in range(4))
    z = _Sizes(writer, arguments)
    pixels, products = writer.mul(z.rows, z.columns), writer.mul(z.c, z.taps)
    sums = writer.array("float", CHANNELS * COLUMNS)
    vectors = _Vectors(writer)
    with writer.loop("%begin", "%end") as task:
        rest, quad = _divide(writer, task, z.quads)
        group, block = _divide(writer, rest, z.blocks)
        channel = writer.mul(block, str(CHANNELS))
        channels = writer.smaller(writer.sub(z.m, channel), str(CHANNELS))
        weights = pointer(
            writer, w, float32, writer.mul(writer.add(writer.mul(group, z.m), channel), products)
        )
        with writer.loop("0", writer.mul(channels, str(COLUMNS)), str(LANES)) as i:
            writer.line(
                f"store {TYPE} zeroinitializer, ptr {pointer(writer, sums, float32, i)}, align 64"
            )
        vectors.find(writer, z, (out, x), (group, channel, channels), quad)
        with writer.loop("0", z.c, z.each) as first:
            some = writer.smaller(writer.sub(z.c, first), z.each)
            shift = writer.mul(first, z.channel)
            begins = writer.value(f"icmp eq i64 {first}, 0")
            start = pointer(writer, weights, float32, writer.mul(first, z.taps))
            with writer.loop("0", channels, str(HEIGHT)) as m:
                height = writer.smaller(writer.sub(channels, m), str(HEIGHT))
                a = pointer(writer, start, float32, writer.mul(m, products))
                c = pointer(writer, sums, float32, writer.mul(m, str(COLUMNS)))
                with writer.when(begins), writer.loop("0", str(VECTORS)) as j:
                    target = _get(writer, "ptr", vectors.begin, j)
                    with writer.loop(m, writer.add(m, height)) as row:
                        _expect(writer, pointer(writer, target, float32, writer.mul(row, pixels)))
                operands = (
                    f"ptr {a}, i64 {products}, ptr {vectors.source}, i64 {shift}, ptr {table}, i64 "
                    f"{z.taps}"
                )
                operands += f", i64 {some}, i64 {z.channel}"
                few = writer.value(f"icmp ule i64 {height}, {SHORT}")
                for tall, chosen in ((SHORT, few), (HEIGHT, writer.value(f"xor i1 {few}, true"))):
                    with writer.when(chosen):
                        writer.line(f"call void @tile{tall}({operands}, ptr {c}, i64 {height})")
        with writer.loop("0", str(VECTORS)) as j:
            c = pointer(writer, sums, float32, writer.mul(j, str(LANES)))
            image, at = _get(writer, "ptr", vectors.target, j), _get(writer, "i64", vectors.at, j)
            operands = (
                f"ptr {c}, ptr {image}, i64 {at}, i64 {z.across}, i64 {z.rows}, i64 {z.columns}"
            )
            writer.line(
                f"call void @place({operands}, i64 {_get(writer, 'i64', vectors.channels, j)})"
            )
    return writer.function(FUNCTION.format(name="kernel"))
