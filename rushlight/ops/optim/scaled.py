"""What a scaler of losses computes on the device: infinities, 1 / scale, the next scale.

All are kernels over one element, on what the folds of `lists.py` found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type, float32, float64, int32
from rushlight.core.shapes import Spec
from rushlight.ops.create import creation
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.optim.lists import can_list, fold_each
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.view import complex_parts, views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, param
from rushlight.tape.record import call
from rushlight.tape.record.op import Static
from rushlight.tape.record.state import no_grad
from rushlight.tape.record.value import Value


def _wide(ins: Sequence[Spec]) -> DType:
    """The type in which numbers of the host are exact, where the device has it."""
    pool: Any = ins[0].device
    return float64 if float64 in pool.device.limits.dtypes else float32


class _Inverse(MapOp):
    """1 / scale, rounded once to float32."""

    __slots__ = ()

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        return Formula((float32,), (), (float32,), (_inverse(arg(0, float32), _wide(ins)),))


def _inverse(scale: Expr, wide: DType) -> Expr:
    return s.cast(const(1, wide) / s.cast(scale, wide), float32)


class _Overflows(MapOp):
    """1 where a size, or the size over the scale, is no finite number of the dtype."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType) -> None:
        super().__init__("overflows", "Whether gradients have an infinity or NaN.")
        self.dtype = dtype

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        compute = compute_type(ins[0].dtype)
        size, factor = arg(0, compute), s.cast(_inverse(arg(1, float32), _wide(ins)), compute)
        after = s.rounded(size * factor, self.dtype)
        finite = (size < math.inf) & (after < math.inf)
        found = s.where(finite, const(0, float32), const(1, float32))
        return Formula((ins[0].dtype, float32), (), (float32,), (found,))


class _NextScale(MapOp):
    """The scale and the count of good steps after a step."""

    __slots__ = ()

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        wide = _wide(ins)
        scale, good, found = arg(0, float32), arg(1, int32) + 1, arg(2, float32) > 0
        growth, backoff, interval = param(0, wide), param(1, wide), param(2, int32)
        less, more = (s.cast(s.cast(scale, wide) * factor, float32) for factor in (backoff, growth))
        grows = good.eq(interval)
        # A scale never grows to an infinity.
        grown = s.where(grows & (more < math.inf), more, scale)
        none = const(0, int32)
        body = s.where(found, less, grown), s.where(found | grows, none, good)
        return Formula((float32, int32, float32), (wide, wide, int32), (float32, int32), body)


_inverse_op = _Inverse("inverse_scale", "1 / scale.")
_next_op = _NextScale("next_scale", "The scale after a step.")
_OVERFLOWS: dict[DType, _Overflows] = {}


def inverse_of(scale: Value) -> Value:
    """1 / scale."""
    made: Value = call.call_map(_inverse_op, [scale], ())
    return made


def next_scale(
    scale: Value, good: Value, found: Value, growth: float, backoff: float, interval: int
) -> tuple[Value, Value]:
    """The scale and the number of good steps in a row, after a step that was left out or not."""
    following, count = call.call_map(_next_op, [scale, good, found], (growth, backoff, interval))
    return following, count


@no_grad()
def found_in(gradients: Sequence[Value], scale: Value) -> Value:
    """1.0 where one of the gradients has an infinity or NaN, or gets one by unscaling, else 0.0.

    All are on the device of the scale.
    """
    by_dtype: dict[DType, list[Value]] = {}
    for g in gradients:
        reals = complex_parts.split(g) if g._spec.dtype.kind == "c" else g
        if reals._spec.numel:
            by_dtype.setdefault(reals._spec.dtype, []).append(reals)
    found: Value | None = None
    for dtype, values in by_dtype.items():
        op = _OVERFLOWS.setdefault(dtype, _Overflows(dtype))
        one: Value = call.call_map(op, [_largest(values), scale], ())
        found = one if found is None else e.maximum(found, one)
    if found is not None:
        return found
    return creation.full_spec(Spec.of(scale._spec.device, float32, ()), 0.0)


def _largest(values: Sequence[Value]) -> Value:
    """The largest size of all elements; NaN or an infinity where there is one."""
    made: Any
    if can_list(values):
        made = reductions.amax(fold_each(values, "max", _size))
        return made
    sizes = [reductions.amax(e.abs(v)) for v in values]
    made = sizes[0] if len(sizes) == 1 else reductions.amax(views.stack(sizes))
    return made


def _size(x: Expr) -> Expr:
    """|x|, and infinity for a NaN."""
    size = s.absolute(x)
    return s.where(size < math.inf, size, const(math.inf, x.dtype))
