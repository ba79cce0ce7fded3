"""Contractions: matmul with broadcast batches, linear.

# Note [One rounding]
A product of halves is summed in float32. What is added to it (the bias of `linear`, the input of
`addmm` and `baddbmm`) is added in float32 too, and the result is rounded once, on every device. A
bias is the fourth operand of a `Contract` with `added`, where the device's limits say `adds`. Else,
and for what has factors or is a matrix, the summand is copied into the result, and a `Contract`
that is `scaled` adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import ARITHMETIC, FLOAT8, DType, compute_type, float32
from rushlight.core.errors import DTypeError, ShapeError, SparseOperandError
from rushlight.core.shapes import (
    Shape,
    Spec,
    broadcast_shapes,
    broadcast_strides,
    collapse,
    contiguous_strides,
    numel,
)
from rushlight.kernel.shapes import Contract
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.declare import rowwise
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.pointwise import arithmetic as e, complex_numbers
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.laid import copy_into
from rushlight.scalar.ir import arg
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static, check_devices, check_dtypes
from rushlight.tape.record.value import Value

# A multiplication inside a contraction costs far less than an element moved through memory.
_COST_OF_PRODUCT = 0.02


def _check_types(name: str, ins: Sequence[Spec]) -> None:
    check_dtypes(name, ins, ARITHMETIC)
    if any(spec.dtype is not ins[0].dtype for spec in ins):
        listed = ", ".join(map(repr, ins))
        raise DTypeError(
            f"{name}: operands must have one dtype, got {listed}; cast one with .to(dtype)"
        )


def contract(
    pool: Any,
    dtype: Any,
    batch: Shape,
    m: int,
    n: int,
    k: int,
    strides: Sequence[Shape],
    factors: tuple[float, ...] = (),
) -> tuple[Any, tuple[Any, ...]] | None:
    """A launch for out, a, b with the given batch sizes, and for what is added to the product.

    It comes with the numbers after the addresses; None where the batch does not merge. Strides are
    (*batch, rows, columns) per operand: three, or four where something is added. With `factors`,
    alpha and beta, the product is added to `out`. See Note [One rounding].
    """
    if 0 in (*batch, m, n):  # the other sizes may be any numbers
        return (lambda *addresses: None), ()
    sizes, steps = collapse(batch, [st[:-2] for st in strides])
    if len(sizes) > 2:
        return None
    pad = (1,) * (2 - len(sizes)) + sizes
    numbers = [
        (0,) * (2 - len(sizes)) + lead + st[-2:] for lead, st in zip(steps, strides, strict=True)
    ]
    kernel = Contract(dtype, compute_type(dtype), bool(factors), len(strides) == 4)
    tail = (*pad, m, n, k, *(x for st in numbers for x in st), *factors)
    return built(pool, kernel), tail


def _batch(ins: Sequence[Spec]) -> Shape:
    return broadcast_shapes([spec.shape[:-2] for spec in ins], "matmul", ins)


def _walk(spec: Spec, shape: Shape) -> Shape:
    """Strides over a broadcast operand; those of an empty one are such that they merge."""
    return (
        broadcast_strides(spec.shape, spec.strides, shape)
        if spec.numel
        else contiguous_strides(shape)
    )


def _one_for_all(batch: Shape, m: int, strides: Sequence[Shape]) -> tuple[int, Sequence[Shape]]:
    """Where one matrix b serves the whole batch, all rows of the batch as rows of one product.

    Else unchanged.
    """
    out, a, b = strides
    if any(st and size != 1 for st, size in zip(b, batch, strict=False)):
        return m, strides
    sizes, steps = collapse((*batch, m), (out[:-1], a[:-1]))
    if len(sizes) != 1 or sizes[0] == m or not sizes[0]:
        return m, strides
    (first,), (second,) = steps
    return sizes[0], [(first, out[-1]), (second, a[-1]), b[-2:]]


def _plan_matmul(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    pool = check_devices("matmul", ins)
    _check_types("matmul", ins)
    a, b = ins
    check_device_dtype("matmul", pool, a.dtype)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if b.shape[-2] != k:
        raise ShapeError(
            f"matmul: {a!r} and {b!r} do not fit: the last size of the first ({k}) must be the "
            f"second last of the second ({b.shape[-2]})"
        )
    batch = _batch(ins)
    out = Spec.of(pool, a.dtype, (*batch, m, n))
    strides = [out.strides, *(_walk(s, (*batch, *s.shape[-2:])) for s in ins)]
    rows, steps = _one_for_all(batch, m, strides)
    launched = contract(pool, a.dtype, () if rows != m else batch, rows, n, k, steps)
    if launched is None:
        raise ShapeError(
            f"matmul: the batch dimensions of {a!r} and {b!r} do not merge; make them contiguous"
        )
    products = out.numel * k
    cost = products * _COST_OF_PRODUCT + out.numel + a.numel + b.numel
    return Plan(op, ins, [out], launched[0], static, launched[1], cost, products=products)


_matmul = KernelOp(
    "matmul",
    _plan_matmul,
    [
        lambda g, out, a, b: _product(g, complex_numbers.conjugate(views.transpose(b, -1, -2))),
        lambda g, out, a, b: _product(complex_numbers.conjugate(views.transpose(a, -1, -2)), g),
    ],
    [(1,), (0,)],
    "Matrix product over the last two dimensions, the others broadcast.",
    batching="contract.matmul",
    operand_names=("self", "mat2"),
)


def _product(a: Value, b: Value) -> Value:
    known = _matmul.plans.get(((), a._spec, b._spec))
    if known is not None:
        return call.run(known, (a, b))
    batch = broadcast_shapes([a._spec.shape[:-2], b._spec.shape[:-2]], "matmul", (a._spec, b._spec))
    return call.call(_matmul, [_mergeable(v, batch) for v in (a, b)])


_dot = rowwise(
    "dot", lambda r, x, y: r.sum(x * y), "Sum of the products of two vectors.", kinds=("row",)
)


def _mergeable(value: Value, batch: Shape) -> Value:
    """A value with at most two batch dimensions for the kernel; a copy where there are more."""
    spec = value._spec
    if len(batch) <= 2:
        return value
    lead = broadcast_strides(spec.shape[:-2], spec.strides[:-2], batch)
    sizes, _ = collapse(batch, (lead,))
    return (
        value
        if len(sizes) <= 1
        else views.contiguous(views.expand(value, (*batch, *spec.shape[-2:])))
    )


def _are_codes(*operands: Value) -> bool:
    """Whether all operands are of one float8 type: products of those are made in float32."""
    dtype = operands[0]._spec.dtype
    return dtype in FLOAT8 and all(v._spec.dtype is dtype for v in operands)


def _decoded(*operands: Value) -> list[Value]:
    return [e.cast(v, float32) for v in operands]


@composite("matmul", out="exact", pure=True, linalg="matmul", autocast="lower")
def matmul(input: Value, other: Value) -> Value:
    """Matrix product: vectors count as rows or columns, batch dimensions broadcast.

    Example:
        >>> torch.matmul(torch.ones(5, 2, 3), torch.ones(3, 4)).shape
        rushlight.Size([5, 2, 4])
        >>> torch.matmul(torch.tensor([1, 2]), torch.tensor([3, 4]))
        tensor(11)
    """
    if not isinstance(other, Value):
        raise DTypeError(f"matmul: the second operand must be a tensor, got {type(other).__name__}")
    left, right = input._spec.shape, other._spec.shape
    if not left or not right:
        raise ShapeError(
            f"matmul: both operands need at least one dimension, got {input._spec!r} and "
            f"{other._spec!r}"
        )
    if _are_codes(input, other):
        return e.cast(matmul(*_decoded(input, other)), input._spec.dtype)
    if (
        len(left) == 1
        and left == right
        and input._spec.dtype is other._spec.dtype
        and input._spec.dtype.kind == "f"
    ):
        return _dot(input, other)
    a = views.unsqueeze(input, 0) if len(left) == 1 else input
    b = views.unsqueeze(other, 1) if len(right) == 1 else other
    if len(left) > 2 and len(b._spec.shape) == 2:
        # One matrix for the whole batch: its rows are the batch's.
        flat = (
            _product(views.reshape(a, (numel(left[:-1]), left[-1])), b)
            if left[-1] == b._spec.shape[0]
            else _product(a, b)
        )
        out = views.reshape(flat, (*left[:-1], b._spec.shape[1]))
    else:
        out = _product(a, b)
    if len(left) == 1:
        out = views.squeeze(out, -2)
    return views.squeeze(out, -1) if len(right) == 1 else out


# ---- beta * c + alpha * (a @ b) of halves ----


def is_half(dtype: DType) -> bool:
    """Whether sums of the type are made in another one. See Note [One rounding]."""
    return dtype.kind == "f" and compute_type(dtype) is not dtype


def _plan_added(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    pool = check_devices(op.name, ins)
    _check_types(op.name, ins)
    c, a, b = ins
    check_device_dtype(op.name, pool, a.dtype)
    beta, alpha = static
    m, k, n = *a.shape[-2:], b.shape[-1]
    if b.shape[-2] != k:
        raise ShapeError(f"{op.name}: {a!r} and {b!r} do not fit: sizes {k} and {b.shape[-2]} meet")
    batch = broadcast_shapes([a.shape[:-2], b.shape[:-2], c.shape[:-2]], op.name, ins)
    out = Spec.of(pool, a.dtype, (*batch, m, n))
    strides = [out.strides, *(_walk(s, (*batch, *s.shape[-2:])) for s in (a, b))]
    launched = contract(pool, a.dtype, batch, m, n, k, strides, (alpha, beta))
    if launched is None:
        raise ShapeError(
            f"{op.name}: the batch dimensions of {a!r} and {b!r} do not merge; make them contiguous"
        )
    fill, sizes = copy_into(pool, a.dtype, out.shape, out.strides, _walk(c, out.shape))
    product, tail = launched

    def launch(target: int, added: int, left: int, right: int) -> None:
        fill(target, added, *sizes)
        product(target, left, right, *tail)

    products = out.numel * k
    cost = products * _COST_OF_PRODUCT + 2 * out.numel + a.numel + b.numel
    return Plan(op, ins, [out], launch, static, cost=cost, products=products)


def _times(value: Value, factor: float) -> Value:
    return value if factor == 1 else e.mul(value, factor)


_added = KernelOp(
    "addmm",
    _plan_added,
    [
        lambda g, out, c, a, b, beta, alpha: _times(g, beta),
        lambda g, out, c, a, b, beta, alpha: _times(_product(g, views.transpose(b, -1, -2)), alpha),
        lambda g, out, c, a, b, beta, alpha: _times(_product(views.transpose(a, -1, -2), g), alpha),
    ],
    [(), (2,), (1,)],
    "beta * c + alpha * (a @ b), rounded once.",
    batching="contract.added",
    operand_names=("self", "mat1", "mat2"),
)


def added_product(c: Value, a: Value, b: Value, beta: float, alpha: float) -> Value:
    """beta * c + alpha * (a @ b) of halves; beta is not 0. See Note [One rounding]."""
    batch = broadcast_shapes([v._spec.shape[:-2] for v in (c, a, b)], "addmm")
    operands = (c, _mergeable(a, batch), _mergeable(b, batch))
    return call.call(_added, operands, (float(beta), float(alpha)))


# ---- linear: one record for x @ w.T + b ----


def _plan_linear(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    pool = check_devices("linear", ins)
    _check_types("linear", ins)
    x, w = ins[:2]
    check_device_dtype("linear", pool, x.dtype)
    n, k = w.shape if len(w.shape) == 2 else (-1, -1)
    if not x.shape or x.shape[-1] != k or (len(ins) > 2 and ins[2].shape != (n,)):
        raise ShapeError(
            f"linear: input {x!r}, weight {w!r}{', bias ' + repr(ins[2]) if len(ins) > 2 else ''} "
            "do not fit: the input's last size must be the weight's last, the bias as long as the "
            "weight's first"
        )
    rows = numel(x.shape[:-1])
    out = Spec.of(pool, x.dtype, (*x.shape[:-1], n))
    _, (steps,) = collapse(x.shape[:-1], (x.strides[:-1],))
    step = steps[0] if steps else k
    strides = [(n, 1), (step, x.strides[-1]), (w.strides[1], w.strides[0])]
    adds = len(ins) > 2 and x.dtype in pool.device.limits.adds
    if adds:
        strides.append((0, ins[2].strides[0]))
    once = len(ins) > 2 and is_half(x.dtype) and not adds
    launched = contract(pool, x.dtype, (), rows, n, k, strides, (1.0, 1.0) if once else ())
    assert launched is not None  # there is no batch
    product, tail = launched
    products = rows * n * k
    cost = products * _COST_OF_PRODUCT + out.numel + x.numel + w.numel
    if adds or len(ins) == 2 or not out.numel:
        return Plan(op, ins, [out], product, static, tail, cost, products=products)
    if once:
        sides = (n, 1), (0, ins[2].strides[0])
        fill, sizes = copy_into(pool, x.dtype, (rows, n), *sides)

        def add(target: int, source: int, weight: int, bias: int) -> None:
            fill(target, bias, *sizes)
            product(target, source, weight, *tail)

        return Plan(op, ins, [out], add, static, cost=cost, products=products)
    compute = compute_type(x.dtype)
    formula = Formula((x.dtype, x.dtype), (), (x.dtype,), (arg(0, compute) + arg(1, compute),))
    kernel, places = map_kernel(formula, (rows, n), [(n, 1), (n, 1), (0, ins[2].strides[0])], 1)
    add_bias = built(pool, kernel)

    def launch(target: int, source: int, weight: int, bias: int) -> None:
        product(target, source, weight, *tail)
        add_bias(target, target, bias, *places)

    return Plan(op, ins, [out], launch, static, cost=cost, products=products)


def _rows(x: Value) -> Value:
    return views.reshape(x, (numel(x._spec.shape[:-1]), x._spec.shape[-1]))


_linear = KernelOp(
    "linear",
    _plan_linear,
    [
        lambda g, out, x, w, *b: matmul_plain(g, complex_numbers.conjugate(w)),
        lambda g, out, x, w, *b: _product(
            views.transpose(_rows(g), 0, 1), complex_numbers.conjugate(_rows(x))
        ),
        lambda g, out, x, w, *b: reductions.sum(_rows(g), 0),
    ],
    [(1,), (0,), ()],
    "x @ weight.T + bias.",
    batching="contract.linear",
    operand_names=("input", "weight", "bias"),
)


def matmul_plain(g: Value, w: Value) -> Value:
    """g @ w for a batch of rows and one matrix."""
    return views.reshape(_product(_rows(g), w), (*g._spec.shape[:-1], w._spec.shape[1]))


@composite("linear", method=False, top=False, out="exact", pure=True, autocast="lower")
def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
    """input @ weight.T + bias.

    Args:
        weight: A matrix, (out, in).

    Example:
        >>> F.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)).shape
        rushlight.Size([2, 4])
    """
    try:
        operands = [input, weight] if bias is None else [input, weight, bias]
        known = _linear.plans.get(((), *[v._spec for v in operands]))
    except SparseOperandError as error:  # See Note [Sparse operands]
        return error.obj.instead("linear", (input, weight, bias), {})
    if known is not None:
        return call.run(known, operands)
    if _are_codes(*operands):
        return e.cast(linear(*_decoded(*operands)), input._spec.dtype)
    x = operands[0]
    shape = x._spec.shape
    # One output feature, without a dimension.
    if len(operands[1]._spec.shape) == 1 and bias is None:
        return matmul(x, operands[1])
    sizes, _ = collapse(shape[:-1], (x._spec.strides[:-1],)) if shape else ((), ())
    if len(sizes) > 1:
        operands[0] = views.contiguous(x)
    return call.call(_linear, operands)
