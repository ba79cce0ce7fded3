"""exp, log and related functions, branch-free."""

from __future__ import annotations

import math

from rushlight.scalar import build as s
from rushlight.scalar.elementary_formats import (
    SINGLE,
    bits,
    clamp,
    flip,
    format_of,
    horner,
    power_of_two,
    scale,
    sign_bit,
    to_float,
    to_integer,
)
from rushlight.scalar.ir import Expr, const
from rushlight.scalar.named import named

TANH_SMALL = 0.55  # tanh(0.55) is just above a half; beyond it, 1 - small loses nothing


def reduce_exp(x: Expr) -> tuple[Expr, Expr]:
    """(integer n, e^r - 1) with x = n log 2 + r."""
    kind = format_of(x)
    n = s.round_even(x * kind.log2_e)
    r = s.fma(n, -kind.ln2[0], x)
    r = s.fma(n, -kind.ln2[1], r)
    return to_integer(n), s.fma(r * r, horner(r, kind.exp_tail), r)


def reduce_exp_sum(high: Expr, low: Expr) -> tuple[Expr, Expr]:
    """(integer n, e^r - 1) with high + low = n log 2 + r.

    low is small, and high has few enough bits to be reduced exactly.
    """
    kind = format_of(high)
    n = s.round_even((high + low) * kind.log2_e)
    r = s.fma(n, -kind.ln2[1], s.fma(n, -kind.ln2[0], high)) + low
    return to_integer(n), s.fma(r * r, horner(r, kind.exp_tail), r)


@named
def exp(x: Expr) -> Expr:
    n, less_one = reduce_exp(clamp(x, *format_of(x).exp_range))
    return scale(less_one + 1.0, n)


def _exp_moderate(x: Expr) -> Expr:
    """exp where the result is known to be normal."""
    n, less_one = reduce_exp(x)
    return (less_one + 1.0) * power_of_two(n, x)


@named
def expm1(x: Expr) -> Expr:
    """e^x - 1, accurate near 0."""
    kind = format_of(x)
    # Far below 0 it is -1, well before -60.
    n, less_one = reduce_exp(clamp(x, -60.0, kind.exp_range[1]))
    # Half the result first: 2^n itself may overflow.
    half = power_of_two(n - 1, x)
    result = s.fma(less_one, half, half - 0.5) * 2.0
    return s.where(s.absolute(x) < kind.tiny, x, result)


def tanh(x: Expr) -> Expr:
    size = s.absolute(x)
    square = x * x
    small = s.fma(size * square, horner(square, format_of(x).tanh_tail), size)
    # tanh is 1 well before 25; the clamp keeps the square of e in range.
    grown = _exp_moderate(s.where(size > 25.0, const(25.0, x.dtype), size) * 2.0)
    large = 1.0 - 2.0 / (grown + 1.0)
    return flip(s.where(size < TANH_SMALL, small, large), sign_bit(x))


def erf(x: Expr) -> Expr:
    kind = format_of(x)
    size = s.absolute(x)
    square = x * x
    small = s.fma(size, horner(square, kind.erf_body), size)
    end = const(kind.erf_end, x.dtype)
    fall = horner(s.where(size > end, end, size), kind.erf_log)
    large = 1.0 - _exp_moderate(-fall)
    return flip(s.where(size < 1.0, small, large), sign_bit(x))


# -log2(erfc(z)) / z for 0 <= z <= 5 as a polynomial in z, and 2^f / 2 for |f| <= 1/2 as one in f;
# fitted so that erfc is right to 1e-7.
_FALL = (
    1.1283797025680542,
    0.6366105079650879,
    0.10282635688781738,
    -0.019268129020929337,
    -3.4226366551592946e-05,
    0.0016202429542317986,
    -0.0006589280674234033,
    0.00014912923506926745,
    -2.0645034965127707e-05,
    1.630313704481523e-06,
    -5.631749999679414e-08,
)
_FALL_END = 5.0
_HALF_POWER = (
    0.5,
    0.34657350182533264,
    0.12011121213436127,
    0.027753667905926704,
    0.004835739266127348,
    0.0006632303702645004,
)


def times_half_of_one_plus_erf(x: Expr, factor: float) -> Expr:
    """x (1 + erf(factor x)) / 2 in float32: gelu, by one polynomial where erf has two.

    Below 0 nothing cancels. Even and odd powers are summed separately, which shortens the chain of
    dependent instructions. The power of two is added to the bits, which does not keep a NaN; the
    factor x restores it.
    """
    scaled = tuple(-c * math.log2(math.e) * factor ** (k + 1) for k, c in enumerate(_FALL))
    end = const(_FALL_END / factor, x.dtype)
    size = s.absolute(x)
    near = s.where(size > end, end, size)
    square = near * near
    power = near * s.fma(near, horner(square, scaled[1::2]), horner(square, scaled[0::2]))
    whole = s.round_even(power)
    grown = bits(horner(power - whole, _HALF_POWER)) + (to_integer(whole) << format_of(x).mantissa)
    # erfc(factor |x|) / 2.
    rest = s.where(size > end, const(0.0, x.dtype), s.bits_to(grown, x.dtype))
    return x * s.where(x < 0.0, rest, 1.0 - rest)


def split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """(k, m) with x = 2^k m, m from sqrt(1/2) to sqrt(2); k is an integer.

    For positive finite x, subnormals included.
    """
    kind = format_of(x)
    small = x < kind.smallest_normal
    lifted = s.where(small, x * 2.0 ** (kind.mantissa + 1), x)
    # With the bits of sqrt(1/2) as origin, the borrow out of the mantissa steps the exponent at
    # sqrt(2).
    origin = 0x3F3504F3 if kind is SINGLE else 0x3FE6A09E667F3BCD
    k = (bits(lifted) - origin) >> kind.mantissa
    m = s.bits_to(bits(lifted) - (k << kind.mantissa), kind.dtype)
    zero = const(0, k.dtype)
    return k - s.where(small, const(kind.mantissa + 1, k.dtype), zero), m


def log_tail(f: Expr) -> Expr:
    """log(1 + f) - f for f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    kind = format_of(f)
    square = f * f
    if kind is SINGLE:
        return square * s.fma(f, horner(f, kind.log_tail), -0.5)
    ratio = f / (f + 2.0)
    z = ratio * ratio
    half = square * 0.5
    return s.fma(ratio, s.fma(z, horner(z, kind.log_tail), half), -half)


def _log_domain(x: Expr, result: Expr) -> Expr:
    """`result` where 0 < x < inf, and the limits elsewhere."""
    beyond = s.where(x.eq(0.0), const(-math.inf, x.dtype), const(math.nan, x.dtype))
    return s.where(x > 0.0, s.where(x < math.inf, result, x), beyond)


@named
def log(x: Expr) -> Expr:
    kind = format_of(x)
    k, m = split_exponent(x)
    whole = to_float(k, x)
    f = m - 1.0
    tail = s.fma(whole, kind.ln2[1], log_tail(f))
    return _log_domain(x, s.fma(whole, kind.ln2[0], f + tail))


def _log_mantissa(x: Expr) -> tuple[Expr, Expr]:
    """(k as a float, log m) with x = 2^k m."""
    k, m = split_exponent(x)
    f = m - 1.0
    return to_float(k, x), f + log_tail(f)


def log2(x: Expr) -> Expr:
    """log2, exact at powers of two."""
    high, low = format_of(x).log2_parts
    whole, rest = _log_mantissa(x)
    return _log_domain(x, s.fma(rest, high, s.fma(rest, low, whole)))


def log10(x: Expr) -> Expr:
    kind = format_of(x)
    whole, rest = _log_mantissa(x)
    small = s.fma(
        rest, kind.log10_parts[0], s.fma(whole, kind.two_parts[1], rest * kind.log10_parts[1])
    )
    return _log_domain(x, s.fma(whole, kind.two_parts[0], small))


def log_parts(x: Expr, taken: float) -> tuple[Expr, Expr]:
    """log x - taken in two parts, for finite x with log x >= 2 `taken`, an integer."""
    kind = format_of(x)
    k, m = split_exponent(x)
    whole = to_float(k, x)
    f = m - 1.0
    tail = s.fma(whole, kind.ln2[1], log_tail(f))
    small = f + tail
    large = s.fma(whole, kind.ln2[0], -taken)
    total = large + small
    return total, ((large - total) + small) + ((f - small) + tail)


@named
def log1p(x: Expr) -> Expr:
    """log(1 + x), accurate near 0."""
    kind = format_of(x)
    u = x + 1.0
    # The rounding error of 1 + x, exactly: the larger of the two is subtracted first.
    lost = s.where(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    k, m = split_exponent(u)
    whole = to_float(k, x)
    f = m - 1.0
    tail = s.fma(whole, kind.ln2[1], log_tail(f)) + lost / u
    result = s.fma(whole, kind.ln2[0], f + tail)
    return s.where(s.absolute(x) < kind.tiny, x, _log_domain(u, result))
