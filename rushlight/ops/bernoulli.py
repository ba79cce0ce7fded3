"""Binary cross entropy of probabilities, exact 0 and 1 included, with derivatives that stay PyTorch's to second order.

Where the probability is 0 or 1 the loss and its derivative are held at finite values. How they are held would be what a second
derivative of those formulas sees, so the first derivative is an op of its own that declares the next one.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import FLOAT
from rushlight.ops.family.declare import apply, elementwise
from rushlight.ops.family.map import Elementwise
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, const
from rushlight.tape.op import Grad, Plan
from rushlight.tape.value import Value

LEAST = 1e-12  # what the variance x (1 - x) counts as at least
LOWEST = -100  # of a logarithm


def _held(x: Expr) -> Expr:
    return s.maximum(s.log(x), const(LOWEST, x.dtype))


def _spread(x: Expr) -> Expr:
    spread = x * (1 - x)
    return s.where(spread < LEAST, const(LEAST, x.dtype), spread)


def _loss(x: Expr, y: Expr) -> Expr:
    other = s.maximum(elementary.log1p(-x), const(LOWEST, x.dtype))
    return -(y * _held(x) + (1 - y) * other)


def _slope_vjp(h: Expr, out: Expr, g: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr, Expr]:
    # As PyTorch's where the variance counts as LEAST; elsewhere without its small error.
    more = s.where(x * (1 - x) < LEAST, const(LEAST, x.dtype), const(0, x.dtype))
    near, far = x + more, (1 - x) + more
    bend = (y * ((1 - x) * (1 - x)) + (1 - y) * (x * x)) / (near * near) / (far * far)
    return h * ((x - y) / _spread(x)), h * (g * bend), -(h * (g / _spread(x)))


def _target_vjp(h: Expr, out: Expr, g: Expr, x: Expr) -> tuple[Expr, Expr]:
    return h * (_held(1 - x) - _held(x)), -(h * (g / (x * (1 - x))))


_slope = elementwise(
    "binary_cross_entropy_grad",
    lambda g, x, y: g * (x - y) / _spread(x),
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


class _Bernoulli(Elementwise):
    """The loss of every element; its rule calls ops."""

    __slots__ = ()

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Value | None]:
            g, x, y = grads[0], values[0], values[1]
            return [_slope(g, x, y) if needs & 1 else None, _target_slope(g, x) if needs & 2 else None]

        return Grad(needs, (0, 1) if needs & 1 else (0,), (), rule)


_OP = _Bernoulli("binary_cross_entropy", _loss, None, FLOAT, None, (), "-(y log x + (1 - y) log(1 - x)).")


def bernoulli_loss(x: Value, y: Value) -> Value:
    """-(y log x + (1 - y) log(1 - x)), logarithms no smaller than -100."""
    loss: Value = apply(_OP, x, y)
    return loss
