"""The fold of one pass along the axis within one block: vectors of partial results, then a tree."""

from __future__ import annotations

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.rowwise import combine, identity
from rushlight.emit.llvm.text import COMPUTE, Writer, constant, vector
from rushlight.kernel.shapes import Reduce

PARTS = 4


class Partial:
    """The partial results of one pass in a block, in PARTS vectors that take turns."""

    def __init__(self, writer: Writer, reduce: Reduce, width: int) -> None:
        self.writer, self.kind, self.dtype, self.width = (
            writer,
            reduce.kind,
            reduce.body.dtype,
            width,
        )
        self.type = vector(COMPUTE[self.dtype], width)
        self.neutral = constant(identity(self.kind, self.dtype), self.dtype, width)
        self.parts = [writer.slot(self.type, self.neutral) for _ in range(PARTS)]

    def take(self, value: str) -> None:
        """Fold into the first part, then rotate the parts, so that the body is written once."""
        writer = self.writer
        old = [writer.get(part) for part in self.parts]
        old[0] = combine(writer, self.kind, self.dtype, value, old[0], self.width)
        for part, moved in zip(self.parts, old[1:] + old[:1], strict=True):
            writer.set(part, moved)

    def take_rest(self, value: str, mask: str) -> None:
        writer = self.writer
        kept = writer.value(
            f"select {vector('i1', self.width)} {mask}, {self.type} {value}, {self.type} "
            f"{self.neutral}"
        )
        first = self.parts[0]
        writer.set(
            first, combine(writer, self.kind, self.dtype, kept, writer.get(first), self.width)
        )

    def result(self, shared: bool) -> str:
        values = [self.writer.get(p) for p in self.parts]
        fold = _call_fold if shared else fold_lanes
        return fold(self.writer, self.kind, self.dtype, values, self.width)


def fold_lanes(writer: Writer, kind: str, dtype: DType, parts: list[str], width: int) -> str:
    """A tree over the parts, then over the lanes of the last one."""
    while len(parts) > 1:
        parts = [
            combine(writer, kind, dtype, b, a, width)
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    value = parts[0]
    while width > 1:
        type_, half = vector(COMPUTE[dtype], width), width // 2
        halves = []
        for lanes in (range(half), range(half, width)):
            chosen = ", ".join(f"i32 {i}" for i in lanes)
            halves.append(
                writer.value(
                    f"shufflevector {type_} {value}, {type_} poison, <{half} x i32> <{chosen}>"
                )
            )
        if half == 1:
            halves = [
                writer.value(f"extractelement <1 x {COMPUTE[dtype]}> {h}, i64 0") for h in halves
            ]
        value = combine(writer, kind, dtype, halves[1], halves[0], half)
        width = half
    return value


FOLD = (
    "define internal {scalar} @fold.{kind}.{dtype}({given}) noinline "
    '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
)


def _call_fold(writer: Writer, kind: str, dtype: DType, parts: list[str], width: int) -> str:
    """`fold_lanes` as a function, shared by all passes of the same kind and type."""
    own, scalar, type_ = Writer(writer.declared), COMPUTE[dtype], vector(COMPUTE[dtype], width)
    names = [f"%part{k}" for k in range(len(parts))]
    value = fold_lanes(own, kind, dtype, list(names), width)
    given = ", ".join(f"{type_} {name}" for name in names)
    head = FOLD.format(scalar=scalar, kind=kind, dtype=dtype.name, given=given)
    writer.declared.add(own.function(head, f"{scalar} {value}"))
    listed = ", ".join(f"{type_} {part}" for part in parts)
    return writer.value(f"call {scalar} @fold.{kind}.{dtype.name}({listed})")
