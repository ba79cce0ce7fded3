"""LLVM IR as text: names, blocks, loops and slots, and the types of the scalar instruction set.

Loop counters and accumulators live in slots (allocas at the function's entry); the optimiser turns
them into registers, so no printer writes a phi.

# Note [Opaque counters]
A slot of an i64 holds a vector of that one number. It is the same register, but LLVM's loop
strength reduction only considers counters that are integers or addresses: rewriting our addresses
takes it a sixth of a build and changes nothing, since they are a base, a counter and a constant
already. It helps where a short loop multiplies its counter by a stride (`strided`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from rushlight.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    compute_type,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

COMPUTE = {
    bool_: "i1",
    int32: "i32",
    uint32: "i32",
    int64: "i64",
    uint64: "i64",
    float32: "float",
    float64: "double",
}
_SMALL = {uint8: "i8", int8: "i8", uint16: "i16", int16: "i16"}
STORED = {**COMPUTE, **_SMALL, bool_: "i8", float16: "half", bfloat16: "i16"}


# Functions that run rarely, or only call others, are not worth the time to optimise.
UNOPTIMISED = " optnone noinline"

# A function over tasks, and what a device calls for large work:
# `runner(function, args, tasks, work)` distributes tasks.
FUNCTION = (
    "define internal void @{name}(ptr noalias readonly %args, i64 %begin, i64 %end) "
    '"prefer-vector-width"="512"'
)
LAUNCH = (
    "define internal void @launch(ptr readonly %args, ptr %runner, i64 %tasks, i64 %work)"
    + UNOPTIMISED
)


def vector(scalar: str, width: int) -> str:
    return scalar if width == 1 else f"<{width} x {scalar}>"


@cache
def suffix(scalar: str, width: int) -> str:
    """A type as spelled in an intrinsic's name: v16f32."""
    short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(scalar, scalar)
    return short if width == 1 else f"v{width}{short}"


def number(value: float | int | bool, dtype: DType) -> str:
    """A scalar constant as LLVM spells it."""
    if dtype.kind == "f":
        wide = float(value)
        if dtype is float32:
            wide = round_to_float32(wide)
        return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
    if dtype.kind == "b":
        return "true" if value else "false"
    whole = int(value)
    bits = 8 * dtype.itemsize
    return str(whole - (1 << bits) if dtype.kind == "u" and whole >> (bits - 1) else whole)


def round_to_float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def constant(value: float | int | bool, dtype: DType, width: int) -> str:
    text = number(value, dtype)
    return text if width == 1 else f"splat ({COMPUTE[dtype]} {text})"


LONE = "<1 x i64>"  # see Note [Opaque counters]


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable of the function being written."""

    name: str
    type: str
    lone: bool = False


class Writer:
    """One function's text, growing line by line."""

    def __init__(self, declared: set[str]) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.declared = declared  # of the whole module
        self.count = 0
        self.anomaly: Any = None  # an `AnomalyCheck` where the kernel has anomaly checks
        # Written when the function ends.
        self.ends: list[Callable[[], None]] = []

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def call(self, result: str, name: str, operands: list[tuple[str, str]]) -> str:
        """Call an external function or intrinsic and declare it.

        The value's name, or "" for void.
        """
        types = ", ".join(t for t, _ in operands)
        self.declared.add(f"declare {result} @{name}({types})")
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    def slot(self, type_: str, first: str, *, lone: bool = True) -> Slot:
        slot = Slot("%" + self.fresh("s"), type_, lone and type_ == "i64")
        self.slots.append(f"  {slot.name} = alloca {LONE if slot.lone else type_}")
        self.set(slot, first)
        return slot

    def first_slot(self, type_: str, first: str) -> Slot:
        """A slot that is initialised at the function's entry."""
        slot = Slot("%" + self.fresh("s"), type_)
        self.slots += [
            f"  {slot.name} = alloca {type_}",
            f"  store {type_} {first}, ptr {slot.name}",
        ]
        return slot

    def array(self, type_: str, length: int) -> str:
        """The address of scratch space in the function's frame."""
        name = "%" + self.fresh("s")
        self.slots.append(f"  {name} = alloca [{length} x {type_}], align 64")
        return name

    def get(self, slot: Slot) -> str:
        if slot.lone:
            return self.value(
                f"extractelement {LONE} {self.value(f'load {LONE}, ptr {slot.name}')}, i64 0"
            )
        return self.value(f"load {slot.type}, ptr {slot.name}")

    def set(self, slot: Slot, value: str) -> None:
        type_ = slot.type
        if slot.lone:
            type_, value = LONE, self.value(f"insertelement {LONE} poison, i64 {value}, i64 0")
        self.line(f"store {type_} {value}, ptr {slot.name}")

    def add(self, a: str, b: str) -> str:
        return self.value(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.value(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.value(f"mul i64 {a}, {b}")

    def smaller(self, a: str, b: str) -> str:
        less = self.value(f"icmp slt i64 {a}, {b}")
        return self.value(f"select i1 {less}, i64 {a}, i64 {b}")

    def divided_up(self, a: str, step: int) -> str:
        """ceil(a / step) for a >= 0 and a power of two."""
        return self.value(f"lshr i64 {self.add(a, str(step - 1))}, {step.bit_length() - 1}")

    @contextmanager
    def loop(
        self, begin: str | Slot, end: str, step: str = "1", *, strided: bool = False
    ) -> Iterator[str]:
        """for i in range(begin, end, step).

        A slot given as `begin` ends with the first i not taken.
        """
        slot = begin if isinstance(begin, Slot) else self.slot("i64", begin, lone=not strided)
        head, body, done = self.fresh("head"), self.fresh("body"), self.fresh("done")
        self.line(f"br label %{head}")
        self.label(head)
        i = self.get(slot)
        more = self.value(f"icmp slt i64 {i}, {end}")
        self.line(f"br i1 {more}, label %{body}, label %{done}")
        self.label(body)
        yield i
        self.set(slot, self.add(i, step))
        self.line(f"br label %{head}")
        self.label(done)

    @contextmanager
    def when(self, condition: str, note: str = "") -> Iterator[None]:
        then, after = self.fresh("then"), self.fresh("after")
        self.line(f"br i1 {condition}, label %{then}, label %{after}{note}")
        self.label(then)
        yield
        self.line(f"br label %{after}")
        self.label(after)

    def function(self, head: str, result: str = "void") -> str:
        """The finished function."""
        for end in self.ends:
            end()
        lines = [head + " {", "entry:", *self.slots, *self.lines, f"  ret {result}", "}"]
        return "\n".join(lines) + "\n"


class Arguments:
    """The launch's numbers, in the array of 64-bit slots that every kernel function gets."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.next = 0

    def word(self) -> str:
        """The next argument as i64."""
        place = self.writer.value(f"getelementptr i64, ptr %args, i64 {self.next}")
        self.next += 1
        return self.writer.value(f"load i64, ptr {place}")

    def words(self, count: int) -> list[str]:
        return [self.word() for _ in range(count)]

    def skip(self, count: int) -> str:
        """Skip arguments."""
        self.next += count
        return ""

    def address(self) -> str:
        return self.writer.value(f"inttoptr i64 {self.word()} to ptr")

    def param(self, dtype: DType) -> str:
        """The next argument as a scalar of the compute type; floats arrive as doubles."""
        word = self.word()
        dtype = compute_type(dtype)
        if dtype.kind in "iu" and dtype.itemsize == 8:
            return word
        if dtype.kind != "f":
            kind = COMPUTE[dtype]
            return self.writer.value(
                f"icmp ne i64 {word}, 0" if dtype is bool_ else f"trunc i64 {word} to {kind}"
            )
        wide = self.writer.value(f"bitcast i64 {word} to double")
        return wide if dtype is float64 else self.writer.value(f"fptrunc double {wide} to float")
