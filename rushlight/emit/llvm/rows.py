"""Rowwise kernels vectorised along the axis: a row is a scalar.

`block<s>` folds a part of the axis in stage s (Note [Stages]), `elements` stores a part of it. The
kernel function calls them for each row. When there are few rows and they are long, `launch` calls
them through the runner instead, a block being a task; the blocks and their order are the same
(Note [Order of a reduction]), so the bits are too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.anomaly import checked_writer
from rushlight.emit.llvm.body import (
    checked_load,
    first_lanes,
    invariants,
    lane_numbers,
    load,
    pointer,
    splat,
    store,
)
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.partial import PARTS, Partial
from rushlight.emit.llvm.rowwise import (
    LARGE_BODY,
    Frame,
    Operand,
    Plan,
    Total,
    argument_count,
    lane_count,
    numbers_of,
    plan,
    read_frame,
    read_sizes,
    slot_count,
    used_inputs,
)
from rushlight.emit.llvm.text import COMPUTE, FUNCTION, LAUNCH, UNOPTIMISED, Writer, vector
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr, topological

BLOCK = 8192
MANY_STAGES = 4
FEW_ROWS, LONG_AXIS = 16, 4 * BLOCK
ROUND = 4096  # blocks that `launch` has in flight at once


def write_counts(writer: Writer, kernel: Rowwise) -> tuple[str, str]:
    (outer, _, _), work = read_sizes(writer, kernel)
    return outer, work


def functions(kernel: Rowwise, declared: set[str]) -> list[str]:
    """The kernel function, its launch and the functions they call."""
    planned = plan(kernel)
    texts = [_block_function(planned, s, declared) for s in range(len(planned.stages))]
    if _has_elements(planned):
        texts.append(_elements_function(planned, declared))
    if _has_long_rows(planned):
        texts.append(_rows_function(planned, declared))
    return [
        *texts,
        *(
            write(planned, declared)
            for write in (_kernel_function, _part_function, _launch_function)
        ),
    ]


def _has_elements(plan: Plan) -> bool:
    """Whether elements remain to be stored after the passes."""
    return "element" in plan.kernel.kinds and not plan.finished


def _row_stores(plan: Plan) -> tuple[tuple[Expr, ...], list[int]]:
    """The formulas of the row outputs, and the numbers of these outputs."""
    chosen = numbers_of(plan.kernel, "row")
    return tuple(plan.kernel.stores[i] for i in chosen), chosen


def _has_long_rows(plan: Plan) -> bool:
    """Whether the formulas of the row outputs are long and independent enough for a function."""
    return not _has_elements(plan) and len(topological(_row_stores(plan)[0])) >= LARGE_BODY


def _row_names(plan: Plan, count: int) -> list[tuple[str, str]]:
    """(type, name) of the rows of earlier passes, as function parameters."""
    return [(COMPUTE[p.body.dtype], f"%r{k}") for k, p in enumerate(plan.kernel.passes[:count])]


def _head(result: str, name: str, rows: list[tuple[str, str]]) -> str:
    listed = "".join(f", {t} {n}" for t, n in rows)
    span = "i64 %o, i64 %begin, i64 %end"
    return (
        f"define internal {result} @{name}(ptr readonly %args, {span}{listed}) noinline "
        '"prefer-vector-width"="512"'
    )


def _call(
    writer: Writer,
    result: str,
    name: str,
    o: str,
    begin: str,
    end: str,
    rows: list[tuple[str, str]],
) -> str:
    listed = "".join(f", {t} {v}" for t, v in rows)
    text = f"call {result} @{name}(ptr %args, i64 {o}, i64 {begin}, i64 {end}{listed})"
    if result == "void":
        writer.line(text)
        return ""
    return writer.value(text)


class Row:
    """Row %o of the kernel, in the function being written."""

    def __init__(
        self,
        writer: Writer,
        plan: Plan,
        o: str,
        rows: list[str],
        roots: tuple[Expr, ...],
        outputs: list[int],
    ) -> None:
        """For the expressions `roots`, stored in the outputs of these numbers."""
        self.writer, self.plan, self.rows = writer, plan, rows
        self.frame: Frame = read_frame(writer, plan, [*outputs, *used_inputs(plan, roots)])
        self.width = lane_count(plan.kernel)
        self.move_to(o)

    def move_to(self, o: str) -> None:
        for operand in {id(p): p for p in self.frame.operands if p.base}.values():
            offset = self.writer.mul(o, operand.strides[0])
            operand.place = pointer(self.writer, operand.base, operand.dtype, offset)

    def place(self, operand: Operand, i: str) -> str:
        """The operand's address at axis position i."""
        if operand.step == "0":
            return operand.place
        offset = i if operand.step == "1" else self.writer.mul(i, operand.strides[1])
        return pointer(self.writer, operand.place, operand.dtype, offset)

    def hoist(self, roots: tuple[Expr, ...]) -> dict[Expr, str]:
        """Loop invariants of the row, in every lane."""
        still = invariants(roots, lambda e: e.op in ("arg", "index"))
        values = self.evaluate(still, "0", 1, None, {})
        return {
            e: splat(self.writer, v, e.dtype, self.width)
            for e, v in zip(still, values, strict=True)
        }

    def evaluate(
        self, roots: tuple[Expr, ...], i: str, width: int, mask: str | None, known: dict[Expr, str]
    ) -> list[str]:
        """The expressions at axis positions i, i+1, ..."""
        writer, frame = self.writer, self.frame

        def leaf(expr: Expr) -> str:
            k = int(expr.value or 0)
            if expr.op == "arg":
                operand = frame.inputs[k]
                place = self.place(operand, i)
                found = load(
                    writer, place, operand.dtype, operand.step, operand.strides[1], width, mask
                )
                return checked_load(writer, k, expr, found, width)
            if expr.op == "index":
                here = splat(writer, i, expr.dtype, width)
                numbers = "0" if width == 1 else lane_numbers(width)
                return writer.value(f"add {vector('i64', width)} {here}, {numbers}")
            scalar = (
                frame.axis
                if expr.op == "extent"
                else (frame.params if expr.op == "param" else self.rows)[k]
            )
            return splat(writer, scalar, expr.dtype, width)

        return evaluate(writer, roots, width, leaf, known)

    def store(self, k: int, value: str, i: str, mask: str | None, last: bool = True) -> None:
        """A vector of output k at axis position i."""
        output = self.frame.outputs[k]
        place = self.place(output, i)
        store(
            self.writer,
            value,
            place,
            output.dtype,
            output.step,
            output.strides[1],
            self.width,
            mask,
            last,
        )

    def store_rows(self, values: list[str]) -> None:
        for k, value in zip(self.frame.which("row"), values, strict=True):
            output = self.frame.outputs[k]
            store(self.writer, value, output.place, output.dtype, "1", "1", 1, None)

    def row_values(self) -> list[str]:
        stores = self.plan.kernel.stores
        return self.evaluate(tuple(stores[i] for i in self.frame.which("row")), "0", 1, None, {})


# ---- one block ----


def _block_function(plan: Plan, s: int, declared: set[str]) -> str:
    """Stage s over the axis positions %begin..%end of row %o."""
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    stage = plan.stages[s]
    rows = _row_names(plan, stage.start)
    reduces = _reduces(plan, s)
    keep = plan.kept if s == len(plan.stages) - 1 else None
    bodies = tuple(reduce.body for reduce in reduces)
    row = Row(writer, plan, "%o", [n for _, n in rows], bodies, [] if keep is None else [keep])
    values = _write_block(row, reduces, keep)
    result = _result(reduces)
    packed = _pack(
        writer, result, [(COMPUTE[r.body.dtype], v) for r, v in zip(reduces, values, strict=True)]
    )
    return writer.function(_head(result, f"block{s}", rows), f"{result} {packed}")


def _reduces(plan: Plan, s: int) -> tuple[Reduce, ...]:
    stage = plan.stages[s]
    return plan.kernel.passes[stage.start : stage.stop]


def _result(reduces: tuple[Reduce, ...]) -> str:
    """A block's result type: a number for each pass of its stage."""
    types = [COMPUTE[reduce.body.dtype] for reduce in reduces]
    return types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"


def _pack(writer: Writer, result: str, values: list[tuple[str, str]]) -> str:
    if len(values) == 1:
        return values[0][1]
    packed = "poison"
    for k, (type_, value) in enumerate(values):
        packed = writer.value(f"insertvalue {result} {packed}, {type_} {value}, {k}")
    return packed


def _unpack(writer: Writer, reduces: tuple[Reduce, ...], packed: str) -> list[str]:
    if len(reduces) == 1:
        return [packed]
    return [
        writer.value(f"extractvalue {_result(reduces)} {packed}, {k}") for k in range(len(reduces))
    ]


def _write_block(row: Row, reduces: tuple[Reduce, ...], keep: int | None) -> list[str]:
    writer, width = row.writer, row.width
    bodies = tuple(reduce.body for reduce in reduces)
    known = row.hoist(bodies)
    partials = [Partial(writer, reduce, width) for reduce in reduces]
    position = writer.slot("i64", "%begin")
    turns = PARTS if len(topological(bodies)) < LARGE_BODY else 1
    span = width * turns
    with writer.loop(position, writer.sub("%end", str(span - 1)), str(span)) as i:
        for k in range(turns):
            here = writer.add(i, str(k * width))
            values = row.evaluate(bodies, here, width, None, known)
            if keep is not None:
                row.store(keep, values[-1], here, None, row.plan.finished)
            for partial, value in zip(partials, values, strict=True):
                partial.take(value)
    with writer.loop(position, "%end", str(width)) as i:
        mask = first_lanes(writer, writer.sub("%end", i), width)
        values = row.evaluate(bodies, i, width, mask, known)
        if keep is not None:
            row.store(keep, values[-1], i, mask, row.plan.finished)
        for partial, value in zip(partials, values, strict=True):
            partial.take_rest(value, mask)
    shared = len(row.plan.stages) >= MANY_STAGES
    return [partial.result(shared) for partial in partials]


def _elements_function(plan: Plan, declared: set[str]) -> str:
    """The element stores at the axis positions %begin..%end of row %o."""
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    rows = _row_names(plan, len(plan.kernel.passes))
    chosen = numbers_of(plan.kernel, "element")
    roots = tuple(plan.kernel.stores[i] for i in chosen)
    row = Row(writer, plan, "%o", [n for _, n in rows], roots, chosen)
    width = row.width
    known = row.hoist(roots)
    position = writer.slot("i64", "%begin")
    unroll = 4 if len(topological(roots)) < LARGE_BODY else 1
    span = width * unroll
    with writer.loop(position, writer.sub("%end", str(span - 1)), str(span)) as i:
        for part in range(unroll):
            here = writer.add(i, str(part * width))
            for k, value in zip(chosen, row.evaluate(roots, here, width, None, known), strict=True):
                row.store(k, value, here, None)
    with writer.loop(position, "%end", str(width)) as i:
        mask = first_lanes(writer, writer.sub("%end", i), width)
        for k, value in zip(chosen, row.evaluate(roots, i, width, mask, known), strict=True):
            row.store(k, value, i, mask)
    return writer.function(_head("void", "elements", rows))


def _rows_function(plan: Plan, declared: set[str]) -> str:
    """The row outputs of row %o."""
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    rows = _row_names(plan, len(plan.kernel.passes))
    row = Row(writer, plan, "%o", [n for _, n in rows], *_row_stores(plan))
    row.store_rows(row.row_values())
    return writer.function(_head("void", "rows", rows))


# ---- many rows, or few long ones ----


def _finish_row(row: Row, o: str, write_elements: Callable[[], object]) -> None:
    """After the passes: the row outputs, and the elements that remain."""
    plan = row.plan
    if _has_long_rows(plan):
        made = [
            (COMPUTE[p.body.dtype], name)
            for p, name in zip(plan.kernel.passes, row.rows, strict=True)
        ]
        _call(row.writer, "void", "rows", o, "0", "0", made)
        return
    values = row.row_values()  # before elements are written over inputs
    if _has_elements(plan):
        write_elements()
    row.store_rows(values)


def _kernel_function(plan: Plan, declared: set[str]) -> str:
    """A task is a row."""
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    row = Row(writer, plan, "0", [], *(((), []) if _has_long_rows(plan) else _row_stores(plan)))
    with writer.loop("%begin", "%end") as o:
        row.move_to(o)
        row.rows = []
        made: list[tuple[str, str]] = []
        for s in range(len(plan.stages)):
            reduces = _reduces(plan, s)
            totals = [Total(writer, reduce, 1) for reduce in reduces]
            with writer.loop("0", row.frame.axis, str(BLOCK)) as begin:
                end = writer.smaller(writer.add(begin, str(BLOCK)), row.frame.axis)
                block = _call(writer, _result(reduces), f"block{s}", o, begin, end, made)
                for total, value in zip(totals, _unpack(writer, reduces, block), strict=True):
                    total.take(value)
            results = [total.result() for total in totals]
            row.rows += results
            made += [(COMPUTE[r.body.dtype], v) for r, v in zip(reduces, results, strict=True)]
        _finish_row(row, o, lambda: _call(writer, "void", "elements", o, "0", row.frame.axis, made))
    many = len(plan.stages) >= MANY_STAGES  # it only calls them
    return writer.function(FUNCTION.format(name="kernel") + (UNOPTIMISED if many else ""))


class Job:
    """What `launch` gives to the runner.

    Its arguments, then row number, partial results, first block, rows, stage; the stage after the
    last is the elements.
    """

    def __init__(self, writer: Writer, plan: Plan, base: str) -> None:
        self.writer, self.base, self.first = writer, base, slot_count(plan.kernel)
        self.passes = plan.kernel.passes

    def place(self, number: int) -> str:
        return self.writer.value(f"getelementptr i64, ptr {self.base}, i64 {self.first + number}")

    def put(self, number: int, type_: str, value: str) -> None:
        self.writer.line(f"store {type_} {value}, ptr {self.place(number)}")

    def get(self, number: int, type_: str) -> str:
        return self.writer.value(f"load {type_}, ptr {self.place(number)}")

    def rows(self, count: int) -> list[tuple[str, str]]:
        types = [COMPUTE[p.body.dtype] for p in self.passes[:count]]
        return [(t, self.get(3 + k, t)) for k, t in enumerate(types)]

    def stage(self) -> str:
        return self.get(3 + len(self.passes), "i64")

    def put_row(self, number: str, type_: str, value: str) -> None:
        place = self.writer.value(f"getelementptr i64, ptr {self.place(3)}, i64 {number}")
        self.writer.line(f"store {type_} {value}, ptr {place}")

    def run(self, stage: str, blocks: str, first: str = "0") -> None:
        self.put(2, "i64", first)
        self.put(3 + len(self.passes), "i64", stage)
        self.writer.line(f"call void %runner(ptr @part, ptr {self.base}, i64 {blocks}, i64 %work)")

    def span(self, block: str, axis: str) -> tuple[str, str]:
        begin = self.writer.mul(self.writer.add(self.get(2, "i64"), block), str(BLOCK))
        return begin, self.writer.smaller(self.writer.add(begin, str(BLOCK)), axis)


def _part_function(plan: Plan, declared: set[str]) -> str:
    """A task is a block: of a stage, or of the elements after the last stage.

    A stage's block writes its results to the partial results.
    """
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    (_, axis, _), _ = read_sizes(writer, plan.kernel)
    job, count = Job(writer, plan, "%args"), len(plan.kernel.passes)
    o, partial, rows, stage = job.get(0, "i64"), job.get(1, "ptr"), job.rows(count), job.stage()
    with writer.loop("%begin", "%end") as block:
        begin, end = job.span(block, axis)
        for s, span in enumerate(plan.stages):
            with writer.when(writer.value(f"icmp eq i64 {stage}, {s}")):
                reduces = _reduces(plan, s)
                made = _call(
                    writer, _result(reduces), f"block{s}", o, begin, end, rows[: span.start]
                )
                for k, value in enumerate(_unpack(writer, reduces, made)):
                    place = _partial_place(writer, partial, block, len(reduces), k)
                    writer.line(f"store {COMPUTE[reduces[k].body.dtype]} {value}, ptr {place}")
        if _has_elements(plan):
            with writer.when(writer.value(f"icmp eq i64 {stage}, {len(plan.stages)}")):
                _call(writer, "void", "elements", o, begin, end, rows)
    return writer.function(FUNCTION.format(name="part") + UNOPTIMISED)


def _partial_place(writer: Writer, partial: str, block: str, count: int, k: int) -> str:
    """The address of result k of `count` of a block."""
    number = block if count == 1 else writer.add(writer.mul(block, str(count)), str(k))
    return writer.value(f"getelementptr i64, ptr {partial}, i64 {number}")


def _launch_function(plan: Plan, declared: set[str]) -> str:
    writer = checked_writer(Writer(declared), plan.kernel, argument_count(plan.kernel))
    (outer, axis, _), _ = read_sizes(writer, plan.kernel)
    few = writer.value(f"icmp slt i64 {outer}, {FEW_ROWS}")
    long = writer.value(f"and i1 {few}, {writer.value(f'icmp sge i64 {axis}, {LONG_AXIS}')}")
    with writer.when(writer.value(f"xor i1 {long}, true")):
        writer.line("call void %runner(ptr @kernel, ptr %args, i64 %tasks, i64 %work)")
    with writer.when(long):
        _write_long_rows(writer, plan, outer, axis)
    return writer.function(LAUNCH)


def _write_long_rows(writer: Writer, plan: Plan, outer: str, axis: str) -> None:
    count = slot_count(plan.kernel)
    base = writer.array("i64", count + 4 + len(plan.kernel.passes))
    partial = writer.array("i64", ROUND * max((len(stage) for stage in plan.stages), default=1))
    writer.call(
        "void",
        "llvm.memcpy.p0.p0.i64",
        [("ptr", base), ("ptr", "%args"), ("i64", str(8 * count)), ("i1", "false")],
    )
    job = Job(writer, plan, base)
    row = Row(writer, plan, "0", [], *(((), []) if _has_long_rows(plan) else _row_stores(plan)))
    blocks = writer.divided_up(axis, BLOCK)
    job.put(1, "ptr", partial)
    with writer.loop("0", outer) as o:
        row.move_to(o)
        job.put(0, "i64", o)
        first = 0
        # Stages with the same ends share one loop.
        for _, alike in itertools.groupby(
            range(len(plan.stages)), lambda s: _signature(_reduces(plan, s))
        ):
            numbers = list(alike)
            reduces = _reduces(plan, numbers[0])
            with writer.loop(str(numbers[0]), str(numbers[-1] + 1)) as stage:
                turn = writer.sub(stage, str(numbers[0]))
                slot = writer.add(writer.mul(turn, str(len(reduces))), str(first))
                for k, value in enumerate(
                    _long_stage(writer, job, stage, reduces, partial, blocks)
                ):
                    job.put_row(writer.add(slot, str(k)), COMPUTE[reduces[k].body.dtype], value)
            first += len(numbers) * len(reduces)
        row.rows = [value for _, value in job.rows(first)]
        _finish_row(row, o, lambda: job.run(str(len(plan.stages)), blocks))


def _signature(reduces: tuple[Reduce, ...]) -> list[tuple[str, DType]]:
    return [(reduce.kind, reduce.body.dtype) for reduce in reduces]


def _long_stage(
    writer: Writer, job: Job, stage: str, reduces: tuple[Reduce, ...], partial: str, blocks: str
) -> list[str]:
    """The results of a stage whose passes have the kinds and types of `reduces`."""
    totals = [Total(writer, reduce, 1) for reduce in reduces]
    with writer.loop("0", blocks, str(ROUND)) as first:
        some = writer.smaller(writer.sub(blocks, first), str(ROUND))
        job.run(stage, some, first)
        with writer.loop("0", some) as block:
            for k, total in enumerate(totals):
                place = _partial_place(writer, partial, block, len(reduces), k)
                total.take(writer.value(f"load {total.type}, ptr {place}"))
    return [total.result() for total in totals]
