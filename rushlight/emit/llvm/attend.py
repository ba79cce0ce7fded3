"""Attend kernels: a task is one row of a result, over vectors of keys.

# Note [Attention on the CPU]
1. The features of a row stay in registers. A vector of scores is the products of that row with as
   many rows as a vector has lanes; a tree that transposes adds each of them up in its lane.
2. A result is a sum of numbers times rows: there the lanes are features.
3. "output" goes over chunks of SPAN keys with the highest score so far, and scales its sums when
   that grows. No memory holds more scores than a chunk.
4. "query" and "keys" are one text with rows and keys exchanged.
5. A causal row ends after its own key, a causal key begins with its own row.
6. Features lie side by side (`Limits.attends_dense`). Sums have an order that follows from sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rushlight.core.dtypes import FLOAT, DType, bool_, compute_type, float32, int64
from rushlight.emit.llvm.body import (
    cast,
    fenced,
    first_lanes,
    lane_numbers,
    lane_splat,
    load,
    pointer,
    splat,
    store,
)
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.partial import fold_lanes
from rushlight.emit.llvm.text import COMPUTE, Arguments, Slot, Writer, constant, vector
from rushlight.kernel.attend import kept, operands_of, params_of
from rushlight.kernel.shapes import Attend
from rushlight.scalar import build as s
from rushlight.scalar.elementary import lower
from rushlight.scalar.ir import Expr, arg, param

TASK = 16  # rows, or keys, of a task
SPAN = 256  # keys of a chunk
_SCORE_WORK = 8  # instructions of a score besides its products


def widest() -> tuple[tuple[DType, int], ...]:
    """The types and the widest heads: the features of a row stay in registers."""
    return tuple((dtype, 128 if dtype.itemsize == 8 else 256) for dtype in FLOAT)


@dataclass(frozen=True)
class Operand:
    """One operand: its strides are three of the batch, then those of its two dimensions."""

    dtype: DType
    base: str
    strides: list[str]


def write_counts(writer: Writer, kernel: Attend) -> tuple[str, str]:
    """A task is TASK rows, or keys, of an entry of the batch; of a mask's gradient a row of all."""
    arguments = Arguments(writer)
    arguments.next = len(operands_of(kernel))
    x, y, z, rows, keys = arguments.words(5)
    batch = writer.mul(writer.mul(x, y), z)
    own, other = (keys, rows) if kernel.of == "keys" else (rows, keys)
    tasks = own if kernel.of == "mask" else writer.mul(batch, writer.divided_up(own, TASK))
    each = str((kernel.width + kernel.depth) // 8 + _SCORE_WORK)
    work = writer.mul(writer.mul(batch, own), each)
    return tasks, work if kernel.of == "along" else writer.mul(work, other)


def write_kernel(writer: Writer, kernel: Attend) -> None:
    head = Head(writer, kernel)
    if kernel.of == "mask":
        with writer.loop("%begin", "%end") as row:
            _write_mask(head, row)
        return
    count = head.keys if kernel.of == "keys" else head.rows
    parts = writer.divided_up(count, TASK)
    with writer.loop("%begin", "%end") as task:
        head.place(writer.value(f"sdiv i64 {task}, {parts}"))
        first = writer.mul(writer.value(f"srem i64 {task}, {parts}"), str(TASK))
        with writer.loop(first, writer.smaller(count, writer.add(first, str(TASK)))) as own:
            if kernel.of == "output":
                _write_output(head, own)
            elif kernel.of == "along":
                g, out = head.row("g", own), head.row("out", own)
                store_one(head, "along", own, head.folded("sum", head.multiplied(g, out)))
            else:
                _write_gradients(head, own, by_keys=kernel.of == "keys")


def argument_kinds(kernel: Attend) -> str:
    """One letter per launch argument: see `kernels.arguments`."""
    count = len(operands_of(kernel))
    letters = ["f" if dtype.kind == "f" else "i" for dtype in params_of(kernel)]
    return "i" * (6 * count + 5) + "".join(letters)


class Head:
    """One entry of the batch: the places of its operands, and vectors of its rows and scores."""

    def __init__(self, writer: Writer, kernel: Attend) -> None:
        self.writer, self.kernel = writer, kernel
        self.compute = compute_type(kernel.dtype)
        self.scalar = COMPUTE[self.compute]
        self.lanes = 8 if self.compute.itemsize == 8 else 16
        self.type, self.flags = vector(self.scalar, self.lanes), vector("i1", self.lanes)
        arguments, types = Arguments(writer), operands_of(kernel)
        bases = [arguments.address() for _ in types]
        self.x, self.y, self.z, self.rows, self.keys = arguments.words(5)
        self.operands = {
            name: Operand(dtype, base, arguments.words(5))
            for (name, dtype), base in zip(types.items(), bases, strict=True)
        }
        self.params = [arguments.param(dtype) for dtype in params_of(kernel)]
        self.scale = splat(writer, self.params[0], self.compute, self.lanes) if self.params else ""
        self.number = "0"
        self.places: dict[str, str] = {}

    def place(self, number: str) -> None:
        """Go to an entry of the batch."""
        writer = self.writer
        rest = writer.value(f"sdiv i64 {number}, {self.z}")
        self.place_at(
            [
                writer.value(f"sdiv i64 {rest}, {self.y}"),
                writer.value(f"srem i64 {rest}, {self.y}"),
                writer.value(f"srem i64 {number}, {self.z}"),
            ]
        )

    def place_at(self, at: Sequence[str]) -> None:
        writer = self.writer
        rest = writer.add(writer.mul(at[0], self.y), at[1])
        self.number = writer.add(writer.mul(rest, self.z), at[2])
        for name, operand in self.operands.items():
            offset = "0"
            for i, step in zip(at, operand.strides, strict=False):
                offset = writer.add(offset, writer.mul(i, step))
            self.places[name] = pointer(writer, operand.base, operand.dtype, offset)

    # ---- rows: features are lanes ----

    def masks(self, size: int) -> list[str | None]:
        """The lanes of each vector of a row; None: all."""
        found: list[str | None] = []
        for first in range(0, size, self.lanes):
            flags = [f"i1 {str(first + i < size).lower()}" for i in range(self.lanes)]
            found.append(None if first + self.lanes <= size else f"<{', '.join(flags)}>")
        return found

    def size(self, name: str) -> int:
        return self.kernel.width if name in ("q", "k", "dq", "dk") else self.kernel.depth

    def start(self, name: str, i: str) -> str:
        """Where row i of an operand begins."""
        operand, writer = self.operands[name], self.writer
        offset = writer.mul(i, operand.strides[3])
        return pointer(writer, self.places[name], operand.dtype, offset)

    def row(self, name: str, i: str) -> list[str]:
        return self.row_at(name, self.start(name, i))

    def row_at(self, name: str, begin: str) -> list[str]:
        dtype, found = self.operands[name].dtype, []
        for k, mask in enumerate(self.masks(self.size(name))):
            place = pointer(self.writer, begin, dtype, str(k * self.lanes))
            found.append(load(self.writer, place, dtype, "1", "1", self.lanes, mask))
        return found

    def store_row(self, name: str, i: str, values: Sequence[str]) -> None:
        begin, dtype = self.start(name, i), self.operands[name].dtype
        for k, (value, mask) in enumerate(zip(values, self.masks(self.size(name)), strict=True)):
            place, lanes = pointer(self.writer, begin, dtype, str(k * self.lanes)), self.lanes
            if self.size(name) - k * lanes == 1:
                # LLVM 22 narrows to halves and stores one masked lane as 4 bytes on x86.
                value = self.writer.value(f"extractelement {self.type} {value}, i64 0")
                mask, lanes = None, 1
            store(self.writer, value, place, dtype, "1", "1", lanes, mask)

    def multiplied(self, a: Sequence[str], b: Sequence[str]) -> str:
        """The products of two rows, added up lane by lane."""
        if not a:
            return constant(0, self.compute, self.lanes)
        total = self.writer.value(f"fmul {self.type} {a[0]}, {b[0]}")
        for left, right in zip(a[1:], b[1:], strict=True):
            total = self.fma(left, right, total)
        return total

    def fma(self, a: str, b: str, c: str) -> str:
        name = f"llvm.fma.v{self.lanes}f{8 * self.compute.itemsize}"
        return self.writer.call(self.type, name, [(self.type, v) for v in (a, b, c)])

    def folded(self, kind: str, values: str) -> str:
        return fold_lanes(self.writer, kind, self.compute, [values], self.lanes)

    def sums(self, name: str) -> list[Slot]:
        """Zeros for the sum of an operand's rows."""
        zero = constant(0, self.compute, self.lanes)
        return [self.writer.slot(self.type, zero) for _ in self.masks(self.size(name))]

    def add_rows(self, totals: list[Slot], numbers: str, name: str, first: str, count: str) -> None:
        """Add `count` rows of an operand from `first` on, each times its number in memory."""
        writer, operand = self.writer, self.operands[name]
        begin = writer.slot("ptr", self.start(name, first))
        with writer.loop("0", count) as i:
            here = writer.value(f"getelementptr {self.scalar}, ptr {numbers}, i64 {i}")
            one = writer.value(f"load {self.scalar}, ptr {here}")
            factor = splat(writer, one, self.compute, self.lanes)
            row = writer.get(begin)
            for total, value in zip(totals, self.row_at(name, row), strict=True):
                writer.set(total, self.fma(factor, value, writer.get(total)))
            writer.set(begin, pointer(writer, row, operand.dtype, operand.strides[3]))

    # ---- scores: keys, or rows, are lanes ----

    def products(self, own: Sequence[str], name: str, first: str, count: str) -> str:
        """The products of a row with the rows of an operand from `first` on.

        Lanes from `count` on have the product of the last row before.
        """
        writer, operand = self.writer, self.operands[name]
        begin, found = self.start(name, first), []
        for lane in range(self.lanes):
            if lane:
                more = writer.value(f"icmp sgt i64 {count}, {lane}")
                step = writer.value(f"select i1 {more}, i64 {operand.strides[3]}, i64 0")
                begin = pointer(writer, begin, operand.dtype, step)
            found.append(self.multiplied(own, self.row_at(name, begin)))
        return self.added_up(found)

    def added_up(self, vectors: list[str]) -> str:
        """Of as many vectors as lanes: the sum of each, in its lane."""
        writer, half = self.writer, self.lanes // 2
        while half:
            for i in range(half):
                pair = f"{self.type} {vectors[i]}, {self.type} {vectors[i + half]}"
                every = range(self.lanes)
                low = [x if not x & half else self.lanes + x - half for x in every]
                high = [x + half if not x & half else self.lanes + x for x in every]
                parts = [
                    writer.value(
                        f"shufflevector {pair}, <{self.lanes} x i32> "
                        f"<{', '.join(f'i32 {x}' for x in picks)}>"
                    )
                    for picks in (low, high)
                ]
                total = writer.value(f"fadd {self.type} {parts[0]}, {parts[1]}")
                vectors[i] = fenced(writer, total, self.scalar, self.lanes)
            half //= 2
        return vectors[0]

    def masked(self, scores: str, row: str, key: str, by_keys: bool, valid: str) -> str:
        """Products scaled, with the mask, and -inf in lanes that are not valid."""
        writer, lowest = self.writer, constant(-math.inf, self.compute, self.lanes)
        scores = writer.value(f"fmul {self.type} {scores}, {self.scale}")
        if self.kernel.mask is not None:
            operand = self.operands["mask"]
            steps = operand.strides[3:]
            offset = writer.add(writer.mul(row, steps[0]), writer.mul(key, steps[1]))
            place = pointer(writer, self.places["mask"], operand.dtype, offset)
            step = steps[0] if by_keys else steps[1]
            mask = load(writer, place, operand.dtype, "n", step, self.lanes, valid)
            if operand.dtype is bool_:
                chosen = f"{self.type} {scores}, {self.type} {lowest}"
                scores = writer.value(f"select {self.flags} {mask}, {chosen}")
            else:
                source = compute_type(operand.dtype)
                mask = cast(writer, mask, source, self.compute, self.lanes)
                scores = writer.value(f"fadd {self.type} {scores}, {mask}")
        return self.only(valid, scores, lowest)

    def only(self, valid: str, values: str, other: str) -> str:
        return self.writer.value(
            f"select {self.flags} {valid}, {self.type} {values}, {self.type} {other}"
        )

    def dropped(self, values: Sequence[str], row: str, key: str, by_keys: bool) -> tuple[str, ...]:
        """Values after dropout; `row` and `key` are those of the first lane."""
        if not self.kernel.dropout:
            return tuple(values)
        writer = self.writer
        whole = writer.add(writer.mul(self.number, self.rows), row)
        first = lane_splat(writer, writer.add(writer.mul(whole, self.keys), key), self.lanes)
        longs, steps = vector("i64", self.lanes), lane_numbers(self.lanes)
        if by_keys:
            steps = writer.value(
                f"mul {longs} {lane_splat(writer, self.keys, self.lanes)}, {steps}"
            )
        position = writer.value(f"add {longs} {first}, {steps}")
        test = kept(param(0, int64), param(1, int64) + arg(0, int64), param(2, float32))
        bodies = (*lower((test,), fused=True), s.cast(param(3, float32), self.compute))

        def leaf(expr: Expr) -> str:
            if expr.op == "arg":
                return position
            return splat(writer, self.params[1 + int(expr.value or 0)], expr.dtype, self.lanes)

        keeps, factor = evaluate(writer, bodies, self.lanes, leaf)
        zero = constant(0, self.compute, self.lanes)
        return tuple(
            self.only(keeps, writer.value(f"fmul {self.type} {v}, {factor}"), zero) for v in values
        )

    def of(self, function: str, value: str, lanes: int) -> str:
        """exp or log."""
        x = arg(0, self.compute)
        (body,) = lower((s.exp(x) if function == "exp" else s.log(x),), fused=True)
        return evaluate(self.writer, (body,), lanes, lambda expr: value)[0]

    @contextmanager
    def blocks(self, begin: str, end: str) -> Iterator[tuple[str, str, str]]:
        """The first number, the count and the valid lanes of each vector of keys or rows."""
        with self.writer.loop(begin, end, str(self.lanes)) as first:
            left = self.writer.sub(end, first)
            yield first, left, first_lanes(self.writer, left, self.lanes)


def store_one(head: Head, name: str, i: str, value: str) -> None:
    store(head.writer, value, head.start(name, i), head.operands[name].dtype, "1", "1", 1, None)


def _last_key(head: Head, row: str) -> str:
    """The number of keys that a row sees, from the first on."""
    if not head.kernel.causal:
        return head.keys
    return head.writer.smaller(head.keys, head.writer.add(row, "1"))


def _write_output(head: Head, row: str) -> None:
    writer, compute, scalar, type_ = head.writer, head.compute, head.scalar, head.type
    q, end = head.row("q", row), _last_key(head, row)
    lowest, zero = constant(-math.inf, compute, 1), constant(0, compute, 1)
    top, total = writer.slot(scalar, lowest), writer.slot(scalar, zero)
    base = writer.slot(scalar, zero)
    made, scores = head.sums("v"), writer.array(scalar, SPAN)

    def score_at(i: str) -> str:
        return writer.value(f"getelementptr {scalar}, ptr {scores}, i64 {i}")

    with writer.loop("0", end, str(SPAN)) as first:
        count = writer.smaller(writer.sub(end, first), str(SPAN))
        highest = writer.slot(type_, constant(-math.inf, compute, head.lanes))
        with head.blocks("0", count) as (i, left, valid):
            key = writer.add(first, i)
            found = head.masked(head.products(q, "k", key, left), row, key, False, valid)
            writer.line(f"store {type_} {found}, ptr {score_at(i)}, align 64")
            old = writer.get(highest)
            above = writer.value(f"fcmp ogt {type_} {found}, {old}")
            writer.set(highest, head.only(above, found, old))
        before, here = writer.get(top), head.folded("max", writer.get(highest))
        above = writer.value(f"fcmp ogt {scalar} {here}, {before}")
        here = writer.value(f"select i1 {above}, {scalar} {here}, {scalar} {before}")
        none = writer.value(f"fcmp oeq {scalar} {here}, {lowest}")
        level = writer.value(f"select i1 {none}, {scalar} {zero}, {scalar} {here}")
        writer.set(top, here)
        writer.set(base, level)
        whole = splat(writer, level, compute, head.lanes)
        powers = writer.slot(type_, constant(0, compute, head.lanes))
        with head.blocks("0", count) as (i, _, _):
            found = writer.value(f"load {type_}, ptr {score_at(i)}, align 64")
            power = head.of("exp", writer.value(f"fsub {type_} {found}, {whole}"), head.lanes)
            writer.set(powers, writer.value(f"fadd {type_} {writer.get(powers)}, {power}"))
            (power,) = head.dropped((power,), row, writer.add(first, i), False)
            writer.line(f"store {type_} {power}, ptr {score_at(i)}, align 64")
        later = writer.value(f"icmp sgt i64 {first}, 0")
        with writer.when(later):
            factor = head.of("exp", writer.value(f"fsub {scalar} {before}, {level}"), 1)
            writer.set(total, writer.value(f"fmul {scalar} {writer.get(total)}, {factor}"))
            wide = splat(writer, factor, compute, head.lanes)
            for slot in made:
                writer.set(slot, writer.value(f"fmul {type_} {writer.get(slot)}, {wide}"))
        added = head.folded("sum", writer.get(powers))
        writer.set(total, writer.value(f"fadd {scalar} {writer.get(total)}, {added}"))
        head.add_rows(made, scores, "v", first, count)
    sum_ = writer.get(total)
    empty = writer.value(f"fcmp oeq {scalar} {sum_}, {zero}")
    safe = writer.value(f"select i1 {empty}, {scalar} {constant(1, compute, 1)}, {scalar} {sum_}")
    wide = splat(writer, safe, compute, head.lanes)
    parts = [writer.value(f"fdiv {type_} {writer.get(slot)}, {wide}") for slot in made]
    head.store_row("out", row, parts)
    log = head.of("log", safe, 1)
    store_one(head, "level", row, writer.value(f"fadd {scalar} {writer.get(base)}, {log}"))


@dataclass(frozen=True)
class Slope:
    """Vectors of one block: probabilities after dropout, and the gradient of the scores."""

    used: str
    slope: str


def _slope(
    head: Head, own: tuple[list[str], list[str]], i: str, first: str, left: str, by_keys: bool
) -> Slope:
    """Of row i, or key i, with the keys or rows from `first` on; 0 in lanes from `left` on."""
    writer, type_, lanes = head.writer, head.type, head.lanes
    valid = first_lanes(writer, left, lanes)
    row, key = (first, i) if by_keys else (i, first)
    names = ("q", "g") if by_keys else ("k", "v")
    found = head.products(own[0], names[0], first, left)
    found = head.masked(found, row, key, by_keys, valid)
    gained = head.products(own[1], names[1], first, left)
    numbers = []
    for name in ("level", "along"):
        operand = head.operands[name]
        step, place = ("n", head.start(name, first)) if by_keys else ("0", head.start(name, i))
        numbers.append(load(writer, place, operand.dtype, step, operand.strides[3], lanes, valid))
    level, along = numbers
    p = head.of("exp", writer.value(f"fsub {type_} {found}, {level}"), lanes)
    used, gained = head.dropped((p, gained), row, key, by_keys)
    rest = writer.value(f"fsub {type_} {gained}, {along}")
    zero = constant(0, head.compute, lanes)
    slope = head.only(valid, writer.value(f"fmul {type_} {p}, {rest}"), zero)
    return Slope(head.only(valid, used, zero), slope)


def _write_gradients(head: Head, own: str, by_keys: bool) -> None:
    """dq of a row, or dk and dv of a key."""
    writer, lanes = head.writer, head.lanes
    names = ("k", "v") if by_keys else ("q", "g")
    rows = (head.row(names[0], own), head.row(names[1], own))
    if by_keys:
        begin, end = own if head.kernel.causal else "0", head.rows
    else:
        begin, end = "0", _last_key(head, own)
    totals = {"q" if by_keys else "k": head.sums("k")}
    if by_keys:
        totals["g"] = head.sums("g")
    numbers = {name: writer.array(head.scalar, lanes) for name in totals}
    with head.blocks(begin, end) as (first, left, _):
        found = _slope(head, rows, own, first, left, by_keys)
        count = writer.smaller(left, str(lanes))
        for name, slots in totals.items():
            value = found.used if name == "g" else found.slope
            writer.line(f"store {head.type} {value}, ptr {numbers[name]}, align 64")
            head.add_rows(slots, numbers[name], name, first, count)
    for name, slots in totals.items():
        made = [writer.get(slot) for slot in slots]
        if name != "g":
            made = [writer.value(f"fmul {head.type} {value}, {head.scale}") for value in made]
        head.store_row("dv" if name == "g" else "dk" if by_keys else "dq", own, made)


def _write_mask(head: Head, row: str) -> None:
    """A row of a mask's gradient: the sum over dimensions of the batch in which it is shared."""
    writer, lanes, type_ = head.writer, head.lanes, head.type
    operand = head.operands["dmask"]
    seen, zero = _last_key(head, row), constant(0, head.compute, lanes)
    own, shared = [], []
    for size, step in zip((head.x, head.y, head.z), operand.strides, strict=False):
        is_shared = writer.value(f"icmp eq i64 {step}, 0")
        own.append(writer.value(f"select i1 {is_shared}, i64 1, i64 {size}"))
        shared.append(writer.value(f"select i1 {is_shared}, i64 {size}, i64 1"))
    with _every(writer, own) as first, head.blocks("0", head.keys) as (key, _, valid):
        total = writer.slot(type_, zero)
        with _every(writer, shared) as then:
            head.place_at([writer.add(i, j) for i, j in zip(first, then, strict=True)])
            rows = (head.row("q", row), head.row("g", row))
            found = _slope(head, rows, row, key, writer.sub(seen, key), False).slope
            writer.set(total, writer.value(f"fadd {type_} {writer.get(total)}, {found}"))
        head.place_at(first)
        offset = writer.mul(key, operand.strides[4])
        place = pointer(writer, head.start("dmask", row), operand.dtype, offset)
        made = cast(writer, writer.get(total), head.compute, compute_type(operand.dtype), lanes)
        store(writer, made, place, operand.dtype, "n", operand.strides[4], lanes, valid)


@contextmanager
def _every(writer: Writer, sizes: Sequence[str]) -> Iterator[list[str]]:
    """Every position in three dimensions."""
    x, y, z = sizes
    with writer.loop("0", x) as i, writer.loop("0", y) as j, writer.loop("0", z) as k:
        yield [i, j, k]
