"""sin and cos, branch-free."""

from __future__ import annotations

import math

from rushlight.scalar import build as s
from rushlight.scalar.elementary_formats import flip, format_of, horner, sign_bit
from rushlight.scalar.elementary_reduction import reduce_quarters
from rushlight.scalar.ir import Expr, const


def sin(x: Expr) -> Expr:
    quarter, sine, cosine = turn(s.absolute(x))
    return _pick(x, quarter, sine, cosine, sign_bit(x))


def cos(x: Expr) -> Expr:
    quarter, sine, cosine = turn(s.absolute(x))
    return _pick(x, quarter + 1, sine, cosine, const(0, format_of(x).integer))


def _pick(x: Expr, quarter: Expr, sine: Expr, cosine: Expr, sign: Expr) -> Expr:
    kind = format_of(x)
    value = s.where((quarter & 1).eq(0), sine, cosine)
    # Bit 1 of the quarter is the sign of the half turn.
    half = s.cast(quarter & 2, kind.integer) << (8 * kind.dtype.itemsize - 2)
    return s.where(s.absolute(x) < math.inf, flip(value, half ^ sign), const(math.nan, x.dtype))


def turn(size: Expr) -> tuple[Expr, Expr, Expr]:
    """(quarter, sin r, cos r) with size = quarter * pi/2 + r."""
    kind = format_of(size)
    quarter, r, _ = reduce_quarters(size)
    z = r * r
    sine = s.fma(r * z, horner(z, kind.sin_tail), r)
    cosine = s.fma(z * z, horner(z, kind.cos_tail), s.fma(z, -0.5, 1.0))
    return quarter, sine, cosine
