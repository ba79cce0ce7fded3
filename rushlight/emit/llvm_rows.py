"""Rowwise kernels with vectors along the axis: rows are scalars.

`block<p>` folds a part of the axis in pass p, `elements` stores a part of it. The kernel function calls them for each
row. When there are few rows and they are long, `launch` calls them through the runner instead, a block being a task;
the blocks and their order are the same (Note [Order of a reduction]), so the bits are too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from rushlight.core.dtypes import DType
from rushlight.emit.llvm_body import (
    first_lanes,
    invariants,
    lane_numbers,
    load,
    pointer,
    splat,
    store,
    watched,
)
from rushlight.emit.llvm_formula import evaluate
from rushlight.emit.llvm_rowwise import (
    LARGE_BODY,
    Frame,
    Operand,
    Plan,
    Total,
    argument_count,
    combine,
    identity,
    lane_count,
    numbers_of,
    plan,
    read_frame,
    read_sizes,
    slot_count,
    used_inputs,
)
from rushlight.emit.llvm_text import COMPUTE, FUNCTION, LAUNCH, SELDOM, Writer, constant, vector
from rushlight.emit.llvm_watch import watch
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr, topological

BLOCK = 8192
MANY_PASSES = 5
PARTS = 4
FEW_ROWS, LONG_AXIS = 16, 4 * BLOCK
ROUND = 4096  # blocks that `launch` has in flight at once


def write_counts(writer: Writer, kernel: Rowwise) -> tuple[str, str]:
    (outer, _, _), work = read_sizes(writer, kernel)
    return outer, work


def functions(kernel: Rowwise, declared: set[str]) -> list[str]:
    """The kernel function, its launch and the functions they call."""
    planned = plan(kernel)
    passes = planned.kernel.passes
    texts = [_block_function(planned, p, declared) for p in range(len(passes))]
    if _has_elements(planned):
        texts.append(_elements_function(planned, declared))
    if _has_long_rows(planned):
        texts.append(_rows_function(planned, declared))
    return [*texts, *(write(planned, declared) for write in (_kernel_function, _part_function, _launch_function))]


def _has_elements(plan: Plan) -> bool:
    """Whether elements are left to be stored after the passes."""
    return "element" in plan.kernel.kinds and not plan.finished


def _row_stores(plan: Plan) -> tuple[tuple[Expr, ...], list[int]]:
    """The formulas of the row outputs, and the numbers of these."""
    chosen = numbers_of(plan.kernel, "row")
    return tuple(plan.kernel.stores[i] for i in chosen), chosen


def _has_long_rows(plan: Plan) -> bool:
    """Whether the formulas of the row outputs are long enough, and free enough, for a function of their own."""
    return not _has_elements(plan) and len(topological(_row_stores(plan)[0])) >= LARGE_BODY


def _row_names(plan: Plan, count: int) -> list[tuple[str, str]]:
    """(type, name) of the rows that earlier passes have made, as function parameters."""
    return [(COMPUTE[p.body.dtype], f"%r{k}") for k, p in enumerate(plan.kernel.passes[:count])]


def _head(result: str, name: str, rows: list[tuple[str, str]]) -> str:
    listed = "".join(f", {t} {n}" for t, n in rows)
    span = "i64 %o, i64 %begin, i64 %end"
    return f'define internal {result} @{name}(ptr readonly %args, {span}{listed}) noinline "prefer-vector-width"="512"'


def _call(writer: Writer, result: str, name: str, o: str, begin: str, end: str, rows: list[tuple[str, str]]) -> str:
    listed = "".join(f", {t} {v}" for t, v in rows)
    text = f"call {result} @{name}(ptr %args, i64 {o}, i64 {begin}, i64 {end}{listed})"
    if result == "void":
        writer.line(text)
        return ""
    return writer.value(text)


class Row:
    """Row %o of the kernel, in the function being written."""

    def __init__(
        self, writer: Writer, plan: Plan, o: str, rows: list[str], roots: tuple[Expr, ...], outputs: list[int]
    ) -> None:
        """For the expressions `roots`, to be stored in the outputs of these numbers."""
        self.writer, self.plan, self.rows = writer, plan, rows
        self.frame: Frame = read_frame(writer, plan, [*outputs, *used_inputs(plan, roots)])
        self.width = lane_count(plan.kernel)
        self.move_to(o)

    def move_to(self, o: str) -> None:
        for operand in {id(p): p for p in self.frame.operands if p.base}.values():
            offset = self.writer.mul(o, operand.strides[0])
            operand.place = pointer(self.writer, operand.base, operand.dtype, offset)

    def place(self, operand: Operand, i: str) -> str:
        """Where the operand is at axis position i."""
        if operand.step == "0":
            return operand.place
        offset = i if operand.step == "1" else self.writer.mul(i, operand.strides[1])
        return pointer(self.writer, operand.place, operand.dtype, offset)

    def hoist(self, roots: tuple[Expr, ...]) -> dict[Expr, str]:
        """What does not change along the row, in every lane."""
        still = invariants(roots, lambda e: e.op in ("arg", "index"))
        values = self.evaluate(still, "0", 1, None, {})
        return {e: splat(self.writer, v, e.dtype, self.width) for e, v in zip(still, values, strict=True)}

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
                found = load(writer, place, operand.dtype, operand.step, operand.strides[1], width, mask)
                return watched(writer, k, expr, found, width)
            if expr.op == "index":
                here = splat(writer, i, expr.dtype, width)
                numbers = "0" if width == 1 else lane_numbers(width)
                return writer.value(f"add {vector('i64', width)} {here}, {numbers}")
            scalar = frame.axis if expr.op == "extent" else (frame.params if expr.op == "param" else self.rows)[k]
            return splat(writer, scalar, expr.dtype, width)

        return evaluate(writer, roots, width, leaf, known)

    def store(self, k: int, value: str, i: str, mask: str | None, last: bool = True) -> None:
        """A vector of output k at axis position i."""
        output = self.frame.outputs[k]
        place = self.place(output, i)
        store(self.writer, value, place, output.dtype, output.step, output.strides[1], self.width, mask, last)

    def store_rows(self, values: list[str]) -> None:
        for k, value in zip(self.frame.which("row"), values, strict=True):
            output = self.frame.outputs[k]
            store(self.writer, value, output.place, output.dtype, "1", "1", 1, None)

    def row_values(self) -> list[str]:
        stores = self.plan.kernel.stores
        return self.evaluate(tuple(stores[i] for i in self.frame.which("row")), "0", 1, None, {})


# ---- one block --------------------------------------------------------------------------------------------


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
            halves.append(writer.value(f"shufflevector {type_} {value}, {type_} poison, <{half} x i32> <{chosen}>"))
        if half == 1:
            halves = [writer.value(f"extractelement <1 x {COMPUTE[dtype]}> {h}, i64 0") for h in halves]
        value = combine(writer, kind, dtype, halves[1], halves[0], half)
        width = half
    return value


def _block_function(plan: Plan, p: int, declared: set[str]) -> str:
    """Pass p over the axis positions %begin..%end of row %o."""
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
    rows = _row_names(plan, p)
    reduce = plan.kernel.passes[p]
    keep = plan.kept if p == len(plan.kernel.passes) - 1 else None
    row = Row(writer, plan, "%o", [n for _, n in rows], (reduce.body,), [] if keep is None else [keep])
    value = _write_block(row, reduce, keep)
    result = COMPUTE[reduce.body.dtype]
    return writer.function(_head(result, f"block{p}", rows), f"{result} {value}")


def _write_block(row: Row, reduce: Reduce, keep: int | None) -> str:
    writer, width, kind, dtype = row.writer, row.width, reduce.kind, reduce.body.dtype
    type_ = vector(COMPUTE[dtype], width)
    neutral = constant(identity(kind, dtype), dtype, width)
    known = row.hoist((reduce.body,))
    parts = [writer.slot(type_, neutral) for _ in range(PARTS)]
    position = writer.slot("i64", "%begin")
    # A large body is written once, the partial results moving on by one place each time.
    turns = PARTS if len(topological((reduce.body,))) < LARGE_BODY else 1
    span = width * turns
    with writer.loop(position, writer.sub("%end", str(span - 1)), str(span)) as i:
        for k in range(turns):
            here = writer.add(i, str(k * width))
            (value,) = row.evaluate((reduce.body,), here, width, None, known)
            if keep is not None:
                row.store(keep, value, here, None, row.plan.finished)
            old = [writer.get(part) for part in parts]
            old[0] = combine(writer, kind, dtype, value, old[0], width)
            for part, moved in zip(parts, old[1:] + old[:1], strict=True):
                writer.set(part, moved)
    with writer.loop(position, "%end", str(width)) as i:
        mask = first_lanes(writer, writer.sub("%end", i), width)
        (value,) = row.evaluate((reduce.body,), i, width, mask, known)
        if keep is not None:
            row.store(keep, value, i, mask, row.plan.finished)
        kept = writer.value(f"select {vector('i1', width)} {mask}, {type_} {value}, {type_} {neutral}")
        writer.set(parts[0], combine(writer, kind, dtype, kept, writer.get(parts[0]), width))
    values = [writer.get(p) for p in parts]
    if len(row.plan.kernel.passes) < MANY_PASSES:
        return fold_lanes(writer, kind, dtype, values, width)
    return _call_fold(writer, kind, dtype, values, width)


FOLD = (
    "define internal {scalar} @fold.{kind}.{dtype}({given}) noinline "
    '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
)


def _call_fold(writer: Writer, kind: str, dtype: DType, parts: list[str], width: int) -> str:
    """`fold_lanes` as a function, for all passes that end alike."""
    own, scalar, type_ = Writer(writer.declared), COMPUTE[dtype], vector(COMPUTE[dtype], width)
    names = [f"%part{k}" for k in range(len(parts))]
    value = fold_lanes(own, kind, dtype, list(names), width)
    given = ", ".join(f"{type_} {name}" for name in names)
    head = FOLD.format(scalar=scalar, kind=kind, dtype=dtype.name, given=given)
    writer.declared.add(own.function(head, f"{scalar} {value}"))
    listed = ", ".join(f"{type_} {part}" for part in parts)
    return writer.value(f"call {scalar} @fold.{kind}.{dtype.name}({listed})")


def _elements_function(plan: Plan, declared: set[str]) -> str:
    """The element stores at the axis positions %begin..%end of row %o."""
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
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
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
    rows = _row_names(plan, len(plan.kernel.passes))
    row = Row(writer, plan, "%o", [n for _, n in rows], *_row_stores(plan))
    row.store_rows(row.row_values())
    return writer.function(_head("void", "rows", rows))


# ---- many rows, or few long ones --------------------------------------------------------------------------


def _finish_row(row: Row, o: str, write_elements: Callable[[], object]) -> None:
    """What comes after the passes: the row outputs, and the elements where they are left."""
    plan = row.plan
    if _has_long_rows(plan):
        made = [(COMPUTE[p.body.dtype], name) for p, name in zip(plan.kernel.passes, row.rows, strict=True)]
        _call(row.writer, "void", "rows", o, "0", "0", made)
        return
    values = row.row_values()  # before elements are written where inputs may be
    if _has_elements(plan):
        write_elements()
    row.store_rows(values)


def _kernel_function(plan: Plan, declared: set[str]) -> str:
    """A task is a row."""
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
    row = Row(writer, plan, "0", [], *(((), []) if _has_long_rows(plan) else _row_stores(plan)))
    with writer.loop("%begin", "%end") as o:
        row.move_to(o)
        row.rows = []
        made: list[tuple[str, str]] = []
        for p, reduce in enumerate(plan.kernel.passes):
            total = Total(writer, reduce, 1)
            result = COMPUTE[reduce.body.dtype]
            with writer.loop("0", row.frame.axis, str(BLOCK)) as begin:
                end = writer.smaller(writer.add(begin, str(BLOCK)), row.frame.axis)
                total.take(_call(writer, result, f"block{p}", o, begin, end, made))
            row.rows.append(total.result())
            made.append((result, row.rows[-1]))
        _finish_row(row, o, lambda: _call(writer, "void", "elements", o, "0", row.frame.axis, made))
    many = len(plan.kernel.passes) >= MANY_PASSES  # and it does nothing but call them
    return writer.function(FUNCTION.format(name="kernel") + (SELDOM if many else ""))


class Job:
    """What `launch` hands to the runner: its arguments, then row number, partial results, first block, rows, stage.

    A stage is the number of a pass, or of all passes: the elements.
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
    """A task is a block: of a pass, whose result goes to the partial results, or of the elements after the last pass."""
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
    (_, axis, _), _ = read_sizes(writer, plan.kernel)
    job, count = Job(writer, plan, "%args"), len(plan.kernel.passes)
    o, partial, rows, stage = job.get(0, "i64"), job.get(1, "ptr"), job.rows(count), job.stage()
    with writer.loop("%begin", "%end") as block:
        begin, end = job.span(block, axis)
        for p, reduce in enumerate(plan.kernel.passes):
            with writer.when(writer.value(f"icmp eq i64 {stage}, {p}")):
                result = COMPUTE[reduce.body.dtype]
                value = _call(writer, result, f"block{p}", o, begin, end, rows[:p])
                place = writer.value(f"getelementptr i64, ptr {partial}, i64 {block}")
                writer.line(f"store {result} {value}, ptr {place}")
        if _has_elements(plan):
            with writer.when(writer.value(f"icmp eq i64 {stage}, {count}")):
                _call(writer, "void", "elements", o, begin, end, rows)
    return writer.function(FUNCTION.format(name="part") + SELDOM)


def _launch_function(plan: Plan, declared: set[str]) -> str:
    writer = watch(Writer(declared), plan.kernel, argument_count(plan.kernel))
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
    partial = writer.array("i64", ROUND)
    writer.call(
        "void", "llvm.memcpy.p0.p0.i64", [("ptr", base), ("ptr", "%args"), ("i64", str(8 * count)), ("i1", "false")]
    )
    job = Job(writer, plan, base)
    row = Row(writer, plan, "0", [], *(((), []) if _has_long_rows(plan) else _row_stores(plan)))
    blocks = writer.divided_up(axis, BLOCK)
    job.put(1, "ptr", partial)
    with writer.loop("0", outer) as o:
        row.move_to(o)
        job.put(0, "i64", o)
        first = 0
        for _, alike in itertools.groupby(plan.kernel.passes, lambda reduce: (reduce.kind, reduce.body.dtype)):
            passes = list(alike)
            with writer.loop(str(first), str(first + len(passes))) as stage:
                job.put_row(
                    stage, COMPUTE[passes[0].body.dtype], _long_pass(writer, job, stage, passes[0], partial, blocks)
                )
            first += len(passes)
        row.rows = [value for _, value in job.rows(first)]
        _finish_row(row, o, lambda: job.run(str(len(plan.kernel.passes)), blocks))


def _long_pass(writer: Writer, job: Job, stage: str, reduce: Reduce, partial: str, blocks: str) -> str:
    """The result of a pass that is like `reduce`: of the same kind and type."""
    total = Total(writer, reduce, 1)
    with writer.loop("0", blocks, str(ROUND)) as first:
        some = writer.smaller(writer.sub(blocks, first), str(ROUND))
        job.run(stage, some, first)
        with writer.loop("0", some) as block:
            place = writer.value(f"getelementptr i64, ptr {partial}, i64 {block}")
            total.take(writer.value(f"load {COMPUTE[reduce.body.dtype]}, ptr {place}"))
    return total.result()
