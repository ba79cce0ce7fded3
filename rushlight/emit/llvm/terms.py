"""Numbers and conditions of a function being written, with Python's operators.

For rules about sizes and layouts. Every operator writes an instruction. Numbers are i64 and, where
it matters, not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rushlight.emit.llvm.text import Writer


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value of the function: a number (i64) or a condition (i1)."""

    writer: Writer
    name: str
    kind: str = "i64"

    def _with(self, instruction: str, other: Term | int, kind: str = "") -> Term:
        text = f"{instruction} {self.kind} {self.name}, {name_of(other)}"
        return Term(self.writer, self.writer.value(text), kind or self.kind)

    def __add__(self, other: Term | int) -> Term:
        return self._with("add", other)

    def __sub__(self, other: Term | int) -> Term:
        return self._with("sub", other)

    def __mul__(self, other: Term | int) -> Term:
        return self._with("mul", other)

    def __floordiv__(self, other: Term | int) -> Term:
        return self._with("udiv", other)

    def __mod__(self, other: Term | int) -> Term:
        return self._with("urem", other)

    def __and__(self, other: Term | int) -> Term:
        return self._with("and", other)

    def __or__(self, other: Term | int) -> Term:
        return self._with("or", other)

    def __invert__(self) -> Term:
        """The negation of a condition."""
        return Term(self.writer, self.writer.value(f"xor i1 {self.name}, true"), "i1")

    def __lt__(self, other: Term | int) -> Term:
        return self._with("icmp ult", other, "i1")

    def __le__(self, other: Term | int) -> Term:
        return self._with("icmp ule", other, "i1")

    def __gt__(self, other: Term | int) -> Term:
        return self._with("icmp ugt", other, "i1")

    def __ge__(self, other: Term | int) -> Term:
        return self._with("icmp uge", other, "i1")

    def equals(self, other: Term | int) -> Term:
        return self._with("icmp eq", other, "i1")


def name_of(value: Term | int) -> str:
    return value.name if isinstance(value, Term) else str(value)


def terms(writer: Writer, names: Sequence[str]) -> list[Term]:
    return [Term(writer, name) for name in names]


def where(condition: Term, a: Term | int, b: Term | int) -> Term:
    """A select between two numbers."""
    writer = condition.writer
    return Term(
        writer, writer.value(f"select i1 {condition.name}, i64 {name_of(a)}, i64 {name_of(b)}")
    )


def smaller(a: Term, b: Term | int) -> Term:
    return where(a < b, a, b)


def larger(a: Term, b: Term | int) -> Term:
    return where(a > b, a, b)


def ceil_div(size: Term, most: Term | int) -> Term:
    """ceil(size / most), for size >= 0."""
    return (size + most - 1) // most
