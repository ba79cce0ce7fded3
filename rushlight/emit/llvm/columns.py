"""Rowwise kernels vectorised across columns: each lane is a reduction of its own."""

from __future__ import annotations

import itertools

from rushlight.emit.llvm.anomaly import checked_writer
from rushlight.emit.llvm.body import (
    checked_load,
    first_lanes,
    invariants,
    load,
    pointer,
    splat,
    store,
)
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.rowwise import (
    LARGE_BODY,
    Frame,
    Operand,
    Plan,
    Total,
    argument_count,
    combine,
    expressions,
    identity,
    lane_count,
    plan,
    read_frame,
    read_sizes,
)
from rushlight.emit.llvm.text import COMPUTE, FUNCTION, Slot, Writer, constant, vector
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr

RUN = 128
COLUMNS = 64


def write_counts(writer: Writer, kernel: Rowwise) -> tuple[str, str]:
    (outer, _, inner), work = read_sizes(writer, kernel)
    return writer.mul(
        outer, writer.divided_up(inner, 1 if kernel.vector == "any" else COLUMNS)
    ), work


def functions(kernel: Rowwise, declared: set[str]) -> list[str]:
    """A task is one outer position and a block of columns: whole spans, then masked vectors."""
    planned = plan(kernel)
    writer = checked_writer(Writer(declared), kernel, argument_count(kernel))
    frame, width = read_frame(writer, planned), lane_count(kernel)
    columns = 1 if width == 1 else COLUMNS
    span = 1 if width == 1 else width * (4 if len(expressions(kernel)) < 2 * LARGE_BODY else 2)
    blocks = writer.divided_up(frame.inner, columns)
    with writer.loop("%begin", "%end") as task:
        o = writer.value(f"sdiv i64 {task}, {blocks}")
        first = writer.mul(writer.value(f"srem i64 {task}, {blocks}"), str(columns))
        end = writer.smaller(writer.add(first, str(columns)), frame.inner)
        position = writer.slot("i64", first)
        with writer.loop(position, writer.sub(end, str(span - 1)), str(span)) as i:
            _place_columns(writer, frame, o, i)
            AcrossColumns(writer, planned, frame, width, span // width, None).write()
        if width > 1:
            with writer.loop(position, end, str(width)) as i:
                _place_columns(writer, frame, o, i)
                mask = first_lanes(writer, writer.sub(end, i), width)
                AcrossColumns(writer, planned, frame, width, 1, mask).write()
    return [writer.function(FUNCTION.format(name="kernel"))]


def _place_columns(writer: Writer, frame: Frame, o: str, i: str) -> None:
    for operand in frame.operands:
        offset = writer.add(writer.mul(o, operand.strides[0]), writer.mul(i, operand.strides[2]))
        operand.place = pointer(writer, operand.base, operand.dtype, offset)


class AcrossColumns:
    """`parts` vectors of neighbouring columns, from the first reduction to the last store."""

    def __init__(
        self, writer: Writer, plan: Plan, frame: Frame, width: int, parts: int, mask: str | None
    ) -> None:
        self.writer, self.plan, self.frame = writer, plan, frame
        self.width, self.parts, self.mask = width, parts, mask
        self.rows: list[list[str]] = []

    def write(self) -> None:
        kernel = self.frame.kernel
        for stage in self.plan.stages:
            keep = self.plan.kept if stage is self.plan.stages[-1] else None
            self.rows += self._reduce(kernel.passes[stage.start : stage.stop], keep)
        once, each = self.frame.which("row"), self.frame.which("element")
        values = [
            self._evaluate(tuple(kernel.stores[i] for i in once), "0", p, {})
            for p in range(self.parts)
        ]
        if each:
            roots = tuple(kernel.stores[i] for i in each)
            known = self._hoist(roots)
            with self.writer.loop("0", self.frame.axis) as a:
                for part in range(self.parts):
                    self._store(each, self._evaluate(roots, a, part, known[part]), a, part)
        for part in range(self.parts):
            self._store(once, values[part], "0", part)

    def _reduce(self, reduces: tuple[Reduce, ...], keep: int | None) -> list[list[str]]:
        """The rows of a stage, each in as many vectors as there are parts."""
        writer, axis, width = self.writer, self.frame.axis, self.width
        bodies = tuple(reduce.body for reduce in reduces)
        known = self._hoist(bodies)
        totals = [[Total(writer, reduce, width) for _ in range(self.parts)] for reduce in reduces]
        with writer.loop("0", axis, str(RUN)) as begin:
            end = writer.smaller(writer.add(begin, str(RUN)), axis)
            sums = [[self._sum(reduce) for _ in range(self.parts)] for reduce in reduces]
            with writer.loop(begin, end) as a:
                for part in range(self.parts):
                    values = self._evaluate(bodies, a, part, known[part])
                    if keep is not None:
                        self._store([keep], [values[-1]], a, part, self.plan.finished)
                    for reduce, slots, value in zip(reduces, sums, values, strict=True):
                        old = writer.get(slots[part])
                        writer.set(
                            slots[part],
                            combine(writer, reduce.kind, reduce.body.dtype, value, old, width),
                        )
            for total, slot in zip(itertools.chain(*totals), itertools.chain(*sums), strict=True):
                total.take(writer.get(slot))
        return [[total.result() for total in each] for each in totals]

    def _sum(self, reduce: Reduce) -> Slot:
        dtype = reduce.body.dtype
        neutral = constant(identity(reduce.kind, dtype), dtype, self.width)
        return self.writer.slot(vector(COMPUTE[dtype], self.width), neutral)

    def _place(self, operand: Operand, a: str, part: int) -> str:
        offset = self.writer.mul(a, operand.strides[1])
        if part and operand.step == "1":
            offset = self.writer.add(offset, str(part * self.width))
        elif part:
            offset = self.writer.add(
                offset, self.writer.mul(operand.strides[2], str(part * self.width))
            )
        return pointer(self.writer, operand.place, operand.dtype, offset)

    def _store(
        self, chosen: list[int], values: list[str], a: str, part: int, last: bool = True
    ) -> None:
        for k, value in zip(chosen, values, strict=True):
            output = self.frame.outputs[k]
            place = self._place(output, a, part)
            step, stride = output.step, output.strides[2]
            store(
                self.writer, value, place, output.dtype, step, stride, self.width, self.mask, last
            )

    def _hoist(self, roots: tuple[Expr, ...]) -> list[dict[Expr, str]]:
        """Loop invariants along the axis, for each part."""
        still = invariants(roots, lambda e: e.op in ("arg", "index"))
        values = [self._evaluate(still, "0", part, {}) for part in range(self.parts)]
        return [dict(zip(still, each, strict=True)) for each in values]

    def _evaluate(
        self, roots: tuple[Expr, ...], a: str, part: int, known: dict[Expr, str]
    ) -> list[str]:
        """The expressions at axis position a, for the columns of one part."""
        writer, frame, width = self.writer, self.frame, self.width

        def leaf(expr: Expr) -> str:
            k = int(expr.value or 0)
            if expr.op == "arg":
                operand = frame.inputs[k]
                place = self._place(operand, a, part)
                found = load(
                    writer, place, operand.dtype, operand.step, operand.strides[2], width, self.mask
                )
                return checked_load(writer, k, expr, found, width)
            if expr.op == "row":
                return self.rows[k][part]
            scalar = (
                a if expr.op == "index" else frame.axis if expr.op == "extent" else frame.params[k]
            )
            return splat(writer, scalar, expr.dtype, width)

        return evaluate(writer, roots, width, leaf, known)
