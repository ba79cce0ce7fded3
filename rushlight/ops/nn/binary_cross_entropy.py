"""Binary cross entropy of probabilities, with PyTorch's derivatives to second order.

At probability 0 or 1 the loss and its derivative are clamped to finite values. A second derivative
of those formulas would depend on the clamping, so the first derivative is a separate op that
declares the next one.

# Note [Probabilities]
An input outside [0, 1], or NaN, has the loss NaN, and a target outside has -inf; all other losses
are at least 0. On a device that the host can read at once the sum of them is checked, and the call
raises, as in PyTorch; elsewhere the result shows it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, float32
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.ops.family.declare import apply, elementwise
from rushlight.ops.family.map import Elementwise
from rushlight.ops.family.rowwise import CHUNK, DeclaredRow
from rushlight.ops.family.saved_names import LOSS, name_operands
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.op import Grad, Plan, Static, describe
from rushlight.tape.record.value import Value

LEAST = 1e-12  # the least value of the variance x (1 - x)
LOWEST = -100  # the least value of a logarithm


def _held(x: Expr) -> Expr:
    return s.maximum(s.log(x), const(LOWEST, x.dtype))


def _clamped_variance(x: Expr) -> Expr:
    spread = x * (1 - x)
    return s.where(spread < LEAST, const(LEAST, x.dtype), spread)


def _loss(x: Expr, y: Expr) -> Expr:
    other = s.maximum(elementary.log1p(-x), const(LOWEST, x.dtype))
    loss = -(y * _held(x) + (1 - y) * other)
    return s.where(((y >= 0) & (y <= 1)) | s.isnan(loss), loss, const(-math.inf, x.dtype))


def _slope_vjp(h: Expr, out: Expr, g: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr, Expr]:
    # As in PyTorch where the variance is clamped to LEAST; elsewhere without its small error.
    more = s.where(x * (1 - x) < LEAST, const(LEAST, x.dtype), const(0, x.dtype))
    near, far = x + more, (1 - x) + more
    bend = (y * ((1 - x) * (1 - x)) + (1 - y) * (x * x)) / (near * near) / (far * far)
    return h * ((x - y) / _clamped_variance(x)), h * (g * bend), -(h * (g / _clamped_variance(x)))


def _target_vjp(h: Expr, out: Expr, g: Expr, x: Expr) -> tuple[Expr, Expr]:
    return h * (_held(1 - x) - _held(x)), -(h * (g / (x * (1 - x))))


_slope = elementwise(
    "binary_cross_entropy_grad",
    lambda g, x, y: g * (x - y) / _clamped_variance(x),
    "The derivative of binary_cross_entropy by the probability.",
    FLOAT,
    vjp=_slope_vjp,
    listed=False,
)
_target_slope = elementwise(
    "binary_cross_entropy_target_grad",
    lambda g, x: g * (_held(1 - x) - _held(x)),
    "The derivative of binary_cross_entropy by the target.",
    FLOAT,
    vjp=_target_vjp,
    listed=False,
)


_total = DeclaredRow(
    "sum",
    lambda r, x: r.sum(x),
    None,
    FLOAT,
    (),
    ("row",),
    (float32,),
    None,
    "Sum along an axis, in float32.",
)


def _sums_of(out: Spec) -> list[tuple[Plan, int, int]]:
    """Plans that sum a whole tensor in two steps, the first for many threads.

    They come with the offsets of result and operand; the partial sums are stored after the total.
    """
    pool: Any = out.device
    rows, rest = divmod(out.numel, CHUNK)
    found = []
    if rows:
        found.append(
            (_total.make_plan([Spec.of(pool, out.dtype, (rows, CHUNK))], (1, False)), 4, 0)
        )
    if rest:
        at = rows * CHUNK * out.dtype.itemsize
        found.append(
            (_total.make_plan([Spec.of(pool, out.dtype, (rest,))], (0, False)), 4 + 4 * rows, at)
        )
    return found


def _with_check(plan: Plan) -> Plan:
    """The plan, raising where a loss is not at least 0. See Note [Probabilities]."""
    out, run, tail = plan.out, plan.plain, plan.tail
    pool: Any = out.device
    limits = pool.device.limits
    if not out.numel or limits.asynchronous or not limits.host_memory:
        return plan
    assert run is not None
    sums = _sums_of(out)
    count = sum(part.out.numel for part, _, _ in sums)
    whole = _total.make_plan([Spec.of(pool, float32, (count,))], (0, False))
    room = room_for(4 + 4 * count)

    def launch(loss: int, x: int, y: int, *params: Any) -> None:
        run(loss, x, y, *tail, *params)
        with Scratch(pool, room) as (place,):
            for part, to, at in sums:
                part.launch(place + to, loss + at, *part.tail)  # type: ignore[misc]
            whole.launch(place, place + 4, *whole.tail)  # type: ignore[misc]
            total = ctypes.c_float.from_address(place).value
        if not total >= 0:
            which = "target" if total == -math.inf else "input"
            raise RushlightError(
                f"binary_cross_entropy: all elements of {which} should be between 0 and 1 "
                f"(operands {describe(plan.ins)}); of numbers of any size the probability is "
                "sigmoid, or use binary_cross_entropy_with_logits"
            )

    plan.replace_launch(launch, ())
    return plan


class _Bernoulli(Elementwise):
    """The loss of every element; its rule calls ops."""

    __slots__ = ()

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        return _with_check(super().make_plan(ins, static))

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        def rule(
            grads: list[Any], values: list[Any], params: tuple[Any, ...]
        ) -> list[Value | None]:
            g, x, y = grads[0], values[0], values[1]
            return [
                _slope(g, x, y) if needs & 1 else None,
                _target_slope(g, x) if needs & 2 else None,
            ]

        return Grad(needs, (0, 1) if needs & 1 else (0,), (), rule)


_OP = _Bernoulli(
    "binary_cross_entropy", _loss, None, FLOAT, None, (), "-(y log x + (1 - y) log(1 - x))."
)
name_operands(_OP.name, *LOSS)


def bernoulli_loss(x: Value, y: Value) -> Value:
    """-(y log x + (1 - y) log(1 - x)), logarithms clamped to at least -100."""
    loss: Value = apply(_OP, x, y)
    return loss
