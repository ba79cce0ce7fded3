"""The remainder of floats without a library call, for devices whose fma rounds once."""

from __future__ import annotations

import math

from rushlight.scalar import build as s
from rushlight.scalar.elementary_formats import flip, format_of, sign_bit
from rushlight.scalar.ir import Expr, binary
from rushlight.scalar.named import skippable


def remainder(x: Expr, y: Expr) -> Expr:
    """C's fmod, exact. Where a float can count the integral quotient, it takes one division.

    With a, b >= 0 and q = trunc(a / b) as rounded: q is the true integral quotient n or n + 1 (the
    quotient may be rounded up to n + 1, but not below n, which is a float). a - q * b is a multiple
    of b's last place and smaller than b, so it is a float, and so is its sum with b where it is
    negative.
    """
    a, b = s.absolute(x), s.absolute(y)
    q = s.trunc(a / b)
    near = (q < 2.0 ** format_of(x).mantissa) & (b < math.inf)  # false where either is NaN
    rest = s.fma(-q, b, a)
    rest = s.where(rest < 0, rest + b, rest)
    (far,) = skippable(near, _any_remainder, x, y)
    return s.where(near, flip(rest, sign_bit(x)), far)


def _any_remainder(x: Expr, y: Expr) -> tuple[Expr, ...]:
    return (binary("rem", x, y),)
