"""Elementwise ops: a scalar formula, a derivative that is a scalar formula, one kernel each.

# Note [Elementwise derivatives]
1. A declared `vjp(g, out, *inputs)` is traced like the body; without one the body is
   differentiated.
2. All gradients of an op's inputs come from one kernel with several outputs (`MapGrad`), an
   elementwise op itself, so the next order follows in the same way.
3. The saves of the derivative are read from the formula: the inputs and outputs that occur in it.
4. A gradient that is just `g` is passed on without a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rushlight.core import dtypes
from rushlight.core.dtypes import DType, compute_type
from rushlight.core.shapes import (
    Shape,
    Spec,
    broadcast_shapes,
    broadcast_strides,
    collapse,
    contiguous_strides,
    followed_strides,
    order_of,
)
from rushlight.kernel.shapes import Map
from rushlight.ops.family.build import built, check_device_dtype, lowered, step_of
from rushlight.scalar import build as s
from rushlight.scalar.derive import gradients
from rushlight.scalar.ir import Expr, arg, const, param, rebuild, topological
from rushlight.tape.program.derivative import one_step
from rushlight.tape.program.program import Program
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices, check_dtypes
from rushlight.tape.record.value import Value


@dataclass(frozen=True, slots=True)
class Formula:
    """Typed expressions over args and params, one per output."""

    inputs: tuple[DType, ...]
    params: tuple[DType, ...]
    outputs: tuple[DType, ...]
    body: tuple[Expr, ...]


class MapOp(Op):
    """An op whose output elements each depend on one element of each input.

    Subclasses give the formula.
    """

    __slots__ = ()

    batching = "elementwise.map"

    def strides(self, shape: Shape, ins: Sequence[Spec], static: Static) -> Shape:
        """The strides of the results. See Note [Layouts of results]."""
        return followed_strides(shape, ins)

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        raise AssertionError(self.name)

    def vjp_exprs(
        self, formula: Formula, static: Static, gs: list[Expr | None], outs: list[Expr]
    ) -> list[Expr | None]:
        """The gradient of each input, as an expression; by default derived from the body.

        A missing g is None.
        """
        wrt = [arg(i, compute_type(d)) for i, d in enumerate(formula.inputs)]
        came = [(out, g) for out, g in zip(formula.body, gs, strict=True) if g is not None]
        parts = gradients([out for out, _ in came], [g for _, g in came], wrt)
        replace = dict(zip(formula.body, outs, strict=True))
        known: list[Expr] = [p for p in parts if p is not None]
        swapped = iter(rebuild(known, {k: v for k, v in replace.items() if k.args}))
        return [None if p is None else next(swapped) for p in parts]

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        pool = check_devices(self.name, ins)
        formula = self.formula(ins, static)
        shape = broadcast_shapes([spec.shape for spec in ins], self.name, ins)
        strides = self.strides(shape, ins, static)
        outs = []
        for dtype in formula.outputs:
            check_device_dtype(self.name, pool, dtype)
            outs.append(Spec.of(pool, dtype, shape, strides))
        return map_plan(self, formula, ins, outs, static)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        return make_map_grad(self, plan, needs)


def map_plan(
    op: Op, formula: Formula, ins: Sequence[Spec], outs: Sequence[Spec], static: Static
) -> Plan:
    """A plan that stores the formula's results at `outs`, of the broadcast shape.

    They may have any strides.
    """
    shape = outs[0].shape
    strides = [spec.strides for spec in outs] + [
        broadcast_strides(spec.shape, spec.strides, shape) for spec in ins
    ]
    expressions = topological(list(formula.body))
    if not outs[0].contiguous and not any(x.op == "index" for x in expressions):
        # In the order of memory. A formula that reads its position needs the row-major order.
        order = order_of(shape, strides)
        shape = tuple([shape[d] for d in order])
        strides = [tuple([st[d] for d in order]) for st in strides]
    sizes, steps = collapse(shape, strides)
    kernel, tail = map_kernel(formula, sizes, steps, len(outs))
    kernel = lowered(kernel)
    instructions = len(expressions)
    cost = outs[0].numel * (len(ins) + len(outs) + 0.1 * instructions)
    launch = built(outs[0].device, kernel)
    if outs[0].numel == 0:
        launch = _launch_nothing
    return Plan(op, ins, outs, launch, static, tail, cost, kernel=kernel)


def _launch_nothing(*_: object) -> None:
    """The launch of a kernel over no elements."""


def map_kernel(
    formula: Formula, sizes: Shape, strides: Sequence[Shape], n_outs: int
) -> tuple[Map, tuple[int, ...]]:
    """The kernel for a layout, and the numbers that follow the addresses."""
    flat = len(sizes) == 0 or (
        len(sizes) == 1
        and all(st[0] in (0, 1) for st in strides)
        and all(st[0] == 1 for st in strides[:n_outs])
    )
    tail: tuple[int, ...]
    if flat:
        rank, tail = 0, (sizes[0] if sizes else 1,)
        steps = tuple("1" if not sizes else step_of(st[0]) for st in strides)
    else:
        rank, tail = len(sizes), (*sizes, *(step for st in strides for step in st))
        steps = tuple("r" if st[-1] == -1 else step_of(st[-1]) for st in strides)
    return Map(formula.outputs, formula.inputs, formula.params, formula.body, rank, steps), tail


Layout = Literal[
    "followed",  # that of the operands
    "kept",  # that of the one operand
    "packed",  # contiguous
]


class Elementwise(MapOp):
    """A declared elementwise op. Operands are tensors or Python numbers.

    `static` is the pattern of them.
    """

    __slots__ = (
        *("accepts", "body", "conditions", "layout", "of_numbers", "refuse", "result", "rounds"),
        "vjp",
    )

    batching = "elementwise.elementwise"
    static_is_pattern = True

    # Checks tensors and operands before a call; raises.
    refuse: Callable[[Sequence[Value], Sequence[Any]], None] | None

    def __init__(
        self,
        name: str,
        body: Callable[..., Expr],
        vjp: Callable[..., Any] | None,
        accepts: tuple[DType, ...],
        result: DType | None,
        conditions: tuple[int, ...],
        doc: str,
    ) -> None:
        super().__init__(name, doc)
        self.body = body
        self.vjp = vjp
        self.accepts = accepts
        self.result = result
        self.conditions = conditions
        self.layout: Layout = "followed"
        self.refuse = None
        self.of_numbers = False  # whether two Python numbers are operands too
        # Whether a number is rounded to a half dtype, as in most of PyTorch's ops.
        self.rounds = False

    def strides(self, shape: Shape, ins: Sequence[Spec], static: Static) -> Shape:
        if self.layout == "kept" and ins[0].dense:
            return ins[0].strides
        if self.layout == "packed":
            return ins[0].strides if ins[0].contiguous else contiguous_strides(shape)
        return followed_strides(shape, ins, any(kind is not None for kind in static))

    def common_type(self, ins: Sequence[Spec], static: Static) -> DType:
        """The compute type of the formula, and the dtype of its result unless `result` is given."""
        tensors, scalars = [], []
        numbers = iter(ins)
        for place, kind in enumerate(static):
            if kind is not None:
                scalars.append(kind)
                continue
            spec = next(numbers)
            if place not in self.conditions:
                tensors.append((spec.dtype, len(spec.shape)))
        common = dtypes.result_type(tensors, scalars)
        if common.kind in "biu" and not any(d.kind in "biu" for d in self.accepts):
            common = dtypes.get_default()
        return common

    def operands(self, ins: Sequence[Spec], static: Static) -> tuple[list[Expr], tuple[DType, ...]]:
        common = self.common_type(ins, static)
        compute = compute_type(common)
        leaves: list[Expr] = []
        params: list[DType] = []
        tensors = 0
        for place, kind in enumerate(static):
            if kind is not None:
                number = s.wrapped(param(len(params), compute), common)
                leaves.append(s.rounded(number, common) if self.rounds else number)
                params.append(compute)
            else:
                own = ins[tensors].dtype
                leaf = arg(tensors, compute_type(own))
                if place not in self.conditions:
                    leaf = s.cast(leaf, compute)
                    # A 0-dim operand may have a wider dtype; it is rounded to the common dtype.
                    leaf = (
                        s.wrapped(leaf, common)
                        if own.itemsize >= common.itemsize and own is not common
                        else leaf
                    )
                    if (
                        self.rounds
                        and own is not common
                        and (own.kind != "f" or self.result is dtypes.bool_)
                    ):
                        # Only where no gradient is needed.
                        leaf = s.rounded(leaf, common)
                leaves.append(leaf)
                tensors += 1
        return leaves, tuple(params)

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        common = self.common_type(ins, static)
        if common not in self.accepts:
            check_dtypes(self.name, [Spec.of(i.device, common, i.shape) for i in ins], self.accepts)
        leaves, params = self.operands(ins, static)
        body = self.body(*leaves)
        # Some formulas have a real result of complex numbers, e.g. the absolute value, or the
        # reverse.
        out = self.result or (
            common if (body.dtype.kind == "c") == (common.kind == "c") else body.dtype
        )
        body = s.cast(body, compute_type(out))
        return Formula(tuple(i.dtype for i in ins), params, (out,), (body,))

    def vjp_exprs(
        self, formula: Formula, static: Static, gs: list[Expr | None], outs: list[Expr]
    ) -> list[Expr | None]:
        if self.vjp is None:
            return super().vjp_exprs(formula, static, gs, outs)
        g = gs[0]
        assert g is not None  # there is one output: without its gradient there is nothing to do
        ins = [_TypeOnly(d) for d in formula.inputs]
        leaves, _ = self.operands(ins, static)  # type: ignore[arg-type]
        # The formula is written for the common dtype, for any dtypes of the tensors.
        common = next(leaf.dtype for i, leaf in enumerate(leaves) if i not in self.conditions)
        if formula.outputs[0].kind == "c":
            # The declaration is g times a derivative; see COMPLEX_RULES.
            parts = _as_tuple(self.vjp(s.conj(s.cast(g, common)), s.cast(outs[0], common), *leaves))
            parts = tuple(p if p is None else s.conj(p) for p in parts)
        elif common.kind == "c":
            parts = _as_tuple(self.vjp(g, outs[0], *leaves))
        else:
            parts = _as_tuple(self.vjp(s.cast(g, common), s.cast(outs[0], common), *leaves))
        tensors = [p for p, kind in zip(parts, static, strict=True) if kind is None]
        return [
            None if p is None or d.kind not in "fc" else s.cast(p, compute_type(d))
            for p, d in zip(tensors, formula.inputs, strict=True)
        ]


def _as_tuple(parts: Any) -> tuple[Expr | None, ...]:
    return parts if isinstance(parts, tuple) else (parts,)


class _TypeOnly:
    """A spec for its dtype only; promotion is done already, so dimensions do not matter."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.shape = (1,)


class MapGrad(MapOp):
    """The fused derivative of a map: gradients and saved values in.

    One gradient per needed input out.
    """

    __slots__ = ("fixed",)

    def __init__(self, name: str, fixed: Formula, gradients: int) -> None:
        super().__init__(name, f"Derivative of {name.removesuffix('_grad')}.")
        self.fixed = fixed
        self.causes = gradients

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        return self.fixed


@dataclass(frozen=True, slots=True)
class _Traced:
    """A map's derivative, for those of its results that have a gradient."""

    grad_op: MapGrad | None
    computed: list[int]  # inputs whose gradient the kernel computes
    through: dict[int, int]  # inputs whose gradient is that of an output, unchanged
    flat: list[int]  # inputs on which nothing depends
    used_gs: list[int]
    saves_in: tuple[int, ...]
    saves_out: tuple[int, ...]


def _traced(op: MapOp, plan: Plan, needs: int, came: Sequence[bool]) -> _Traced:
    formula = op.formula(plan.ins, plan.static)
    n, m = len(formula.inputs), len(formula.outputs)
    # While tracing: inputs are args 0..n-1, outputs n.., gradients n+m..; then the used ones are
    # renumbered.
    outs = [arg(n + j, compute_type(d)) for j, d in enumerate(formula.outputs)]
    gs = [arg(n + m + j, compute_type(d)) for j, d in enumerate(formula.outputs)]
    parts = op.vjp_exprs(
        formula, plan.static, [g if here else None for g, here in zip(gs, came, strict=True)], outs
    )
    flat = [i for i in range(n) if needs >> i & 1 and parts[i] is None]
    asked = [i for i in range(n) if needs >> i & 1 and parts[i] is not None]
    through = {
        i: j
        for i in asked
        for j, g in enumerate(gs)
        if parts[i] is g and formula.inputs[i] is formula.outputs[j]
    }
    computed = [i for i in asked if i not in through]
    if computed and all(came):  # the same kernel computes zeros
        constant = [i for i in flat if formula.inputs[i].kind == "f"]
        parts = [
            const(0, compute_type(d)) if i in constant else parts[i]
            for i, d in enumerate(formula.inputs)
        ]
        flat = [i for i in flat if i not in constant]
        computed = sorted(computed + constant)
    # What is summed to the shape of an operand of a narrower type is rounded after the sum.
    is_wide = [
        d.kind == "f" and d not in formula.outputs and plan.ins[i].shape != plan.out.shape
        for i, d in enumerate(formula.inputs)
    ]
    exprs: list[Expr] = [_unrounded(parts[i]) if is_wide[i] else parts[i] for i in computed]  # type: ignore[misc,arg-type]
    used = {e.value for e in topological(exprs) if e.op == "arg"}
    used_gs = [j for j in range(m) if n + m + j in used]
    saves_out = tuple(j for j in range(m) if n + j in used)
    saves_in = tuple(i for i in range(n) if i in used)
    order = [n + m + j for j in used_gs] + [n + j for j in saves_out] + list(saves_in)
    every = list(formula.inputs) + list(formula.outputs) * 2
    renumber = {
        arg(old, compute_type(every[old])): arg(new, compute_type(every[old]))
        for new, old in enumerate(order)
    }
    fixed = Formula(
        tuple(every[old] for old in order),
        formula.params,
        tuple(
            x.dtype if is_wide[i] else formula.inputs[i]
            for i, x in zip(computed, exprs, strict=True)
        ),
        rebuild(exprs, renumber),
    )
    grad_op = MapGrad(f"{op.name}_grad", fixed, len(used_gs)) if computed else None
    return _Traced(grad_op, computed, through, flat, used_gs, saves_in, saves_out)


def _unrounded(x: Expr) -> Expr:
    """The number that a cast rounds at the end of a formula; another formula itself."""
    return x.args[0] if x.op == "cast" and x.args[0].dtype.kind == "f" else x


def make_map_grad(op: MapOp, plan: Plan, needs: int) -> Grad:
    m = len(plan.outs)
    full = _traced(op, plan, needs, [True] * m)
    rule = _map_rule(op, plan, needs, full)
    one_kernel = m == 1 and not full.flat and (not full.computed or full.used_gs == [0])
    fused = functools.partial(_fused, plan, full) if one_kernel else None
    return Grad(needs, full.saves_in, full.saves_out, rule, fused)


def _fused(plan: Plan, traced: _Traced, specs: Sequence[Spec]) -> Program | None:
    """The derivative as at most one kernel; None where a gradient is to be fitted."""
    g, ins = specs[0], plan.ins
    asked = [*traced.computed, *traced.through]
    if any(ins[i].shape != g.shape or ins[i].dtype is not g.dtype for i in traced.through):
        return None
    inner = None if traced.grad_op is None else call.map_plan_for(traced.grad_op, tuple(specs))
    if inner is not None and any(inner.out.shape != ins[i].shape for i in traced.computed):
        return None
    made = len(specs)
    slots = [
        None if i not in asked else 0 if i in traced.through else made + traced.computed.index(i)
        for i in range(len(ins))
    ]
    return one_step(inner, specs, slots)


def _or_zero(g: Value | None, spec: Spec) -> Value:
    return Needed.full(spec, 0.0) if g is None else g


def _map_rule(op: MapOp, plan: Plan, needs: int, full: _Traced) -> Callable[..., Any]:
    n = len(plan.ins)
    traced = {(True,) * len(plan.outs): full}

    def choose(came: tuple[bool, ...]) -> _Traced:
        """The derivative without missing gradients: zeros would turn Inf into NaN."""
        found = _traced(op, plan, needs, came)
        saved = set(found.saves_in) <= set(full.saves_in) and set(found.saves_out) <= set(
            full.saves_out
        )
        traced[came] = found if saved else full
        return traced[came]

    def rule(
        grads: list[Value | None], values: list[Any], params: tuple[Any, ...]
    ) -> list[Value | None]:
        came = tuple([g is not None for g in grads])
        way = traced.get(came) or choose(came)
        parts: list[Value | None] = [None] * n
        for i, j in way.through.items():
            parts[i] = grads[j]
        for i in full.flat:  # constant almost everywhere: the gradient is zero, not absent
            parts[i] = Needed.full(values[i]._spec, 0.0)
        if way.grad_op is None:
            return parts
        operands: list[Any] = [_or_zero(grads[j], values[n + j]._spec) for j in way.used_gs]
        operands += [values[n + j] for j in way.saves_out] + [values[i] for i in way.saves_in]
        results = call.call_map(way.grad_op, operands, params)
        if len(way.computed) == 1:
            parts[way.computed[0]] = results
        else:
            for i, part in zip(way.computed, results, strict=True):
                parts[i] = part
        return parts

    return rule
