"""Rowwise kernels: several reductions along one axis, then stores.

# Note [Order of a reduction]
The order is fixed by the axis length alone. Along the axis ("axis"): blocks of BLOCK positions; inside a block PARTS vectors
of partial results take turns, the rest of the block goes to the first; then a tree over parts and lanes; then blocks ascending.
Across columns ("inner", "any"): blocks of RUN positions, ascending. Float sums add the blocks with an error term (2Sum),
so that long sums stay accurate.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType
from rushlight.emit.llvm_body import (
    evaluate,
    extreme,
    first_lanes,
    invariants,
    lane_numbers,
    load,
    pointer,
    splat,
    store,
)
from rushlight.emit.llvm_text import COMPUTE, Arguments, Slot, Writer, constant, vector
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr, topological

BLOCK = 8192
PARTS = 4
RUN = 128
COLUMNS = 64


@dataclass
class Operand:
    """One output or input: its type, its step and where the current row or column begins."""

    dtype: DType
    step: str
    base: str
    strides: list[str]  # outer, axis, inner
    place: str = ""


@dataclass
class Frame:
    """A Rowwise kernel's arguments, by name."""

    kernel: Rowwise
    outputs: list[Operand]
    inputs: list[Operand]
    outer: str
    axis: str
    inner: str
    params: list[str]


def read_frame(writer: Writer, kernel: Rowwise) -> Frame:
    arguments = Arguments(writer)
    dtypes = (*kernel.outputs, *kernel.inputs)
    bases = [arguments.address() for _ in dtypes]
    outer, axis, inner = arguments.words(3)
    strides = [arguments.words(3) for _ in dtypes]
    params = [arguments.param(d) for d in kernel.params]
    operands = [Operand(d, s, b, t) for d, s, b, t in zip(dtypes, kernel.steps, bases, strides, strict=True)]
    count = len(kernel.outputs)
    return Frame(kernel, operands[:count], operands[count:], outer, axis, inner, params)


def expressions(kernel: Rowwise) -> list[Expr]:
    return topological((*(p.body for p in kernel.passes), *kernel.stores))


def lane_count(kernel: Rowwise) -> int:
    if kernel.vector == "any":
        return 1
    types = (*kernel.outputs, *kernel.inputs, *(e.dtype for e in expressions(kernel) if e.op != "extent"))
    return 8 if max(d.itemsize for d in types) == 8 else 16


def write_counts(writer: Writer, kernel: Rowwise) -> tuple[str, str]:
    arguments = Arguments(writer)
    arguments.next = len(kernel.outputs) + len(kernel.inputs)
    outer, axis, inner = arguments.words(3)
    weight = max(1, len(expressions(kernel)) // 4)
    work = writer.mul(writer.mul(writer.mul(outer, axis), inner), str(weight))
    if kernel.vector == "axis":
        return outer, work
    return writer.mul(outer, writer.divided_up(inner, 1 if kernel.vector == "any" else COLUMNS)), work


def write_kernel(writer: Writer, kernel: Rowwise) -> None:
    frame = read_frame(writer, kernel)
    if kernel.vector == "axis":
        with writer.loop("%begin", "%end") as o:
            for operand in frame.outputs + frame.inputs:
                offset = writer.mul(o, operand.strides[0])
                operand.place = pointer(writer, operand.base, operand.dtype, offset)
            AlongAxis(writer, frame).write()
    else:
        _write_columns(writer, frame)


def _write_columns(writer: Writer, frame: Frame) -> None:
    """A task is one outer position and a block of columns: whole spans, then masked vectors."""
    width = lane_count(frame.kernel)
    columns = 1 if width == 1 else COLUMNS
    span = 1 if width == 1 else width * (4 if len(expressions(frame.kernel)) < 24 else 1)
    blocks = writer.divided_up(frame.inner, columns)
    with writer.loop("%begin", "%end") as task:
        o = writer.value(f"sdiv i64 {task}, {blocks}")
        first = writer.mul(writer.value(f"srem i64 {task}, {blocks}"), str(columns))
        end = writer.smaller(writer.add(first, str(columns)), frame.inner)
        position = writer.slot("i64", first)
        with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as i:
            _place_columns(writer, frame, o, i)
            AcrossColumns(writer, frame, width, span // width, None).write()
        if width > 1:
            with writer.loop(position, end, str(width)) as i:
                _place_columns(writer, frame, o, i)
                mask = first_lanes(writer, writer.sub(end, i), width)
                AcrossColumns(writer, frame, width, 1, mask).write()


def _place_columns(writer: Writer, frame: Frame, o: str, i: str) -> None:
    for operand in frame.outputs + frame.inputs:
        offset = writer.add(writer.mul(o, operand.strides[0]), writer.mul(i, operand.strides[2]))
        operand.place = pointer(writer, operand.base, operand.dtype, offset)


# ---- reductions -------------------------------------------------------------------------------------------


def identity(kind: str, dtype: DType) -> float | int | bool:
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.kind == "f":
        return float("-inf") if kind == "max" else float("inf")
    if dtype.kind in "bu":
        return 0 if kind == "max" else (1 << 32) - 1 if dtype.kind == "u" else True
    bits = dtype.itemsize * 8 - 1
    return -(1 << bits) if kind == "max" else (1 << bits) - 1


def combine(writer: Writer, kind: str, dtype: DType, new: str, old: str, width: int) -> str:
    if kind in ("min", "max"):
        return extreme(writer, kind, dtype, new, old, width)
    name = ("f" if dtype.kind == "f" else "") + ("add" if kind == "sum" else "mul")
    return writer.value(f"{name} {vector(COMPUTE[dtype], width)} {old}, {new}")


class Total:
    """The running result over blocks."""

    def __init__(self, writer: Writer, reduce: Reduce, width: int) -> None:
        self.writer, self.kind, self.dtype, self.width = writer, reduce.kind, reduce.body.dtype, width
        self.type = vector(COMPUTE[self.dtype], width)
        self.slot = writer.slot(self.type, constant(identity(self.kind, self.dtype), self.dtype, width))
        self.error: Slot | None = None
        if self.kind == "sum" and self.dtype.kind == "f":
            self.error = writer.slot(self.type, constant(0, self.dtype, width))

    def take(self, block: str) -> None:
        """Fold one block's result in; a float sum keeps what rounding lost (Knuth's 2Sum)."""
        writer, type_ = self.writer, self.type
        old = writer.get(self.slot)
        new = combine(writer, self.kind, self.dtype, block, old, self.width)
        writer.set(self.slot, new)
        if self.error is None:
            return
        part = writer.value(f"fsub {type_} {new}, {old}")
        rest = writer.value(f"fsub {type_} {old}, {writer.value(f'fsub {type_} {new}, {part}')}")
        lost = writer.value(f"fadd {type_} {rest}, {writer.value(f'fsub {type_} {block}, {part}')}")
        writer.set(self.error, writer.value(f"fadd {type_} {writer.get(self.error)}, {lost}"))

    def result(self) -> str:
        writer, type_ = self.writer, self.type
        total = writer.get(self.slot)
        if self.error is None:
            return total
        # Infinite totals have a meaningless error term.
        gone = writer.value(f"fsub {type_} {total}, {total}")
        finite = writer.value(f"fcmp oeq {type_} {gone}, {constant(0, self.dtype, self.width)}")
        whole = writer.value(f"fadd {type_} {total}, {writer.get(self.error)}")
        return writer.value(f"select {vector('i1', self.width)} {finite}, {type_} {whole}, {type_} {total}")


def fold_lanes(writer: Writer, kind: str, dtype: DType, parts: list[str], width: int) -> str:
    """A tree over the parts, then over the lanes of the one that is left."""
    while len(parts) > 1:
        parts = [combine(writer, kind, dtype, b, a, width) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    value = parts[0]
    while width > 1:
        type_, half = vector(COMPUTE[dtype], width), width // 2
        halves = []
        for lanes in (range(half), range(half, width)):
            chosen = ", ".join(f"i32 {i}" for i in lanes)
            picked = writer.value(f"shufflevector {type_} {value}, {type_} poison, <{half} x i32> <{chosen}>")
            halves.append(picked)
        if half == 1:
            one = vector(COMPUTE[dtype], 1)
            halves = [writer.value(f"extractelement <1 x {one}> {h}, i64 0") for h in halves]
        value = combine(writer, kind, dtype, halves[1], halves[0], half)
        width = half
    return value


# ---- along the axis ---------------------------------------------------------------------------------------


class AlongAxis:
    """One row, vectors along the axis: rows are scalars."""

    def __init__(self, writer: Writer, frame: Frame) -> None:
        self.writer, self.frame = writer, frame
        self.width = lane_count(frame.kernel)
        self.rows: list[str] = []

    def write(self) -> None:
        kernel = self.frame.kernel
        for reduce in kernel.passes:
            self.rows.append(self._reduce(reduce))
        once = [i for i, kind in enumerate(kernel.kinds) if kind == "row"]
        values = self._evaluate(tuple(kernel.stores[i] for i in once), "0", 1, None, {})
        self._store_elements()
        for i, value in zip(once, values, strict=True):
            output = self.frame.outputs[i]
            store(self.writer, value, output.place, output.dtype, "1", "1", 1, None)

    def _reduce(self, reduce: Reduce) -> str:
        writer, axis, width = self.writer, self.frame.axis, self.width
        kind, dtype = reduce.kind, reduce.body.dtype
        type_ = vector(COMPUTE[dtype], width)
        neutral = constant(identity(kind, dtype), dtype, width)
        total = Total(writer, reduce, 1)
        known = self._hoist((reduce.body,))
        with writer.loop("0", axis, str(BLOCK)) as begin:
            end = writer.smaller(writer.add(begin, str(BLOCK)), axis)
            parts = [writer.slot(type_, neutral) for _ in range(PARTS)]
            position = writer.slot("i64", begin)
            # A large body is written once, the partial results moving on by one place each time.
            turns = PARTS if len(topological((reduce.body,))) < 12 else 1
            span = width * turns
            with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as i:
                for k in range(turns):
                    (value,) = self._evaluate((reduce.body,), writer.add(i, str(k * width)), width, None, known)
                    old = [writer.get(part) for part in parts]
                    old[0] = combine(writer, kind, dtype, value, old[0], width)
                    for part, moved in zip(parts, old[1:] + old[:1], strict=True):
                        writer.set(part, moved)
            with writer.loop(position, end, str(width)) as i:
                mask = first_lanes(writer, writer.sub(end, i), width)
                (value,) = self._evaluate((reduce.body,), i, width, mask, known)
                kept = writer.value(f"select {vector('i1', width)} {mask}, {type_} {value}, {type_} {neutral}")
                writer.set(parts[0], combine(writer, kind, dtype, kept, writer.get(parts[0]), width))
            total.take(fold_lanes(writer, kind, dtype, [writer.get(p) for p in parts], width))
        return total.result()

    def _store_elements(self) -> None:
        writer, kernel, axis, width = self.writer, self.frame.kernel, self.frame.axis, self.width
        chosen = [i for i, kind in enumerate(kernel.kinds) if kind == "element"]
        if not chosen:
            return
        roots = tuple(kernel.stores[i] for i in chosen)
        position = writer.slot("i64", "0")
        known = self._hoist(roots)
        unroll = 4 if len(topological(roots)) < 12 else 1
        span = width * unroll
        with writer.loop(position, writer.sub(axis, str(span - 1)), str(span)) as i:
            for part in range(unroll):
                here = writer.add(i, str(part * width))
                self._store_vector(chosen, self._evaluate(roots, here, width, None, known), here, None)
        with writer.loop(position, axis, str(width)) as i:
            mask = first_lanes(writer, writer.sub(axis, i), width)
            self._store_vector(chosen, self._evaluate(roots, i, width, mask, known), i, mask)

    def _store_vector(self, chosen: list[int], values: list[str], i: str, mask: str | None) -> None:
        writer = self.writer
        for k, value in zip(chosen, values, strict=True):
            output = self.frame.outputs[k]
            stride = output.strides[1]
            offset = i if output.step == "1" else writer.mul(i, stride)
            place = pointer(writer, output.place, output.dtype, offset)
            store(writer, value, place, output.dtype, output.step, stride, self.width, mask)

    def _hoist(self, roots: tuple[Expr, ...]) -> dict[Expr, str]:
        """What does not change along the row, in every lane."""
        still = invariants(roots, lambda e: e.op in ("arg", "index"))
        values = self._evaluate(still, "0", 1, None, {})
        return {e: splat(self.writer, v, e.dtype, self.width) for e, v in zip(still, values, strict=True)}

    def _evaluate(
        self, roots: tuple[Expr, ...], i: str, width: int, mask: str | None, known: dict[Expr, str]
    ) -> list[str]:
        """The expressions at axis positions i, i+1, ..."""
        writer, frame = self.writer, self.frame

        def leaf(expr: Expr) -> str:
            k = int(expr.value or 0)
            if expr.op == "arg":
                operand = frame.inputs[k]
                stride = operand.strides[1]
                offset = i if operand.step == "1" else writer.mul(i, stride)
                place = operand.place if operand.step == "0" else pointer(writer, operand.place, operand.dtype, offset)
                return load(writer, place, operand.dtype, operand.step, stride, width, mask)
            if expr.op == "index":
                here = splat(writer, i, expr.dtype, width)
                numbers = "0" if width == 1 else lane_numbers(width)
                return writer.value(f"add {vector('i64', width)} {here}, {numbers}")
            scalar = frame.axis if expr.op == "extent" else (frame.params if expr.op == "param" else self.rows)[k]
            return splat(writer, scalar, expr.dtype, width)

        return evaluate(writer, roots, width, leaf, known)


# ---- across columns ---------------------------------------------------------------------------------------


class AcrossColumns:
    """`parts` vectors of neighbouring columns: rows are vectors, and each lane is a reduction of its own."""

    def __init__(self, writer: Writer, frame: Frame, width: int, parts: int, mask: str | None) -> None:
        self.writer, self.frame, self.width, self.parts, self.mask = writer, frame, width, parts, mask
        self.rows: list[list[str]] = []

    def write(self) -> None:
        kernel = self.frame.kernel
        for reduce in kernel.passes:
            self.rows.append(self._reduce(reduce))
        once = [i for i, kind in enumerate(kernel.kinds) if kind == "row"]
        each = [i for i, kind in enumerate(kernel.kinds) if kind == "element"]
        values = [self._evaluate(tuple(kernel.stores[i] for i in once), "0", p, {}) for p in range(self.parts)]
        if each:
            roots = tuple(kernel.stores[i] for i in each)
            known = self._hoist(roots)
            with self.writer.loop("0", self.frame.axis) as a:
                for part in range(self.parts):
                    self._store(each, self._evaluate(roots, a, part, known[part]), a, part)
        for part in range(self.parts):
            self._store(once, values[part], "0", part)

    def _reduce(self, reduce: Reduce) -> list[str]:
        writer, axis, width = self.writer, self.frame.axis, self.width
        kind, dtype = reduce.kind, reduce.body.dtype
        type_ = vector(COMPUTE[dtype], width)
        neutral = constant(identity(kind, dtype), dtype, width)
        known = self._hoist((reduce.body,))
        totals = [Total(writer, reduce, width) for _ in range(self.parts)]
        with writer.loop("0", axis, str(RUN)) as begin:
            end = writer.smaller(writer.add(begin, str(RUN)), axis)
            sums = [writer.slot(type_, neutral) for _ in range(self.parts)]
            with writer.loop(begin, end) as a:
                for part, slot in enumerate(sums):
                    (value,) = self._evaluate((reduce.body,), a, part, known[part])
                    writer.set(slot, combine(writer, kind, dtype, value, writer.get(slot), width))
            for total, slot in zip(totals, sums, strict=True):
                total.take(writer.get(slot))
        return [total.result() for total in totals]

    def _place(self, operand: Operand, a: str, part: int) -> str:
        offset = self.writer.mul(a, operand.strides[1])
        if part and operand.step == "1":
            offset = self.writer.add(offset, str(part * self.width))
        elif part:
            offset = self.writer.add(offset, self.writer.mul(operand.strides[2], str(part * self.width)))
        return pointer(self.writer, operand.place, operand.dtype, offset)

    def _store(self, chosen: list[int], values: list[str], a: str, part: int) -> None:
        for k, value in zip(chosen, values, strict=True):
            output = self.frame.outputs[k]
            place = self._place(output, a, part)
            store(self.writer, value, place, output.dtype, output.step, output.strides[2], self.width, self.mask)

    def _hoist(self, roots: tuple[Expr, ...]) -> list[dict[Expr, str]]:
        """What does not change along the axis, for each part."""
        still = invariants(roots, lambda e: e.op in ("arg", "index"))
        values = [self._evaluate(still, "0", part, {}) for part in range(self.parts)]
        return [dict(zip(still, each, strict=True)) for each in values]

    def _evaluate(self, roots: tuple[Expr, ...], a: str, part: int, known: dict[Expr, str]) -> list[str]:
        """The expressions at axis position a, for the columns of one part."""
        writer, frame, width = self.writer, self.frame, self.width

        def leaf(expr: Expr) -> str:
            k = int(expr.value or 0)
            if expr.op == "arg":
                operand = frame.inputs[k]
                place = self._place(operand, a, part)
                return load(writer, place, operand.dtype, operand.step, operand.strides[2], width, self.mask)
            if expr.op == "row":
                return self.rows[k][part]
            scalar = a if expr.op == "index" else frame.axis if expr.op == "extent" else frame.params[k]
            return splat(writer, scalar, expr.dtype, width)

        return evaluate(writer, roots, width, leaf, known)

