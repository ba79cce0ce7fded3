"""Ops along one axis: reductions, softmax, norms, losses.

# Note [Rowwise formulas]
1. A body is a Python function of a `Rows` builder and the inputs' elements. `r.sum(e)`, `r.max(e)`
   ... are passes along the axis; returned values are stored for each element ("element") or once
   per row ("row"), as `kinds` declares.
2. Inputs are broadcast to the full shape; those in `rows` are one per row and have size 1 along the
   axis.
3. The derivative is derived from the passes (`derive_rows`), or declared in the same language.
   Either way it is a rowwise op, so the next order follows. `constant=True` on a pass states that
   its derivative cancels (the max in softmax).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import DType, compute_type
from rushlight.core.errors import NotDifferentiable
from rushlight.core.shapes import Shape, Spec, broadcast_shapes, numel
from rushlight.devices.shared.allocator import Scratch
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.ops.family.build import built, check_device_dtype, lowered
from rushlight.ops.family.row_layout import axis_strides, result_strides, row_layout, scattered
from rushlight.scalar import build as s
from rushlight.scalar.derive import gradients
from rushlight.scalar.ir import Expr, arg, const, extent, index, rebuild, row, topological
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices, check_dtypes
from rushlight.tape.record.value import Value

# A reduction of one long row is split into rows of this length, to occupy many threads. The split
# depends on the length only, so the order of the sum is fixed.
CHUNK = 1 << 14

# As a result's dtype: the compute type of the first input (statistics of halves are kept in
# float32).
COMPUTE = DType("compute", "f", 0, 0)


@dataclass(frozen=True, slots=True)
class RowFormula:
    """Passes and stores over args; `moving[i]` tells whether input i varies along the axis."""

    inputs: tuple[DType, ...]
    moving: tuple[bool, ...]
    outputs: tuple[DType, ...]
    kinds: tuple[str, ...]
    passes: tuple[Reduce, ...]
    constant: tuple[bool, ...]  # per pass: omit it from the derivative
    stores: tuple[Expr, ...]


# A derivative's formula, the inputs it has gradients of, the inputs and outputs it saves, the
# outputs whose gradients it reads.
Derivative = tuple[RowFormula, list[int], tuple[int, ...], tuple[int, ...], list[int]]


class Rows:
    """The builder in which rowwise bodies are written."""

    def __init__(self) -> None:
        self.passes: list[Reduce] = []
        self.constant: list[bool] = []

    def _pass(self, kind: str, body: Expr, constant: bool = False) -> Expr:
        self.passes.append(Reduce(kind, body))
        self.constant.append(constant)
        return row(len(self.passes) - 1, body.dtype)

    def sum(self, body: Expr) -> Expr:
        return self._pass("sum", body)

    def prod(self, body: Expr) -> Expr:
        return self._pass("prod", body)

    def max(self, body: Expr, constant: bool = False) -> Expr:
        return self._pass("max", body, constant)

    def min(self, body: Expr, constant: bool = False) -> Expr:
        return self._pass("min", body, constant)

    @property
    def index(self) -> Expr:
        return index()

    def extent(self, dtype: DType) -> Expr:
        return s.cast(extent(), dtype)


class RowOp(Op):
    """An op along one axis; `static` is (dim, keepdim). Subclasses give the formula."""

    __slots__ = ()

    batching = "elementwise.row"

    def is_row(self, place: int) -> bool:
        """Whether input `place` is declared as one per row."""
        raise AssertionError(self.name)

    def formula(self, ins: Sequence[Spec], moving: tuple[bool, ...]) -> RowFormula:
        raise AssertionError(self.name)

    def moving(self, ins: Sequence[Spec], dim: int) -> tuple[bool, ...]:
        rank = max(len(spec.shape) for spec in ins)
        full = any(_size_along(spec.shape, rank, dim) != 1 for spec in ins)
        return tuple(
            not self.is_row(i) and (not full or _size_along(spec.shape, rank, dim) != 1)
            for i, spec in enumerate(ins)
        )

    def vjp_formula(self, formula: RowFormula, needs: int, absent: Sequence[int]) -> Derivative:
        return derive_rows(formula, needs, absent, self.name)

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        dim, keepdim = static
        pool = check_devices(self.name, ins)
        shape = broadcast_shapes([spec.shape for spec in ins], self.name, ins)
        formula = self.formula(ins, self.moving(ins, dim))
        reduced = shape[:dim] + ((1,) if keepdim else ()) + shape[dim + 1 :]
        outs = []
        for dtype, kind in zip(formula.outputs, formula.kinds, strict=True):
            check_device_dtype(self.name, pool, dtype)
            outs.append(Spec.of(pool, dtype, shape if kind == "element" else reduced))
        return row_plan(self, formula, ins, outs, shape, static)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        return make_row_grad(self, plan, needs)


def _size_along(shape: Shape, rank: int, dim: int) -> int:
    place = dim - (rank - len(shape))
    return shape[place] if place >= 0 and shape else 1


def row_plan(
    op: Op,
    formula: RowFormula,
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    shape: Shape,
    static: Static,
) -> Plan:
    dim = static[0]
    pool = outs[0].device
    block = (numel(shape[:dim]), shape[dim] if shape else 1, numel(shape[dim + 1 :]))
    strides = [result_strides(o, k, shape, dim) for o, k in zip(outs, formula.kinds, strict=True)]
    strides += [axis_strides(spec, shape, dim) for spec in ins]  # type: ignore[misc]
    cost = numel(shape) * (
        len(formula.passes) + len(outs) + 0.1 * len(topological(_all_exprs(formula)))
    )
    if _is_long_reduction(formula, block):
        launch = _long_launch(formula, pool, block, strides)
        return Plan(op, ins, outs, launch, static, (), cost)
    kernel, tail = row_kernel(formula, block, strides)
    kernel = lowered(kernel)
    return Plan(op, ins, outs, built(pool, kernel), static, tail, cost, kernel=kernel)


def _all_exprs(formula: RowFormula) -> list[Expr]:
    return [p.body for p in formula.passes] + list(formula.stores)


def row_kernel(
    formula: RowFormula, block: tuple[int, int, int], strides: Sequence[tuple[int, int, int]]
) -> tuple[Rowwise, tuple[int, ...]]:
    vector, steps, tail = row_layout(block, strides)
    kernel = Rowwise(
        formula.outputs,
        formula.kinds,
        formula.inputs,
        (),
        formula.passes,
        formula.stores,
        vector,
        steps,
    )
    return kernel, tail


def _is_long_reduction(formula: RowFormula, block: tuple[int, int, int]) -> bool:
    """One row, one pass, no result per element: it can be reduced in chunks."""
    if (
        block[0] * block[2] != 1
        or block[1] < 2 * CHUNK
        or len(formula.passes) != 1
        or formula.kinds != ("row",)
    ):
        return False
    return not any(
        e.op in ("index", "extent", "arg") for e in topological(list(formula.stores))
    ) and not any(e.op in ("index", "extent") for e in topological([formula.passes[0].body]))


def _long_launch(
    formula: RowFormula,
    pool: Any,
    block: tuple[int, int, int],
    strides: Sequence[tuple[int, int, int]],
) -> Callable[..., None]:
    """Two steps: each chunk to a partial result, then the partials to the result."""
    n = block[1]
    chunks, rest = divmod(n, CHUNK)
    first = formula.passes[0]
    accumulator = first.body.dtype
    part = RowFormula(
        formula.inputs,
        formula.moving,
        (accumulator,),
        ("row",),
        (first,),
        (False,),
        (row(0, accumulator),),
    )
    last = RowFormula(
        (accumulator,),
        (True,),
        formula.outputs,
        ("row",),
        (Reduce(first.kind, arg(0, accumulator)),),
        (False,),
        formula.stores,
    )
    ins = strides[1:]
    steps = [st[1] for st in ins]
    main, main_tail = row_kernel(
        part, (chunks, CHUNK, 1), [(1, 0, 1), *((CHUNK * st, st, 1) for st in steps)]
    )
    end, end_tail = row_kernel(
        part, (1, max(rest, 1), 1), [(1, 0, 1), *((0, st, 1) for st in steps)]
    )
    total = chunks + (1 if rest else 0)
    final, final_tail = row_kernel(last, (1, total, 1), [(1, 0, 1), (total, 1, 1)])
    run_main, run_end, run_final = (built(pool, k) for k in (main, end, final))
    size = accumulator.itemsize
    skips = [chunks * CHUNK * st * d.itemsize for st, d in zip(steps, formula.inputs, strict=True)]
    room = -(-total * size // 64) * 64

    def launch(out: int, *addresses: int) -> None:
        with Scratch(pool, room) as (scratch,):
            run_main(scratch, *addresses, *main_tail)
            if rest:
                run_end(
                    scratch + chunks * size,
                    *[a + k for a, k in zip(addresses, skips, strict=True)],
                    *end_tail,
                )
            run_final(out, scratch, *final_tail)

    return launch


class DeclaredRow(RowOp):
    """A rowwise op with a body and, where numerics or speed need it, a declared derivative.

    `vjp` is a body of its own; `rule(g, x, dim, keepdim)` is made of ops and reads x's shape only
    (linear ops).
    """

    __slots__ = ("accepts", "body", "kinds", "results", "rows", "rule", "vjp")

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        vjp: Callable[..., Any] | None,
        accepts: tuple[DType, ...],
        rows: tuple[int, ...],
        kinds: tuple[str, ...],
        results: Sequence[DType | None],
        rule: Callable[..., Any] | None,
        doc: str,
    ) -> None:
        super().__init__(name, doc)
        self.body = body
        self.vjp = vjp
        self.accepts = accepts
        self.rows = rows
        self.kinds = kinds
        self.results = results
        self.rule = rule

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        if self.rule is None:
            return super().make_grad(plan, needs)
        linear, static = self.rule, plan.static

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [linear(grads[0], values[0], *static)]

        return Grad(needs, (), (), rule)

    def is_row(self, place: int) -> bool:
        return place in self.rows

    def formula(self, ins: Sequence[Spec], moving: tuple[bool, ...]) -> RowFormula:
        check_dtypes(self.name, ins[:1], self.accepts)
        inputs = tuple(spec.dtype for spec in ins)
        builder = Rows()
        stores = _as_tuple(
            self.body(builder, *(arg(i, compute_type(d)) for i, d in enumerate(inputs)))
        )
        outputs = tuple(
            compute_type(inputs[0]) if d is COMPUTE else d or inputs[0] for d in self.results
        )
        stores = tuple(s.cast(e, compute_type(d)) for e, d in zip(stores, outputs, strict=True))
        return RowFormula(
            inputs,
            moving,
            outputs,
            self.kinds,
            tuple(builder.passes),
            tuple(builder.constant),
            stores,
        )

    def vjp_formula(self, formula: RowFormula, needs: int, absent: Sequence[int]) -> Derivative:
        if self.vjp is None:
            return derive_rows(formula, needs, absent, self.name)
        n, m = len(formula.inputs), len(formula.outputs)
        every = list(formula.inputs) + list(formula.outputs) * 2
        leaves = [arg(i, compute_type(d)) for i, d in enumerate(every)]
        builder = Rows()
        parts = _as_tuple(self.vjp(builder, *leaves[n + m :], *leaves[n : n + m], *leaves[:n]))
        parts += (None,) * (n - len(parts))
        return _numbered(formula, builder, parts, needs, absent)


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


class RowGrad(RowOp):
    """The derivative of a rowwise op: gradients, then saved outputs, then saved inputs, in."""

    __slots__ = ("fixed",)

    def __init__(self, name: str, fixed: RowFormula, gradients: int) -> None:
        super().__init__(name, f"Derivative of {name.removesuffix('_grad')}.")
        self.fixed = fixed
        self.causes = gradients

    def is_row(self, place: int) -> bool:
        return not self.fixed.moving[place]

    def formula(self, ins: Sequence[Spec], moving: tuple[bool, ...]) -> RowFormula:
        return replace(self.fixed, moving=moving)


def derive_rows(formula: RowFormula, needs: int, absent: Sequence[int], name: str) -> Derivative:
    """Reverse mode through passes and stores. See Note [Rowwise formulas]."""
    n, m = len(formula.inputs), len(formula.outputs)
    gs = [arg(n + m + j, compute_type(d)) for j, d in enumerate(formula.outputs)]
    builder = Rows()
    builder.passes, builder.constant = list(formula.passes), list(formula.constant)
    bodies: list[Expr] = list(formula.stores)
    seeds: list[Expr] = list(gs)
    element = [k == "element" for k in formula.kinds]
    for k in reversed(range(len(formula.passes))):
        if formula.constant[k]:
            continue
        step = formula.passes[k]
        if step.body.dtype.kind != "f":
            continue
        result = row(k, step.body.dtype)
        adjoint = _adjoint(builder, bodies, seeds, element, result)
        if adjoint is None:
            continue
        bodies.append(step.body)
        seeds.append(_weight(builder, step, result, adjoint, name))
        element.append(True)
    wrt = [arg(i, compute_type(d)) for i, d in enumerate(formula.inputs)]
    parts: list[Expr | None] = []
    for i, leaf in enumerate(wrt):
        if not (needs >> i & 1) or leaf.dtype.kind != "f":
            parts.append(None)
        elif formula.moving[i]:
            parts.append(gradients(bodies, seeds, [leaf])[0])
        else:
            parts.append(_adjoint(builder, bodies, seeds, element, leaf))
    return _numbered(formula, builder, parts, needs, absent)


def _adjoint(
    builder: Rows,
    bodies: Sequence[Expr],
    seeds: Sequence[Expr],
    element: Sequence[bool],
    leaf: Expr,
) -> Expr | None:
    """The gradient of a row value: summed along the axis where it is used per element."""
    total: Expr | None = None
    moving = [(b, g) for b, g, e in zip(bodies, seeds, element, strict=True) if e]
    still = [(b, g) for b, g, e in zip(bodies, seeds, element, strict=True) if not e]
    for pairs, along in ((moving, True), (still, False)):
        if not pairs:
            continue
        part = gradients([b for b, _ in pairs], [g for _, g in pairs], [leaf])[0]
        if part is not None:
            part = builder.sum(part) if along else part
            total = part if total is None else total + part
    return total


def _weight(builder: Rows, step: Reduce, result: Expr, adjoint: Expr, name: str) -> Expr:
    """Each element's share of a pass's adjoint: ties of max and min share it."""
    if step.kind == "sum":
        return adjoint
    if step.kind in ("max", "min"):
        hit = step.body.eq(result) | (s.isnan(step.body) & s.isnan(result))
        one, zero = const(1, result.dtype), const(0, result.dtype)
        count = builder.sum(s.where(hit, one, zero))
        return s.where(hit, adjoint / count, zero)
    raise NotDifferentiable(f"{name}: a {step.kind} along an axis has no derivative here")


def _numbered(
    formula: RowFormula,
    builder: Rows,
    parts: Sequence[Expr | None],
    needs: int,
    absent: Sequence[int],
) -> Derivative:
    """The derivative's formula with only the leaves and passes it uses, and which those are.

    The gradients of the outputs in `absent` are zero.
    """
    n, m = len(formula.inputs), len(formula.outputs)
    computed = [i for i in range(n) if needs >> i & 1 and parts[i] is not None]
    exprs: list[Expr] = [parts[i] for i in computed]  # type: ignore[misc]
    steps = builder.passes
    if absent:
        kinds = {j: compute_type(formula.outputs[j]) for j in absent}
        zeros = {arg(n + m + j, kind): const(0, kind) for j, kind in kinds.items()}
        exprs = list(rebuild(exprs, zeros))
        steps = [Reduce(step.kind, rebuild([step.body], zeros)[0]) for step in steps]
    passes, used_rows = _used_passes(steps, exprs)
    used = {e.value for e in topological(exprs + [p.body for p in passes]) if e.op == "arg"}
    used_gs = [j for j in range(m) if n + m + j in used]
    saves_out = tuple(j for j in range(m) if n + j in used)
    saves_in = tuple(i for i in range(n) if i in used)
    order = [n + m + j for j in used_gs] + [n + j for j in saves_out] + list(saves_in)
    every = list(formula.inputs) + list(formula.outputs) * 2
    moving = list(formula.moving) + [k == "element" for k in formula.kinds] * 2
    renamed = {
        arg(old, compute_type(every[old])): arg(new, compute_type(every[old]))
        for new, old in enumerate(order)
    }
    renumbered: list[Reduce] = []
    for old, step in zip(used_rows, passes, strict=True):
        renumbered.append(Reduce(step.kind, rebuild([step.body], renamed)[0]))
        renamed[row(old, step.body.dtype)] = row(len(renumbered) - 1, step.body.dtype)
    outputs = tuple(formula.inputs[i] for i in computed)
    stores = tuple(
        s.cast(e, compute_type(d)) for e, d in zip(rebuild(exprs, renamed), outputs, strict=True)
    )
    fixed = RowFormula(
        tuple(every[old] for old in order),
        tuple(moving[old] for old in order),
        outputs,
        tuple("element" if formula.moving[i] else "row" for i in computed),
        tuple(renumbered),
        (False,) * len(renumbered),
        stores,
    )
    return fixed, computed, saves_in, saves_out, used_gs


def _used_passes(passes: Sequence[Reduce], exprs: list[Expr]) -> tuple[list[Reduce], list[int]]:
    used: set[int] = set()
    stack = list(exprs)
    while stack:
        for e in topological([stack.pop()]):
            if e.op == "row" and e.value not in used:
                used.add(e.value)  # type: ignore[arg-type]
                stack.append(passes[e.value].body)  # type: ignore[index]
    order = sorted(used)
    return [passes[k] for k in order], order


def make_row_grad(op: RowOp, plan: Plan, needs: int) -> Grad:
    dim, _ = plan.static
    formula = op.formula(plan.ins, op.moving(plan.ins, dim))
    n = len(plan.ins)
    squeezed = {j for j, k in enumerate(formula.kinds) if k == "row" and not plan.static[1]}
    # By the outputs without a gradient.
    ways: dict[tuple[int, ...], tuple[RowGrad, Derivative]] = {}

    full = broadcast_shapes([spec.shape for spec in plan.ins], op.name)
    around = [
        (*o.shape[:dim], 1, *o.shape[dim:]) if j in squeezed else o.shape
        for j, o in enumerate(plan.outs)
    ]

    def way(absent: tuple[int, ...]) -> tuple[RowGrad, Derivative]:
        found = ways.get(absent)
        if found is None:
            derivative = op.vjp_formula(formula, needs, absent)
            _, _, saves_in, saves_out, used_gs = derivative
            read = [around[j] for j in (*used_gs, *saves_out)] + [
                plan.ins[i].shape for i in saves_in
            ]
            if absent and (not read or broadcast_shapes(read, op.name) != full):
                found = way(())  # the remaining inputs do not determine the shape: zeros are passed
            else:
                found = RowGrad(f"{op.name}_grad", derivative[0], len(used_gs)), derivative
            ways[absent] = found
        return found

    def rule(
        grads: list[Value | None], values: list[Any], params: tuple[Any, ...]
    ) -> list[Value | None]:
        grad_op, (_, computed, saves_in, saves_out, used_gs) = way(
            tuple([j for j, g in enumerate(grads) if g is None])
        )
        parts: list[Value | None] = [None] * n
        for i in range(n):
            if needs >> i & 1 and i not in computed:
                parts[i] = Needed.full(values[i]._spec, 0.0)
        if not computed:
            return parts
        operands: list[Any] = []
        for j in used_gs:
            g = grads[j] if grads[j] is not None else Needed.full(plan.outs[j], 0.0)
            operands.append(_with_axis(g, dim) if j in squeezed else g)  # type: ignore[arg-type]
        for j in saves_out:
            operands.append(_with_axis(values[n + j], dim) if j in squeezed else values[n + j])
        operands += [values[i] for i in saves_in]
        results = call_rows(grad_op, operands, dim, True)
        for i, part in zip(computed, results if len(computed) > 1 else (results,), strict=True):
            parts[i] = part
        return parts

    _, _, saves_in, saves_out, _ = way(())[1]
    return Grad(needs, saves_in, saves_out, rule)


def _with_axis(value: Value, dim: int) -> Value:
    shape = value._spec.shape
    return Needed.reshape(value, (*shape[:dim], 1, *shape[dim:]))


def call_rows(op: RowOp, inputs: Sequence[Value], dim: int, keepdim: bool) -> Any:
    """Call a rowwise op, copying inputs of unsuitable layout (`row_layout.scattered`)."""
    known = op.plans.get(((dim, keepdim), *[v._spec for v in inputs]))
    if known is not None:
        return call.run(known, inputs)
    shape = broadcast_shapes([v._spec.shape for v in inputs], op.name)
    copied = _scattered(op, tuple([v._spec for v in inputs]), shape, dim)
    ready = [Needed.contiguous(v, copied[i]) if i in copied else v for i, v in enumerate(inputs)]
    return call.call(op, ready, (dim, bool(keepdim)))


@cached
def _scattered(op: RowOp, ins: tuple[Spec, ...], shape: Shape, dim: int) -> dict[int, Shape]:
    return scattered(op.formula(ins, op.moving(ins, dim)).kinds, ins, shape, dim)
