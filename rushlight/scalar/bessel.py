"""Bessel and Airy functions, branch-free, of differentiable instructions only.

Note [Bessel regions]
1. Near 0: a polynomial in x or x^2; for the second kind, plus the logarithm that makes the pole.
2. Beyond: the magnitude sqrt(2 / (pi x)) or exp(+-x) / sqrt(x) times polynomials in 1 / x. The
   phase x - pi/4 enters through sums and differences of sin x and cos x, since the difference
   itself would be rounded.
3. Each table's variable runs from -1 to 1 over its region (`bessel_tables`).
4. At infinity, products with 0 or sin are NaN, as in PyTorch. A value that is not selected is kept
   finite: its derivative is multiplied by 0.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import bessel_tables as tables, build as s
from rushlight.scalar.elementary_formats import horner
from rushlight.scalar.ir import Expr, const

_NEAR = 8.0  # the end of the first region of I, J and Y


def _poly(t: Expr, name: str) -> Expr:
    return horner(t, tables.TABLES[name][t.dtype is float64])


def _inverse(x: Expr) -> Expr:
    return 1.0 / s.sqrt(x)


def _signed(x: Expr, value: Expr) -> Expr:
    return s.where(x < 0.0, -value, value)


# ---- modified Bessel functions ----


def _first_scaled(x: Expr, order: int) -> Expr:
    """exp(-|x|) I(x)."""
    size = s.absolute(x)
    near = size <= _NEAR
    inner = s.where(near, size, const(_NEAR, size.dtype))
    outer = s.where(near, const(_NEAR, size.dtype), size)
    low = _poly(inner * 0.25 - 1.0, f"I{order}_NEAR")
    far = _poly(16.0 / outer - 1.0, f"I{order}_FAR") * _inverse(outer)
    if order:
        # Times x and not |x|, so that the formula's derivative at 0 is right.
        low, far = low * s.where(near, x, const(_NEAR, size.dtype)), _signed(x, far)
    return s.where(near, low, far)


def i0_scaled(x: Expr) -> Expr:
    return _first_scaled(x, 0)


def i1_scaled(x: Expr) -> Expr:
    return _first_scaled(x, 1)


def _grown(size: Expr, scaled: Expr) -> Expr:
    """exp(size) scaled; it overflows only where the result does."""
    half = s.exp(size * 0.5)
    return half * scaled * half


def i0(x: Expr) -> Expr:
    return _grown(s.absolute(x), _first_scaled(x, 0))


def i1(x: Expr) -> Expr:
    return _grown(s.absolute(x), _first_scaled(x, 1))


def _second(x: Expr, order: int, scaled: bool) -> Expr:
    near = x <= 2.0
    inner = s.where(near & (x > 0.0), x, const(1.0, x.dtype))
    outer = s.where(near, const(2.0, x.dtype), x)
    t = inner * inner * 0.5 - 1.0
    logarithm = s.log(inner * 0.5)
    if order:
        low = inner * (logarithm * _poly(t, "I1_SMALL") + _poly(t, "K1_NEAR")) + 1.0 / inner
    else:
        low = _poly(t, "K0_NEAR") - logarithm * _poly(t, "I0_SMALL")
    far = _poly(4.0 / outer - 1.0, f"K{order}_FAR") * _inverse(outer)
    if scaled:
        low = low * s.exp(inner)
    else:
        far = far * s.exp(-outer)
    end = s.where(x.eq(0.0), const(math.inf, x.dtype), const(math.nan, x.dtype))
    return s.where(x > 0.0, s.where(near, low, far), end)


def k0(x: Expr) -> Expr:
    return _second(x, 0, scaled=False)


def k1(x: Expr) -> Expr:
    return _second(x, 1, scaled=False)


def k0_scaled(x: Expr) -> Expr:
    return _second(x, 0, scaled=True)


def k1_scaled(x: Expr) -> Expr:
    return _second(x, 1, scaled=True)


# ---- J and Y ----


def _waves(size: Expr, order: int) -> tuple[Expr, Expr]:
    """(J, Y) of size >= 8."""
    x = s.where(size < _NEAR, const(_NEAR, size.dtype), size)
    z = 8.0 / x
    t = z * z * 2.0 - 1.0
    p, q = _poly(t, f"P{order}"), z * _poly(t, f"Q{order}")
    length = _inverse(x * math.pi)
    total, difference = s.cos(x) + s.sin(x), s.sin(x) - s.cos(x)
    if order:
        j, y = p * difference + q * total, q * difference - p * total
    else:
        j, y = p * total - q * difference, p * difference + q * total
    return length * j, length * y


def _j_near(inner: Expr, order: int) -> Expr:
    value = _poly(inner * inner * (1 / 32) - 1.0, f"J{order}_NEAR")
    return value * inner if order else value


def _first(x: Expr, order: int) -> Expr:
    size = s.absolute(x)
    near = size <= _NEAR
    inner = s.where(near, size, const(1.0, x.dtype))
    far = _waves(size, order)[0]
    if order:  # of x itself near 0, see _first_scaled
        return s.where(near, _j_near(s.where(near, x, const(1.0, x.dtype)), order), _signed(x, far))
    return s.where(near, _j_near(inner, order), far)


def j0(x: Expr) -> Expr:
    return _first(x, 0)


def j1(x: Expr) -> Expr:
    return _first(x, 1)


def _y(x: Expr, order: int) -> Expr:
    near = x <= _NEAR
    inner = s.where(near & (x > 0.0), x, const(1.0, x.dtype))
    rest = _poly(inner * inner * (1 / 32) - 1.0, f"Y{order}_NEAR")
    low = s.log(inner) * _j_near(inner, order)
    low = (
        (low - 1.0 / inner) * (2 / math.pi) + rest * inner if order else low * (2 / math.pi) + rest
    )
    end = s.where(x.eq(0.0), const(-math.inf, x.dtype), const(math.nan, x.dtype))
    return s.where(x > 0.0, s.where(near, low, _waves(x, order)[1]), end)


def y0(x: Expr) -> Expr:
    return _y(x, 0)


def y1(x: Expr) -> Expr:
    return _y(x, 1)


def spherical_j0(x: Expr) -> Expr:
    inside = x.ne(0.0) & (s.absolute(x) < math.inf)
    safe = s.where(inside, x, const(1.0, x.dtype))
    end = s.where(x.eq(0.0), const(1.0, x.dtype), s.where(s.isnan(x), x, const(0.0, x.dtype)))
    return s.where(inside, s.sin(safe) / safe, end)


# ---- Airy function ----

_LOW, _HIGH = 3.0, 2.0  # the polynomial in x holds from -3 to 2
_LOW_TURN, _HIGH_TURN = 2 / 3 * _LOW**1.5, 2 / 3 * _HIGH**1.5


def airy(x: Expr) -> Expr:
    """Ai: decays above 0, oscillates below."""
    above, below = x > _HIGH, x < -_LOW
    middle = _poly(s.where(above | below, const(0.0, x.dtype), x) * 0.4 + 0.2, "AIRY_MID")
    size = s.where(above, x, s.where(below, -x, const(_LOW, x.dtype)))
    root = s.sqrt(size)
    turn = size * root * (2 / 3)
    high = _poly(
        (2 * _HIGH_TURN) / s.where(above, turn, const(_HIGH_TURN, x.dtype)) - 1.0, "AIRY_FAR"
    )
    decayed = high * s.exp(-turn) * (0.5 / math.sqrt(math.pi)) * _inverse(root)
    ratio = _LOW_TURN / s.where(below, turn, const(_LOW_TURN, x.dtype))
    t = ratio * ratio * 2.0 - 1.0
    p, q = _poly(t, "AIRY_P"), ratio * _poly(t, "AIRY_Q")
    safe = s.where(below, turn, const(1.0, x.dtype))
    total, difference = s.sin(safe) + s.cos(safe), s.cos(safe) - s.sin(safe)
    swung = (p * total - q * difference) * (1 / math.sqrt(2 * math.pi)) * _inverse(root)
    result = s.where(above, decayed, s.where(below, swung, middle))
    return s.where(s.isnan(x) | s.absolute(x).eq(math.inf), const(math.nan, x.dtype), result)
