"""Scaled and inverse error functions, and the exponent of a float, branch-free.

They are bodies of ops, not instructions: a derivative is declared by the op.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64, int32
from rushlight.scalar import build as s
from rushlight.scalar.bessel_tables import TABLES
from rushlight.scalar.elementary import exp, log, log1p
from rushlight.scalar.elementary_exponential import reduce_exp_sum, split_exponent
from rushlight.scalar.elementary_formats import clamp, format_of, horner, power_of_two, scale
from rushlight.scalar.elementary_power import cut
from rushlight.scalar.hyperbolic import erfc, scaled_erfc
from rushlight.scalar.inverse import erfinv
from rushlight.scalar.ir import Expr, const

# sqrt(pi) x exp(x^2) erfc(x), of 1 / x^2: the asymptotic series
_ERFCX = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125)


def erfcx_above(size: Expr) -> Expr:
    """erfcx of size >= 0."""
    kind = format_of(size)
    far = size > (10.5 if kind.mantissa == 23 else 27.5)
    near = size < 0.5
    one = const(1.0, size.dtype)
    quotient, rest = scaled_erfc(s.where(far | near, one, size))
    safe = s.where(far, size, one)
    tail = horner(1.0 / (safe * safe), _ERFCX) / (safe * math.sqrt(math.pi))
    inner = s.where(near, size, const(0.0, size.dtype))
    square = inner * inner
    middle = exp(square) * (1.0 - s.fma(inner, horner(square, kind.erf_body), inner))
    return s.where(near, middle, s.where(far, tail, quotient + rest))


def erfcx(x: Expr) -> Expr:
    size = s.absolute(x)
    above = erfcx_above(size)
    value = s.where(x < 0.0, exp_square(size) * 2.0 - above, above)
    return s.where(s.isnan(x), x, value)


def exp_square(x: Expr) -> Expr:
    """exp(x^2), the square in an exact part and a rest."""
    size = clamp(s.absolute(x), 0.0, 10.0 if format_of(x).mantissa == 23 else 27.0)
    head = cut(size)
    n, less_one = reduce_exp_sum(head * head, (size - head) * (size + head))
    return scale(less_one + 1.0, n)


def log_ndtr(x: Expr) -> Expr:
    """Below -1 by the scaled erfc, above by the distance to 1."""
    low = x < -1.0
    root = x * -math.sqrt(0.5)
    below = s.where(low, root, const(1.0, x.dtype))
    above = s.where(low, const(0.0, x.dtype), root)
    tail = log(erfcx(below) * 0.5) - x * x * 0.5
    return s.where(low, tail, log1p(erfc(-above) * -0.5))


def ndtri(p: Expr) -> Expr:
    """The inverse of erf in the middle; in a tail a polynomial of 1 / z with z = sqrt(-2 log p)."""
    upper = p > 0.5
    least = s.where(upper, 1.0 - p, p)
    inside = (least > 0.0) & (least < 0.055)
    z = s.sqrt(log(s.where(inside, least, const(0.01, p.dtype))) * -2.0)
    inverse = 1.0 / z
    ends = [(1 / 8, 1 / 2.4), (1 / 39, 1 / 8)]
    parts = []
    for name, (low, high) in zip(("NDTRI_NEAR", "NDTRI_FAR"), ends, strict=True):
        t = (inverse - (low + high) / 2) * (2 / (high - low))
        parts.append(horner(t, TABLES[name][p.dtype is float64]))
    tail = z - (log(z) + s.where(z < 8.0, *parts)) * inverse
    middle = erfinv(p * 2.0 - 1.0) * math.sqrt(2)
    return s.where(inside, s.where(upper, tail, -tail), middle)


def exponent(x: Expr) -> Expr:
    """frexp's exponent as int32; 0 for 0, infinities and NaN."""
    size = s.absolute(x)
    inside = (size > 0.0) & (size < math.inf)
    k, m = split_exponent(s.where(inside, size, const(0.5, x.dtype)))
    # split_exponent's m runs from sqrt(1/2) to sqrt(2).
    n = s.cast(k, int32) + s.cast(m >= 1.0, int32)
    return s.where(inside, n, const(0, int32))


def small_power(n: Expr, like: Expr) -> Expr:
    """2^n where that is a normal number of the compute type."""
    return power_of_two(s.cast(n, format_of(like).integer), like)
