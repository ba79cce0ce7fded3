"""sinh, cosh, tan, sinc, exp2, erfc and the sign bit, branch-free, of the parts of exp and sin.

They are bodies of ops, not instructions: a derivative is declared by the op. Polynomials
interpolate at Chebyshev points (40 digits), which is within a small factor of the best;
`tests/scalar/test_inverse.py` holds the errors to BOUNDS.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary_exponential import reduce_exp, reduce_exp_sum
from rushlight.scalar.elementary_formats import (
    Polynomial,
    bits,
    clamp,
    flip,
    format_of,
    horner,
    scale,
    sign_bit,
    to_integer,
)
from rushlight.scalar.elementary_power import cut
from rushlight.scalar.elementary_reduction import reduce_quarters
from rushlight.scalar.ir import Expr, const

# (sinh(x) - x) / x^3, of x^2, for x <= 1
_SINH_SINGLE = (
    0.16666666646842135,
    0.00833333967591706,
    0.00019838101968683888,
    2.8062802582276946e-06,
)
_SINH_DOUBLE = (
    0.16666666666666666,
    0.008333333333333333,
    0.00019841269841269773,
    2.755731922404034e-06,
    2.505210836405804e-08,
    1.6059048396350562e-10,
    7.646625361656657e-13,
    2.8445264169895285e-15,
)
# (tan(r) - r) / r^3, of r^2, for r <= pi/4
_TAN_SINGLE = (
    0.3333333399288692,
    0.13333229082618028,
    0.053994872670010116,
    0.021617919811611083,
    0.00997338129462888,
    0.0011673972481922284,
    0.0038537622884873847,
)
_TAN_DOUBLE = (
    0.3333333333333333,
    0.13333333333332986,
    0.05396825396867142,
    0.021869488516366418,
    0.008863236019799322,
    0.0035921207562512195,
    0.0014559047302089647,
    0.0005895636470100934,
    0.00024127626384147467,
    8.983885888529617e-05,
    5.5888222669881385e-05,
    -1.1436081905737469e-05,
    3.6903988689483936e-05,
    -1.85245930102687e-05,
    8.533672613193352e-06,
)
# sin(pi f) / (pi f), less 1, over f^2, of f^2, for f <= 1/2
_SINC_SINGLE = (
    -1.6449340665733154,
    0.8117423702881529,
    -0.19075006208997916,
    0.02612805885863882,
    -0.0022550628168998606,
)
_SINC_DOUBLE = (
    -1.6449340668482264,
    0.8117424252833536,
    -0.19075182412208389,
    0.026147847817640922,
    -0.002346081035170168,
    0.00014842878972770888,
    -6.975851212142348e-06,
    2.5303274566671434e-07,
    -7.114052818770147e-09,
)
# exp(x^2) erfc(x) (1 + 2x) - 1, of (x - 4) / (x + 4), for 1/2 <= x <= 10.5 or 0 <= x <= 28
_ERFC_SINGLE = (
    0.232995119203637,
    -0.13962110617341553,
    0.015379616274443198,
    0.0680959107299172,
    -0.10103972664100043,
    0.09375663264314757,
    -0.06630020130141909,
    0.03700634574862323,
    -0.016472788990811855,
    0.005339784674489437,
)
_ERFC_DOUBLE = (
    0.23299511862555256,
    -0.13962111684056255,
    0.015379652102606133,
    0.06809705425470212,
    -0.10103906603558063,
    0.09373283499798463,
    -0.06633036582729279,
    0.03716751554242076,
    -0.016197733895959854,
    0.005031969952329153,
    -0.0007577743061693371,
    -0.00019925669640425623,
    0.00015062567141369432,
    -2.4398609353512906e-05,
    -1.1232086023404734e-05,
    5.706827475068264e-06,
    3.0994402010831546e-07,
    -8.187662562915786e-07,
    5.883230632914435e-08,
    1.0181247475149971e-07,
    -9.456271524915692e-09,
    -8.906208663934622e-09,
)


def _table(x: Expr, single: Polynomial, double: Polynomial) -> Polynomial:
    return double if x.dtype is float64 else single


def negative(x: Expr) -> Expr:
    """The sign bit as a bool; set in -0.0."""
    return bits(x) < 0


def _half_exp(size: Expr) -> Expr:
    """exp(size) / 2 for size >= 0; it overflows only where sinh and cosh do."""
    high = 90.0 if format_of(size).mantissa == 23 else 712.0
    n, less_one = reduce_exp(s.where(size > high, const(high, size.dtype), size))
    return scale(less_one + 1.0, n - 1)


def sinh(x: Expr) -> Expr:
    size = s.absolute(x)
    square = x * x
    small = s.fma(size * square, horner(square, _table(x, _SINH_SINGLE, _SINH_DOUBLE)), size)
    half = _half_exp(size)
    return flip(s.where(size < 1.0, small, half - 0.25 / half), sign_bit(x))


def cosh(x: Expr) -> Expr:
    half = _half_exp(s.absolute(x))
    return half + 0.25 / half


def tan(x: Expr) -> Expr:
    """tan r, or -1 / tan r in odd quarters.

    Both operands are sums of two parts, so one step rounds.
    """
    quarter, r, low = reduce_quarters(s.absolute(x))
    square = r * r
    tail = r * square * horner(square, _table(x, _TAN_SINGLE, _TAN_DOUBLE))
    tangent = r + tail
    rest = s.fma(s.fma(tangent, tangent, 1.0), low, (r - tangent) + tail)
    inverse = -1.0 / tangent
    away = s.fma(inverse, tangent, 1.0) + inverse * rest
    odd = (quarter & 1).ne(0)
    value = s.where(odd, s.fma(inverse, away, inverse), tangent + rest)
    return s.where(s.absolute(x) < math.inf, flip(value, sign_bit(x)), const(math.nan, x.dtype))


def sinc(x: Expr) -> Expr:
    """sin(pi x) / (pi x).

    By the distance f to the nearest integer, times f / x, with the turn's sign.
    """
    whole = s.round_even(x)
    f = x - whole
    square = f * f
    inner = s.fma(square, horner(square, _table(x, _SINC_SINGLE, _SINC_DOUBLE)), 1.0)
    half = whole * 0.5
    share = f / x
    value = s.fma(inner, share, inner * (s.fma(-share, x, f) / x))
    return s.where(whole.eq(0.0), inner, s.where(s.floor(half).eq(half), value, -value))


def exp2(x: Expr) -> Expr:
    kind = format_of(x)
    low, high = (-151.0, 129.0) if kind.mantissa == 23 else (-1076.0, 1025.0)
    x = clamp(x, low, high)
    n = s.round_even(x)
    left = x - n
    return scale(s.fma(horner(left, kind.exp2_tail), left, 1.0), to_integer(n))


def scaled_erfc(size: Expr) -> tuple[Expr, Expr]:
    """exp(x^2) erfc(x) of x >= 1/2 as a sum of two parts."""
    ratio = (size - 4.0) / (size + 4.0)
    above = horner(ratio, _table(size, _ERFC_SINGLE, _ERFC_DOUBLE))
    top, double = above + 1.0, size * 2.0
    bottom = double + 1.0
    quotient = top / bottom
    lost = (1.0 - top) + above - quotient * ((double - bottom) + 1.0)
    return quotient, (s.fma(-quotient, bottom, top) + lost) / bottom


def erfc(x: Expr) -> Expr:
    """1 - erf(x), with a small relative error also where it is tiny."""
    size = s.absolute(x)
    end = const(10.5 if format_of(x).mantissa == 23 else 27.5, x.dtype)
    size = s.where(size > end, end, size)
    quotient, rest = scaled_erfc(size)
    # The square in an exact part and a rest: its rounding error alone would be hundreds of units.
    head = cut(size)
    n, less_one = reduce_exp_sum(-(head * head), (head - size) * (head + size))
    grown = less_one + 1.0
    product = grown * quotient
    low = s.fma(grown, quotient, -product) + ((1.0 - grown) + less_one) * quotient + grown * rest
    result = scale(product + low, n)
    near = s.fma(x, horner(x * x, format_of(x).erf_body), x)
    return s.where(s.absolute(x) < 0.5, 1.0 - near, s.where(x < 0.0, 2.0 - result, result))
