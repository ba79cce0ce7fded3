"""Running sums, products, extremes along a dimension.

# Note [Derivatives of running folds]
All are made of running folds again, so every order follows, and none divides, so zeros need no
special case. The recurrence s[a] = b[a] * s[a-1] + c[a] is the base: the gradient of c is the
reverse recurrence with b shifted by one, the gradient of b is that of c times s[a-1]. cumprod: the
terms after position k sum to s[k] = g[k] + x[k+1] * s[k+1], the factor before it is the product
before. logcumsumexp: s[k] = g[k] + exp(out[k] - out[k+1]) * s[k+1], no power above 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import FLOAT, DType, bool_, compute_type, int32, int64, integer_range
from rushlight.core.errors import DTypeError
from rushlight.core.shapes import Spec, collapse, numel, wrap_dim
from rushlight.kernel.shapes import Scan
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.build import built, check_device_dtype
from rushlight.ops.family.kernel_op import KernelOp, Vjp
from rushlight.ops.family.returned import returned
from rushlight.ops.family.saved_names import name_results
from rushlight.ops.index.gather import gather, merges
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.transcendental import logaddexp
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, arg, const, index, row
from rushlight.tape.record import call
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.op import Grad, Op, Plan, Static, check_devices
from rushlight.tape.record.value import Value

BLOCK = 256
Fold = Callable[..., Expr]  # of the previous state, and of the inputs' elements


@returned("cummax")
class CumMax(NamedTuple):
    """The result of cummax."""

    values: Any
    indices: Any


@returned("cummin")
class CumMin(NamedTuple):
    """The result of cummin."""

    values: Any
    indices: Any


# ---- one launch ----


def _steps(spec: Spec, dim: int, reverse: bool) -> tuple[int, tuple[int, int, int]]:
    """Bytes to the start of the fold, and the (outer, axis, inner) strides.

    Dimensions merge on both sides.
    """
    ends = []
    for part in (slice(0, dim), slice(dim + 1, None)):
        steps = collapse(spec.shape[part], (spec.strides[part],))[1][0]
        ends.append(steps[0] if steps else 0)
    along, size = spec.strides[dim], spec.shape[dim]
    if not reverse:
        return 0, (ends[0], along, ends[1])
    return max(size - 1, 0) * along * spec.dtype.itemsize, (ends[0], -along, ends[1])


def _scan_kernel(output: DType, inputs: Sequence[DType], start: float, fold: Fold) -> Scan:
    wide = compute_type(output)
    if wide.kind in "iu" and math.isinf(start):
        start = integer_range(wide)[0 if start < 0 else 1]
    elements = [arg(i, compute_type(d)) for i, d in enumerate(inputs)]
    return Scan(output, tuple(inputs), const(start, wide), fold(row(0, wide), *elements))


class Running(KernelOp):
    """One scan; static is (dim, reverse, the output's dtype)."""

    __slots__ = ("fold", "start")

    batching = "elementwise.scan"

    def __init__(
        self,
        name: str,
        start: float,
        fold: Fold,
        doc: str,
        vjp: Vjp | None = None,
        saves: Sequence[int | str] = (),
    ) -> None:
        super().__init__(name, _plan, [vjp], [saves], doc)
        self.start = start
        self.fold = fold


def _plan(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    assert isinstance(op, Running)
    dim, reverse, dtype = static
    pool = check_devices(op.name, ins)
    check_device_dtype(op.name, pool, dtype)
    out = Spec.of(pool, dtype, ins[0].shape)
    run = built(pool, _scan_kernel(dtype, [spec.dtype for spec in ins], op.start, op.fold))
    skips, strides = zip(*(_steps(spec, dim, reverse) for spec in (out, *ins)), strict=True)
    shape = out.shape
    tail = (
        numel(shape[:dim]),
        shape[dim],
        numel(shape[dim + 1 :]),
        *(n for three in strides for n in three),
    )
    if not any(skips):
        return Plan(op, ins, [out], lambda *addresses: run(*addresses, *tail), static)

    def launch(*addresses: int) -> None:
        run(*(a + skip for a, skip in zip(addresses, skips, strict=True)), *tail)

    return Plan(op, ins, [out], launch, static)


def run_fold(op: Running, inputs: Sequence[Value], dim: int, reverse: bool, dtype: DType) -> Value:
    """`dim` is wrapped; a 0-dim tensor counts as one of 1 element."""
    if not inputs[0]._spec.shape:
        return views.reshape(
            run_fold(op, [views.reshape(x, (1,)) for x in inputs], 0, reverse, dtype), ()
        )
    return call.call(op, [merges(x, dim) for x in inputs], (dim, reverse, dtype))


# ---- the folds ----


class Recurrence(Running):
    """See Note [Derivatives of running folds]; inputs are c and b."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        dim, reverse, _ = plan.static
        back = 1 if reverse else -1

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            of_c = _recur(grads[0], _moved(values[1], dim, back, 0.0), dim, not reverse)
            return [of_c, e.mul(of_c, _moved(values[2], dim, -back, 0.0)) if needs & 2 else None]

        return Grad(needs, (1,), (0,) if needs & 2 else (), rule)


_recurrence = Recurrence(
    "recurrence", 0.0, lambda state, c, b: state * b + c, "s[a] = b[a] * s[a-1] + c[a]."
)


def _recur(c: Value, b: Value, dim: int, reverse: bool) -> Value:
    return run_fold(_recurrence, (c, b), dim, reverse, c._spec.dtype)


def _moved(x: Value, dim: int, by: int, fill: float) -> Value:
    """x shifted by one position (`by` 1 or -1) along a dimension, with `fill` at the end."""
    size, spec = x._spec.shape[dim], x._spec
    if size == 0:
        return x
    kept = views.slice_dim(x, dim, 0 if by > 0 else 1, size - 1)
    end = full_spec(
        Spec.of(spec.device, spec.dtype, (*spec.shape[:dim], 1, *spec.shape[dim + 1 :])), fill
    )
    return views.cat([end, kept] if by > 0 else [kept, end], dim)


def _cumprod_grad(g: Value, out: Value, x: Value, dim: int, reverse: bool, dtype: DType) -> Value:
    on, back = (-1, 1) if reverse else (1, -1)
    behind = _recur(g, _moved(x, dim, back, 0.0), dim, not reverse)
    return e.mul(_moved(out, dim, on, 1.0), behind)


def _add_in_logs(state: Expr, x: Expr) -> Expr:
    gap = s.absolute(state - x)
    # The difference of two infinities is NaN; a NaN operand is in the maximum.
    return s.maximum(state, x) + elementary.log1p(s.exp(-s.where(s.isnan(gap), 0.0, gap)))


def _logcumsumexp_grad(
    g: Value, out: Value, x: Value, dim: int, reverse: bool, dtype: DType
) -> Value:
    size = x._spec.shape[dim]
    if size == 0:
        return g
    before, after = views.slice_dim(out, dim, 0, size - 1), views.slice_dim(out, dim, 1, size - 1)
    if reverse:
        before, after = after, before
    stuck = e.logical_and(e.eq(before, after), e.eq(e.abs(before), math.inf))
    ratio = e.exp(e.select(stuck, 0.0, e.sub(before, after)))
    end = full_spec(
        Spec.of(
            g._spec.device, g._spec.dtype, (*g._spec.shape[:dim], 1, *g._spec.shape[dim + 1 :])
        ),
        0.0,
    )
    behind = _recur(g, views.cat([end, ratio] if reverse else [ratio, end], dim), dim, not reverse)
    part = e.select(e.eq(out, -math.inf), -math.inf, e.sub(x, out))
    return e.mul(e.exp(part), behind)


def _cumsum_grad(g: Value, out: Value, x: Value, dim: int, reverse: bool, dtype: DType) -> Value:
    return run_fold(_cumsum, (g,), dim, not reverse, dtype)


_cumsum = Running(
    "cumsum", 0.0, lambda state, x: state + s.cast(x, state.dtype), "Running sum.", _cumsum_grad
)
_cumprod = Running(
    "cumprod",
    1.0,
    lambda state, x: state * s.cast(x, state.dtype),
    "Running product.",
    _cumprod_grad,
    (0, "out"),
)


def _last_place(state: Expr, x: Expr, best: Expr) -> Expr:
    hit = x.eq(best)
    if x.dtype.kind == "f":  # after a NaN the extreme is NaN, at the position of the last NaN
        hit = hit | s.isnan(x)
    return s.where(hit, index(), state)


_cummax = Running("cummax", -math.inf, lambda state, x: s.maximum(state, x), "Running maximum.")
_cummin = Running("cummin", math.inf, lambda state, x: s.minimum(state, x), "Running minimum.")
name_results(_cummax.name, "values", "indices")
name_results(_cummin.name, "values", "indices")
_place = Running("place", 0, _last_place, "Where the running extreme was last held.")
_logcumsumexp = Running(
    "logcumsumexp",
    -math.inf,
    _add_in_logs,
    "Running log of the sum of exponentials.",
    _logcumsumexp_grad,
    (0, "out"),
)


# ---- public functions ----


def _doubled(fold: Callable[[Value, Value], Value], x: Value, dim: int, op: str) -> Value:
    """A running fold of complex numbers, which no scan supports: in rounds of doubled distance."""
    dim = wrap_dim(dim, len(x._spec.shape), op)
    size = x._spec.shape[dim] if x._spec.shape else 1
    step, out = 1, x
    while step < size:
        before, here = (
            views.slice_dim(out, dim, 0, size - step),
            views.slice_dim(out, dim, step, size - step),
        )
        out = views.cat([views.slice_dim(out, dim, 0, step), fold(before, here)], dim)
        step *= 2
    return e.clone(x) if out is x else out


def _accumulated(op: Running, x: Value, dim: int, dtype: DType | None) -> Value:
    dim = wrap_dim(dim, len(x._spec.shape), op.name)
    if dtype is bool_:
        raise DTypeError(f"{op.name}: cannot accumulate in bool; ask for dtype=rushlight.int64")
    if dtype is not None:
        x = e.cast(x, dtype)
    return run_fold(
        op, (x,), dim, False, x._spec.dtype if dtype or x._spec.differentiable else int64
    )


def in_blocks(x: Value) -> Value:
    """A vector as rows of one block each, padded with zeros."""
    n = x._spec.numel
    blocks = -(-n // BLOCK)
    if n % BLOCK:
        x = views.cat(
            [x, full_spec(Spec.of(x._spec.device, x._spec.dtype, (blocks * BLOCK - n,)), 0)]
        )
    return views.reshape(x, (blocks, BLOCK))


def _whole_sums(x: Value, dtype: DType) -> Value:
    """cumsum of a vector of integers, in blocks, then over the blocks' totals: it is exact."""
    n = x._spec.numel
    if n <= BLOCK:
        return run_fold(_cumsum, (x,), 0, False, dtype)
    inside = run_fold(_cumsum, (in_blocks(x),), 1, False, dtype)
    blocks = inside._spec.shape[0]
    totals = views.reshape(views.slice_dim(inside, 1, BLOCK - 1, 1), (blocks,))
    before = e.sub(_whole_sums(totals, dtype), totals)
    whole = e.add(inside, views.reshape(before, (blocks, 1)))
    return (
        e.clone(views.slice_dim(views.reshape(whole, (blocks * BLOCK,)), 0, 0, n))
        if n % BLOCK
        else _flat(whole)
    )


def _flat(x: Value) -> Value:
    return views.reshape(x, (x._spec.numel,))


@composite("cumsum", inplace="result", out="dtype", pure=True, autocast={"gpu": "dtype"})
def cumsum(input: Value, dim: int, *, dtype: DType | None = None) -> Value:
    """Sum of the elements up to each along a dimension.

    Integers add in int64, halves in float32.

    Example:
        >>> torch.cumsum(torch.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([[1, 2],
                [4, 6]])
    """
    spec = input._spec
    wanted = dtype or (spec.dtype if spec.differentiable else int64)
    one_row = (
        spec.numel > BLOCK and spec.shape[wrap_dim(dim, len(spec.shape), "cumsum")] == spec.numel
    )
    if one_row and wanted.kind in "iu" and spec.device.device.limits.asynchronous:
        # A scan is serial along its row, and one row would leave a GPU idle.
        x = _flat(input if dtype is None else e.cast(input, dtype))
        return views.reshape(_whole_sums(x, wanted), spec.shape)
    return _accumulated(_cumsum, input, dim, dtype)


@composite("cumprod", inplace="result", out="dtype", pure=True, autocast={"gpu": "dtype"})
def cumprod(input: Value, dim: int, *, dtype: DType | None = None) -> Value:
    """Product of the elements up to each along a dimension.

    Integers multiply in int64, halves in float32.

    Example:
        >>> torch.cumprod(torch.tensor([1, 2, 3]), dim=0)
        tensor([1, 2, 6])
    """
    if (dtype or input._spec.dtype).kind == "c":
        return _doubled(e.mul, e.cast(input, dtype or input._spec.dtype), dim, "cumprod")
    return _accumulated(_cumprod, input, dim, dtype)


@composite("logcumsumexp", out="exact", pure=True)
def logcumsumexp(input: Value, dim: int) -> Value:
    """log of the sum of exp of the elements up to each along a dimension, without overflow.

    Example:
        >>> torch.logcumsumexp(torch.zeros(3), dim=0)
        tensor([0.0000, 0.6931, 1.0986])
    """
    if input._spec.dtype.kind == "c":
        return _doubled(logaddexp, input, dim, "logcumsumexp")
    if input._spec.dtype not in FLOAT:
        raise DTypeError(
            f"logcumsumexp: takes floating point, got {input._spec!r}; cast with .float() first"
        )
    return run_fold(
        _logcumsumexp,
        (input,),
        wrap_dim(dim, len(input._spec.shape), "logcumsumexp"),
        False,
        input._spec.dtype,
    )


def _extremes(op: Running, x: Value, dim: int) -> tuple[Value, Value]:
    """The running extreme and its last position, which gets the gradient."""
    dim = wrap_dim(dim, len(x._spec.shape), op.name)
    if not x._spec.shape:
        values, places = _extremes(op, views.reshape(x, (1,)), 0)
        return views.reshape(values, ()), views.reshape(places, ())
    seen = call.detached(x)
    if x._spec.dtype is bool_:  # the instructions compare numbers only
        seen = e.cast(seen, int32)
    best = run_fold(op, (seen,), dim, False, seen._spec.dtype)
    places = run_fold(_place, (seen, best), dim, False, int64)
    if is_followed(x):
        return gather(x, dim, places), places
    return e.cast(best, x._spec.dtype), places


@composite("cummax", out="exact")
def cummax(input: Value, dim: int) -> CumMax:
    """Largest element up to each along a dimension, and its last position; NaN is largest.

    Example:
        >>> torch.cummax(torch.tensor([1, 3, 2]), dim=0).values
        tensor([1, 3, 3])
    """
    return CumMax(*_extremes(_cummax, input, dim))


@composite("cummin", out="exact")
def cummin(input: Value, dim: int) -> CumMin:
    """Smallest element up to each along a dimension, and its last position; NaN is smallest."""
    return CumMin(*_extremes(_cummin, input, dim))
