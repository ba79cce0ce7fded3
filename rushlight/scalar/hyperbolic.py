"""sinh, cosh, tan, exp2, erfc and the sign bit, branch-free, made of the parts of exp and sin.

They are bodies of ops, not instructions: a derivative is declared by the op. Polynomials interpolate at Chebyshev
points (40 digits), which is within a small factor of the best; `tests/test_inverse.py` holds the errors to BOUNDS.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary_exponential import exp, reduce_exp
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
from rushlight.scalar.elementary_trigonometry import turn
from rushlight.scalar.ir import Expr, const

# (sinh(x) - x) / x^3, of x^2, for x <= 1
_SINH_SINGLE = (0.16666666646842135, 0.00833333967591706, 0.00019838101968683888, 2.8062802582276946e-06)
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
# exp(x^2) erfc(x) (1 + 2x) - 1, of (x - 4) / (x + 4), for 0 <= x <= 28
_ERFC_SINGLE = (
    0.23299502581735418,
    -0.1396210797240105,
    0.015387137659048573,
    0.06809568802734212,
    -0.10113657860421181,
    0.09373394430819011,
    -0.06587418281834666,
    0.03722990055521074,
    -0.017114382928276224,
    0.004806003096164424,
    -1.2681211513911772e-05,
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
    """The sign bit as a truth value; set in -0.0."""
    return bits(x) < 0


def _half_exp(size: Expr) -> Expr:
    """exp(size) / 2 for size >= 0: no overflow before that of sinh and cosh."""
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
    quarter, sine, cosine = turn(s.absolute(x))
    odd = (quarter & 1).ne(0)
    value = s.where(odd, -cosine, sine) / s.where(odd, sine, cosine)
    return s.where(s.absolute(x) < math.inf, flip(value, sign_bit(x)), const(math.nan, x.dtype))


def exp2(x: Expr) -> Expr:
    kind = format_of(x)
    low, high = (-151.0, 129.0) if kind.mantissa == 23 else (-1076.0, 1025.0)
    x = clamp(x, low, high)
    n = s.round_even(x)
    left = x - n
    return scale(s.fma(horner(left, kind.exp2_tail), left, 1.0), to_integer(n))


def erfc(x: Expr) -> Expr:
    """1 - erf(x), with a small relative error also where it is tiny."""
    size = s.absolute(x)
    end = const(28.0, x.dtype)
    size = s.where(size > end, end, size)
    ratio = (size - 4.0) / (size + 4.0)
    scaled = (horner(ratio, _table(x, _ERFC_SINGLE, _ERFC_DOUBLE)) + 1.0) / s.fma(size, 2.0, 1.0)
    # The square in an exact part and a rest: its rounding error alone would be hundreds of units of the result.
    head = cut(size)
    result = exp(-(head * head)) * exp((head - size) * (head + size)) * scaled
    near = s.fma(x, horner(x * x, format_of(x).erf_body), x)
    return s.where(s.absolute(x) < 0.5, 1.0 - near, s.where(x < 0.0, 2.0 - result, result))
