"""Rowwise kernels: shared by the walk along the axis and the walk across columns.

# Note [Order of a reduction]
The order is fixed by the axis length alone. Along the axis ("axis"): blocks of BLOCK positions;
inside a block PARTS vectors of partial results take turns, the rest of the block goes to the first;
then a tree over parts and lanes; then blocks ascending. Across columns ("inner", "any"): blocks of
RUN positions, ascending. Float sums add the blocks with an error term (2Sum), so that long sums
stay accurate.

# Note [Kept pass]
Softmax needs exp(x - max) in its last pass and again in its store. Where the store is a formula of
the last pass's body and of rows only, that pass writes the body to the output and the store starts
from there: one exp per element.

# Note [Stages]
Passes that do not use each other's rows walk the axis together, as one stage: their inputs are read
once. `plan` orders the passes by stages; the last pass stays last, since it may be a kept one.
Orders of reductions do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.body import extreme
from rushlight.emit.llvm.text import COMPUTE, Arguments, Slot, Writer, constant, vector
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr, arg, rebuild, row, topological

ROW_WORK = 16  # the cost of a pass besides its elements
LARGE_BODY = 12  # instructions above which a body is written once, not unrolled


@dataclass
class Operand:
    """One output or input: its type, its step and the start of the current row or column."""

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

    @property
    def operands(self) -> list[Operand]:
        return self.outputs + self.inputs

    def which(self, kind: str) -> list[int]:
        return numbers_of(self.kernel, kind)


def numbers_of(kernel: Rowwise, kind: str) -> list[int]:
    """The numbers of the outputs of one kind."""
    return [i for i, k in enumerate(kernel.kinds) if k == kind]


@dataclass(frozen=True)
class Plan:
    """The kernel as it will be written: its passes stage by stage.

    `kept` is the output that takes the last pass's body, or None.
    """

    kernel: Rowwise
    stages: tuple[range, ...]  # the pass numbers of each stage
    kept: int | None

    @property
    def finished(self) -> bool:
        """Whether the last pass has stored the final value of all elements."""
        return self.kept is not None and self.kernel.stores[self.kept] is arg(
            len(self.kernel.inputs), self.kernel.outputs[self.kept]
        )


def plan(kernel: Rowwise) -> Plan:
    """See Note [Stages] and Note [Kept pass].

    The output, read back, is one more input after the others.
    """
    kernel, stages = _staged(kernel)
    each = [i for i, kind in enumerate(kernel.kinds) if kind == "element"]
    if len(each) != 1 or not kernel.passes:
        return Plan(kernel, stages, None)
    (out,) = each
    body, store = kernel.passes[-1].body, kernel.stores[out]
    if kernel.outputs[out] is not body.dtype or len(topological((body,))) < LARGE_BODY:
        return Plan(kernel, stages, None)
    again = arg(len(kernel.inputs), body.dtype)
    (rest,) = rebuild((store,), {body: again})
    others = {e.value for e in topological((rest,)) if e.op == "arg" and e is not again}
    first = len(kernel.outputs)
    # In place, the output may be any input that moves like it; the pass overwrites that input.
    if rest is store or any(kernel.steps[first + int(i or 0)] != "0" for i in others):
        return Plan(kernel, stages, None)
    stores = tuple(rest if i == out else e for i, e in enumerate(kernel.stores))
    return Plan(replace(kernel, stores=stores), stages, out)


def _staged(kernel: Rowwise) -> tuple[Rowwise, tuple[range, ...]]:
    """The kernel with its passes ordered by stages, and the stages."""
    passes = kernel.passes
    stage: list[int] = []
    for reduce in passes:
        needed = [stage[int(e.value or 0)] for e in topological((reduce.body,)) if e.op == "row"]
        stage.append(max(needed, default=-1) + 1)
    if passes:
        stage[-1] = max(stage)
    order = sorted(range(len(passes)), key=lambda p: stage[p])
    ends = [sum(s <= k for s in stage) for k in range(max(stage, default=-1) + 1)]
    stages = tuple(range(begin, end) for begin, end in zip([0, *ends], ends, strict=False))
    if order == list(range(len(passes))):
        return kernel, stages
    names = {
        row(p, passes[p].body.dtype): row(k, passes[p].body.dtype) for k, p in enumerate(order)
    }
    bodies = rebuild((*(passes[p].body for p in order), *kernel.stores), names)
    moved = tuple(replace(passes[p], body=body) for p, body in zip(order, bodies, strict=False))
    return replace(kernel, passes=moved, stores=bodies[len(order) :]), stages


def read_frame(writer: Writer, plan: Plan, chosen: Sequence[int] | None = None) -> Frame:
    """`chosen` are the numbers of the operands in use, outputs first.

    Of others only the types are known.
    """
    kernel, arguments = plan.kernel, Arguments(writer)
    dtypes = (*kernel.outputs, *kernel.inputs)
    wanted = [chosen is None or i in chosen for i in range(len(dtypes))]
    bases = [arguments.address() if want else arguments.skip(1) for want in wanted]
    outer, axis, inner = arguments.words(3)
    strides = [arguments.words(3) if want else [arguments.skip(3)] * 3 for want in wanted]
    params = [arguments.param(d) for d in kernel.params]
    operands = [
        Operand(d, s, b, t) for d, s, b, t in zip(dtypes, kernel.steps, bases, strides, strict=True)
    ]
    count = len(kernel.outputs)
    inputs = operands[count:] + ([operands[plan.kept]] if plan.kept is not None else [])
    return Frame(kernel, operands[:count], inputs, outer, axis, inner, params)


def used_inputs(plan: Plan, roots: tuple[Expr, ...]) -> list[int]:
    """The numbers of the operands that expressions read, as `read_frame` counts them."""
    count, inputs = len(plan.kernel.outputs), len(plan.kernel.inputs)
    numbers = [int(e.value or 0) for e in topological(roots) if e.op == "arg"]
    return [count + n if n < inputs else plan.kept or 0 for n in numbers]


def argument_count(kernel: Rowwise) -> int:
    return 4 * (len(kernel.outputs) + len(kernel.inputs)) + 3 + len(kernel.params)


def slot_count(kernel: Rowwise) -> int:
    """The number of arguments, the address of the anomaly flags included."""
    return argument_count(kernel) + (kernel.anomaly is not None)


def expressions(kernel: Rowwise) -> tuple[Expr, ...]:
    return topological((*(p.body for p in kernel.passes), *kernel.stores))


def lane_count(kernel: Rowwise) -> int:
    if kernel.vector == "any":
        return 1
    types = (
        *kernel.outputs,
        *kernel.inputs,
        *(e.dtype for e in expressions(kernel) if e.op != "extent"),
    )
    return 8 if max(d.itemsize for d in types) == 8 else 16


def read_sizes(writer: Writer, kernel: Rowwise) -> tuple[list[str], str]:
    """Outer, axis and inner, and the total work."""
    arguments = Arguments(writer)
    arguments.next = len(kernel.outputs) + len(kernel.inputs)
    sizes = arguments.words(3)
    weight = max(1, len(expressions(kernel)) // 4)
    each = writer.add(writer.mul(sizes[1], str(weight)), str(ROW_WORK * len(kernel.passes)))
    return sizes, writer.mul(writer.mul(sizes[0], sizes[2]), each)


# ---- reductions ----


def identity(kind: str, dtype: DType) -> float | int | bool:
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.kind == "f":
        return float("-inf") if kind == "max" else float("inf")
    if dtype.kind in "bu":
        return 0 if kind == "max" else (1 << 8 * dtype.itemsize) - 1 if dtype.kind == "u" else True
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
        self.writer, self.kind, self.dtype, self.width = (
            writer,
            reduce.kind,
            reduce.body.dtype,
            width,
        )
        self.type = vector(COMPUTE[self.dtype], width)
        self.slot = writer.slot(
            self.type, constant(identity(self.kind, self.dtype), self.dtype, width)
        )
        self.error: Slot | None = None
        if self.kind == "sum" and self.dtype.kind == "f":
            self.error = writer.slot(self.type, constant(0, self.dtype, width))

    def take(self, block: str) -> None:
        """Fold in one block's result; a float sum keeps the rounding error (Knuth's 2Sum)."""
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
        # The error term of an infinite total is meaningless.
        gone = writer.value(f"fsub {type_} {total}, {total}")
        finite = writer.value(f"fcmp oeq {type_} {gone}, {constant(0, self.dtype, self.width)}")
        whole = writer.value(f"fadd {type_} {total}, {writer.get(self.error)}")
        return writer.value(
            f"select {vector('i1', self.width)} {finite}, {type_} {whole}, {type_} {total}"
        )
