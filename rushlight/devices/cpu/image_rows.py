"""Loads of an image row for a vector of output pixels in LLVM IR, and a Convolve kernel's sizes."""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import float32
from rushlight.emit.llvm.body import pointer
from rushlight.emit.llvm.text import Arguments, Writer, vector

LANES = 16
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


class PixelLoad:
    """The elements of an image row under a vector of output pixels: from `column`, every `step`-th.

    Only those in [0, limit); lanes without an element are 0. A step of 0 is any other stride,
    `stride`. The masks are made once, here.
    """

    def __init__(
        self, writer: Writer, column: str, limit: str, step: int, stride: str, lanes: str
    ) -> None:
        self.writer, self.step = writer, step
        first, end = (writer.value(f"trunc i64 {word} to i32") for word in (column, limit))
        if step == 2:  # two vectors, whose even elements are used
            second = writer.value(f"add i32 {first}, {LANES}")
            self.masks = [self._inside(start, end, NUMBERS) for start in (first, second)]
            return
        apart = NUMBERS
        self.stride = stride
        if step == 0:
            apart = self._offsets()
        self.masks = [writer.value(f"and {FLAGS} {self._inside(first, end, apart)}, {lanes}")]

    def _offsets(self) -> str:
        short = self.writer.value(f"trunc i64 {self.stride} to i32")
        return self.writer.value(f"mul {WORDS} {self._spread(short)}, {NUMBERS}")

    def _spread(self, word: str) -> str:
        one = self.writer.value(f"insertelement {WORDS} poison, i32 {word}, i64 0")
        return self.writer.value(
            f"shufflevector {WORDS} {one}, {WORDS} poison, {WORDS} zeroinitializer"
        )

    def _inside(self, first: str, limit: str, apart: str) -> str:
        columns = self.writer.value(f"add {WORDS} {self._spread(first)}, {apart}")
        return self.writer.value(f"icmp ult {WORDS} {columns}, {self._spread(limit)}")

    def load(self, source: str, masks: list[str] | None = None) -> str:
        """The elements; `source` is the address of the first."""
        writer, masks = self.writer, masks or self.masks
        if self.step == 0:
            offsets = writer.value(f"sext {WORDS} {self._offsets()} to {vector('i64', LANES)}")
            places = writer.value(
                f"getelementptr float, ptr {source}, {vector('i64', LANES)} {offsets}"
            )
            operands = [
                (vector("ptr", LANES), places),
                ("i32", "4"),
                (FLAGS, masks[0]),
                (FLOATS, ZEROS),
            ]
            return writer.call(FLOATS, "llvm.masked.gather.v16f32.v16p0", operands)
        parts = []
        for i, mask in enumerate(masks):
            place = pointer(writer, source, float32, str(i * LANES))
            operands = [("ptr", place), ("i32", "4"), (FLAGS, mask), (FLOATS, ZEROS)]
            parts.append(writer.call(FLOATS, "llvm.masked.load.v16f32.p0", operands))
        if self.step == 1:
            return parts[0]
        even = ", ".join(f"i32 {2 * i}" for i in range(LANES))
        return writer.value(
            f"shufflevector {FLOATS} {parts[0]}, {FLOATS} {parts[1]}, <{LANES} x i32> <{even}>"
        )
