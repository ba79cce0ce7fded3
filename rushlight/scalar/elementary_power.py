"""x to the y, branch-free: 2^(y log2 x) with the logarithm in two parts.

Exact products come from operands cut to half of their bits, not from fma, so that a device whose
fma rounds twice loses nothing.
"""

from __future__ import annotations

import math

from rushlight.scalar import build as s
from rushlight.scalar.elementary_exponential import split_exponent
from rushlight.scalar.elementary_formats import (
    bits,
    clamp,
    flip,
    format_of,
    horner,
    scale,
    sign_bit,
    to_float,
    to_integer,
)
from rushlight.scalar.ir import Expr, const


def power(x: Expr, y: Expr) -> Expr:
    """C99's pow, every special value included."""
    size = s.absolute(x)
    magnitude = _exp2_product(y, *_log2(size))
    at_end = size.eq(0.0) | size.eq(math.inf)
    grows = (y > 0.0) ^ size.eq(0.0)
    end = s.where(grows, const(math.inf, x.dtype), const(0.0, x.dtype))
    magnitude = s.where(at_end, end, magnitude)
    whole = s.floor(y).eq(y)
    odd = whole & s.floor(y * 0.5).ne(y * 0.5)
    signed = s.where(odd, flip(magnitude, sign_bit(x)), magnitude)
    undefined = ((x < 0.0) & (x > -math.inf) & ~whole) | s.isnan(x) | s.isnan(y)
    result = s.where(undefined, const(math.nan, x.dtype), signed)
    return s.where(y.eq(0.0) | x.eq(1.0), const(1.0, x.dtype), result)


def cut(x: Expr) -> Expr:
    """x without the lower half of its mantissa."""
    return s.bits_to(bits(x) & (-1 << format_of(x).split), x.dtype)


def _log2(x: Expr) -> tuple[Expr, Expr]:
    """log2 of a positive finite number as a cut part and a rest; unspecified for other numbers.

    With m = x / 2^k and t = (m - 1) / (m + 1): log2 x = k + c t (3 + t^2 + t^4 P(t^2)), c = 2 / (3
    log 2).
    """
    kind = format_of(x)
    k, m = split_exponent(x)
    whole = to_float(k, x)
    above, below = m - 1.0, m + 1.0
    ratio = above / below
    ratio_high = cut(ratio)
    below_high = cut(below)
    below_low = m - (below_high - 1.0)
    ratio_low = ((above - ratio_high * below_high) - ratio_high * below_low) / below
    # 3 + t^2 + t^4 P in two parts.
    square = ratio * ratio
    high_square = ratio_high * ratio_high
    tail = square * square * horner(square, kind.pow_tail) + ratio_low * (ratio_high + ratio)
    series = cut(high_square + 3.0 + tail)
    series_low = tail - ((series - 3.0) - high_square)
    # t times that, then times c.
    product = ratio_high * series
    product_low = ratio_low * series + series_low * ratio
    head = cut(product + product_low)
    head_low = product_low - (head - product)
    scaled = head * kind.pow_scale[0]
    scaled_low = head * kind.pow_scale[1] + head_low * sum(kind.pow_scale)
    high = cut((scaled + scaled_low) + whole)
    return high, scaled_low - ((high - whole) - scaled)


def _exp2_product(y: Expr, high: Expr, low: Expr) -> Expr:
    """2^(y * (high + low)).

    An infinite y counts as a very large one, so that 0 * inf does not arise.
    """
    kind = format_of(y)
    y = clamp(y, -(2.0**100), 2.0**100)
    y_high = cut(y)
    main = y_high * high
    rest = (y - y_high) * high + y * low
    exponent = main + rest
    inside = s.absolute(exponent) < kind.pow_end
    n = s.round_even(clamp(exponent, -kind.pow_end, kind.pow_end))
    left = s.where(inside, (main - n) + rest, const(0.0, y.dtype))
    return scale(s.fma(horner(left, kind.exp2_tail), left, 1.0), to_integer(n))
