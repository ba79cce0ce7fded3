"""Rowwise kernels as CUDA C: what the walks along the axis and across columns share.

# Note [Rows on CUDA]
1. Passes that do not use each other's rows are one stage: they read their inputs once and are
   folded together.
2. `lanes` threads walk one row. Along the axis (vector "axis", row_axis.py) they are a part of a
   warp, a warp or a block. Across columns (row_columns.py) a block is some columns by `lanes`.
3. A long row is cut into segments of `length` elements. A segment is folded thread by thread in
   ascending order, then across threads by a fixed tree; segment s goes to lane s % lanes, in
   ascending order, and the lanes are folded again.
4. `lanes` and `length` are functions of the kernel's types and formulas and of the axis length
   alone (devices/cuda/grid.py), and so is the order of a fold.
5. A kernel of one stage that stores rows only may be `split`: a block per segment, partial results
   in `scratch`, folded by the block that draws the last ticket. Rule 3 gives the same bits with and
   without.
6. Along the axis, what is one per row in a formula of elements is computed once per row: `settle`.
7. Rows are stored after elements, with a barrier between: a row output may share its address with
   an input.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import float32
from rushlight.emit.cuda.anomaly import flags, get, put
from rushlight.emit.cuda.map import numbers, pointers
from rushlight.emit.cuda.scalar import (
    COMPUTED,
    STORED,
    combine,
    computed,
    identity,
    indent,
    plain_leaf,
    statements,
    uses,
)
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const, rebuild, row, topological

WIDEST = 8  # elements of a chunk


def stages(kernel: Rowwise) -> list[list[int]]:
    """The numbers of the passes of each stage."""
    found: list[int] = []
    for step in kernel.passes:
        needed = [found[int(e.value or 0)] for e in topological([step.body]) if e.op == "row"]
        found.append(max(needed, default=-1) + 1)
    return [[k for k, s in enumerate(found) if s == n] for n in range(max(found, default=-1) + 1)]


def is_splittable(kernel: Rowwise) -> bool:
    return len(stages(kernel)) == 1 and all(kind == "row" for kind in kernel.kinds)


def chunk_of_rows(kernel: Rowwise) -> int:
    """Elements that a thread takes at once: 16 bytes of the narrowest input, at most WIDEST.

    By the inputs' types alone, so that the order of a sum does not depend on layout or outputs.
    """
    return min(WIDEST, 16 // min((d.itemsize for d in kernel.inputs), default=4))


def count_of(kernel: Rowwise) -> int:
    return len(kernel.outputs)


def kind_of(step: Reduce) -> str:
    return COMPUTED[step.body.dtype]


def joined(step: Reduce, left: str, right: str) -> str:
    return combine(step.kind, step.body.dtype, left, right)


def zero_of(step: Reduce) -> str:
    return identity(step.kind, step.body.dtype)


# ---- bodies ----


def _rows_of(roots: Sequence[Expr]) -> dict[int, str]:
    """The rows that some expressions read, ascending, and their types."""
    found = {
        int(e.value or 0): COMPUTED[e.dtype] for e in topological(list(roots)) if e.op == "row"
    }
    return dict(sorted(found.items()))


def _signature(kernel: Rowwise, roots: Sequence[Expr]) -> list[str]:
    taken = ["const i64 index", "const i64 extent"]
    taken += [f"const {computed(kernel.inputs[i])} a{i}" for i in uses(roots)]
    taken += [f"const {kind} r{k}" for k, kind in _rows_of(roots).items()]
    return taken + numbers(kernel.params)


def given(kernel: Rowwise, index: str, inputs: list[str], roots: Sequence[Expr]) -> str:
    """The arguments of a body: position, axis length, inputs, rows, params."""
    rest = [f"r{k}" for k in _rows_of(roots)] + [f"s{i}" for i in range(len(kernel.params))]
    return ", ".join([index, "axis", *inputs, *rest])


def stored(kernel: Rowwise, kind: str) -> list[int]:
    """The outputs of one kind."""
    return [i for i, k in enumerate(kernel.kinds) if k == kind]


def _store_function(kernel: Rowwise, kind: str) -> str:
    outputs = stored(kernel, kind)
    roots = [kernel.stores[i] for i in outputs]
    taken = _signature(kernel, roots)
    taken += [f"{computed(kernel.outputs[i])}& y{i}" for i in outputs]
    lines, names = statements(roots, plain_leaf)
    lines += [f"y{i} = {name};" for i, name in zip(outputs, names, strict=True)]
    return f"__device__ __forceinline__ void {kind}({', '.join(taken)}) {{\n{indent(lines, 1)}}}\n"


def made_function(kernel: Rowwise, name: str, body: Expr) -> str:
    """A formula as a function of one position."""
    taken = ", ".join(_signature(kernel, [body]))
    lines, (result,) = statements([body], plain_leaf)
    head = f"__device__ __forceinline__ {COMPUTED[body.dtype]} {name}({taken})"
    return f"{head} {{\n{indent([*lines, f'return {result};'], 1)}}}\n"


def functions(kernel: Rowwise) -> str:
    """Every pass and store as a function of one position."""
    text = ""
    for number, step in enumerate(kernel.passes):
        text += made_function(kernel, f"pass{number}", step.body)
    for kind in ("element", "row"):
        if stored(kernel, kind):
            text += _store_function(kernel, kind)
    return text


# ---- what is one per row ----


def moves(expr: Expr) -> bool:
    """Whether an expression may differ between the elements of a row."""
    return any(e.op in ("arg", "index") for e in topological([expr]))


def _is_settled(expr: Expr) -> bool:
    """Whether an expression is a formula of rows or of the axis length."""
    within = {e.op for e in topological([expr])}
    return bool(within & {"row", "extent"}) and not moves(expr)


def _inverted(expr: Expr) -> Expr:
    """x / y, where y is one per row, as x times the reciprocal of y.

    Both are scaled so that the reciprocal of a very small or large y is a normal number.
    """
    for e in topological([expr]):
        if e.op != "div" or e.dtype is not float32:
            continue
        x, y = e.args
        if moves(x) and _is_settled(y):
            size = s.absolute(y)
            least, one, most = (const(2.0**n, float32) for n in (-60, 0, 60))
            scale = s.where(size < 1e-30, most, s.where(size < 1e30, one, least))
            return _inverted(rebuild([expr], {e: (x * scale) * (1.0 / (y * scale))})[0])
    return expr


def settle(roots: Sequence[Expr], first: int) -> tuple[list[Expr], dict[int, Expr]]:
    """Formulas of elements in which formulas of rows are rows too, and these by number.

    The first of them is row `first`.
    """
    roots = [_inverted(e) for e in roots]
    found: list[Expr] = []
    for e in topological(list(roots)):
        for part in e.args if moves(e) else ():
            if part.args and _is_settled(part) and part not in found:
                found.append(part)
    names = {e: row(first + n, e.dtype) for n, e in enumerate(found)}
    return list(rebuild(roots, names)), {first + n: e for n, e in enumerate(found)}


# ---- shared by both walks ----


def declared(kernel: Rowwise) -> str:
    strides = [
        f"const i64 k{k}_{d}"
        for k in range(count_of(kernel) + len(kernel.inputs))
        for d in range(3)
    ]
    sizes = ["const i64 outer", "const i64 axis", "const i64 inner"]
    taken = [
        *pointers(kernel.outputs, kernel.inputs),
        *flags(kernel),
        *sizes,
        *strides,
        *numbers(kernel.params),
    ]
    taken += ["const i64 lanes_", "const i64 length"]
    if is_splittable(kernel):
        taken += ["const i64 split", "u64* scratch", "u32* tickets"]
    return ", ".join(taken)


def bases(kernel: Rowwise, offset: str) -> list[str]:
    """Declarations of q0, q1, ...: each operand at the start of its row."""
    written = [
        f"{STORED[d]}* const q{k} = p{k} + {offset.format(k=k)};"
        for k, d in enumerate(kernel.outputs)
    ]
    read = enumerate(kernel.inputs, count_of(kernel))
    return written + [
        f"const {STORED[d]}* const q{k} = p{k} + {offset.format(k=k)};" for k, d in read
    ]


def row_stores(kernel: Rowwise, at: str = "0") -> list[str]:
    """Evaluate and store what is one per row; operands are at q0[at], q1[at], ..."""
    outputs = stored(kernel, "row")
    if not outputs:
        return []
    count = count_of(kernel)
    roots = [kernel.stores[i] for i in outputs]
    inputs = [get(kernel, i, f"q{count + i}[{at.format(k=count + i)}]") for i in uses(roots)]
    lines = [f"{computed(kernel.outputs[i])} y{i};" for i in outputs]
    results = ", ".join(f"y{i}" for i in outputs)
    lines.append(f"row({given(kernel, '0', inputs, roots)}, {results});")
    return lines + [f"q{i}[{at.format(k=i)}] = {put(kernel, i, f'y{i}')};" for i in outputs]


def segment_bounds() -> list[str]:
    return [
        "const i64 begin = s * length;",
        "const i64 end = begin + length < axis ? begin + length : axis;",
    ]


def walk_segments(splittable: bool) -> str:
    """The loop over this block's segments: `mine` where the kernel is split."""
    if not splittable:
        return "for (i64 s = 0; s < segments; ++s)"
    return "for (i64 s = split ? mine : 0; s < (split ? mine + 1 : segments); ++s)"


def partials(kernel: Rowwise) -> list[str]:
    """Each pass's view of the scratch."""
    return [
        f"volatile {kind_of(p)}* const partial{k} = (volatile {kind_of(p)}*)scratch;"
        for k, p in enumerate(kernel.passes)
    ]


def draw_ticket(ticket: str) -> list[str]:
    """After a split block has published its results: all but the last block of a row return."""
    return [
        "__threadfence();",
        "__syncthreads();",
        f"if (threadIdx.x == 0) drawn = atomicAdd(tickets + {ticket}, 1u);",
        "__syncthreads();",
        "if (drawn != (u32)segments - 1u) return;",
        "__threadfence();",
    ]


def indented(lines: list[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]
