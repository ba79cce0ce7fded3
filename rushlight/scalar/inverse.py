"""Inverse trigonometric and hyperbolic functions and the inverse of erf, branch-free.

They are bodies of ops, not instructions: a derivative is declared by the op. Polynomials
interpolate at Chebyshev points (40 digits), which is within a small factor of the best;
`tests/scalar/test_inverse.py` holds the errors to BOUNDS.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary_exponential import erf, exp, log, log1p
from rushlight.scalar.elementary_formats import Polynomial, flip, format_of, horner, sign_bit
from rushlight.scalar.elementary_power import cut
from rushlight.scalar.hyperbolic import erfc, negative
from rushlight.scalar.ir import Expr, const

# Bounds on the error of these and of `hyperbolic` in units in the last place, as (float32,
# float64).
BOUNDS: dict[str, tuple[float, float]] = {
    "sinh": (2.0, 2.0),
    "cosh": (2.0, 2.0),
    "tan": (1.75, 1.75),
    "exp2": (1.0, 1.0),
    "asin": (1.0, 1.0),
    "acos": (1.5, 1.5),
    "atan": (2.0, 2.0),
    "asinh": (2.0, 2.0),
    "acosh": (2.0, 2.0),
    "atanh": (2.0, 2.0),
    "atan2": (2.0, 2.0),
    "erfc": (1.75, 1.75),
    "erfinv": (1.75, 1.75),
    "sinc": (1.75, 1.75),
    "hypot": (1.5, 1.5),
    "sigmoid": (2.0, 2.0),
    "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5),
    "lgamma": (2.75, 2.75),
    # Near a zero the error is small relative to 1: units of max(1, |result|).
    "lgamma, x < 0": (8.0, 8.0),
    "digamma": (3.0, 3.0),
    "logaddexp": (1.5, 1.5),
}

# (asin(x) - x) / x^3, of x^2, for x <= 1/2
_ASIN_SINGLE = (
    0.16666666337430908,
    0.07500094543497424,
    0.04459940152851218,
    0.03110066273549457,
    0.017149238357677253,
    0.03369084720283012,
)
_ASIN_DOUBLE = (
    0.16666666666666666,
    0.07500000000000118,
    0.044642857142551895,
    0.03038194447553234,
    0.02237215744350722,
    0.017352816540325496,
    0.01396378001220357,
    0.011566459612121669,
    0.009621842970100282,
    0.009319560794767446,
    0.0030448799094556773,
    0.019554513336123378,
    -0.01924167174674304,
    0.02961201126495512,
)
# (atan(x) - x) / x^3, of x^2, for x <= 1/2
_ATAN_SINGLE = (
    -0.33333332901484686,
    0.1999987524978264,
    -0.14279801095810957,
    0.11006880681346318,
    -0.08235505763636282,
    0.04225685963021552,
)
_ATAN_DOUBLE = (
    -0.3333333333333333,
    0.19999999999999998,
    -0.14285714285713727,
    0.11111111111044998,
    -0.09090909086799301,
    0.07692307538055525,
    -0.06666662875988105,
    0.05882288805940158,
    -0.05262386932412405,
    0.04755197771780317,
    -0.04305253029078251,
    0.03802991741816601,
    -0.03045333374560119,
    0.018860618643037053,
    -0.006390515327584681,
)
# (asinh(x) - x) / x^3, of x^2, for x <= 1/2
_ASINH_SINGLE = (
    -0.16666666572814728,
    0.07499972893955258,
    -0.04463002194351939,
    0.030156178619349886,
    -0.020526793468189104,
    0.009936504309239973,
)
_ASINH_DOUBLE = (
    -0.16666666666666666,
    0.07499999999999996,
    -0.044642857142844924,
    0.030381944443186405,
    -0.022372159023147643,
    0.01735276222988207,
    -0.013964797578999641,
    0.01155113762253544,
    -0.009754919054752259,
    0.008342249736045443,
    -0.00706550647837936,
    0.005547136554853364,
    -0.0034547414832955185,
    0.0012013032716795711,
)
# erfinv(x) / x as a start: of w - 5/2 for w = -log(1 - x^2) < 5, of sqrt(w) - 3 up to 16 and beyond
_ERFINV_NEAR = (
    1.501409351110792,
    0.2466407662672499,
    -0.004177346517287056,
    -0.001253758884835318,
    0.00021831297984101024,
    -4.38034671412375e-06,
    -3.454779514269784e-06,
    3.4222470899345687e-07,
    2.2605977741170975e-08,
)
_ERFINV_FAR = (
    2.8329768070195414,
    1.0016749120571993,
    0.009444992113527836,
    -0.007636489636678905,
    0.005689216294342166,
    -0.0036009003307526993,
    0.001479703952923971,
    -5.045885289808409e-05,
    -0.00030552505117411146,
    0.00011153858077997949,
)
_ERFINV_FARTHER = (
    2.8328554675471174,
    1.0024442037277366,
    0.007242563166759864,
    -0.0038869323701209765,
    0.0014933637436919229,
    -0.00045415335562082646,
    0.00010439761861426016,
    -1.6661464897337635e-05,
    1.6199972855715265e-06,
    -7.16389583525285e-08,
)

# Multiples of pi/4 in two parts, the first as the type holds it.
_QUARTER_SINGLE = (0.7853981852531433, -2.1855694143368964e-08)
_QUARTER_DOUBLE = (0.7853981633974483, 3.061616997868383e-17)


def _table(x: Expr, single: Polynomial, double: Polynomial) -> Polynomial:
    return double if x.dtype is float64 else single


def _series(x: Expr, single: Polynomial, double: Polynomial) -> Expr:
    """x + x^3 P(x^2)."""
    square = x * x
    return s.fma(x * square, horner(square, _table(x, single, double)), x)


def _arc(size: Expr, other: Expr) -> tuple[Expr, Expr]:
    """(q, r) with the angle of size / other = q pi/4 + r, both >= 0: q is 0, 1 or 2 as a float."""
    # For a quotient between 1/2 and 2 the difference is exact.
    flat, steep = size <= other * 0.5, size > other * 2.0
    above = s.where(flat, size, s.where(steep, -other, size - other))
    below = s.where(flat, other, s.where(steep, size, size + other))
    below = s.where(below.eq(0.0), const(1.0, size.dtype), below)
    count = s.where(
        flat, const(0.0, size.dtype), s.where(steep, const(2.0, size.dtype), const(1.0, size.dtype))
    )
    return count, _series(above / below, _ATAN_SINGLE, _ATAN_DOUBLE)


def _turned(count: Expr, rest: Expr) -> Expr:
    """count pi/4 + rest; the product with a small count is exact in its first part."""
    first, second = _table(rest, _QUARTER_SINGLE, _QUARTER_DOUBLE)
    return count * first + (count * second + rest)


def atan(x: Expr) -> Expr:
    return flip(_turned(*_arc(s.absolute(x), const(1.0, x.dtype))), sign_bit(x))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), with C99's special values."""
    size, other = s.absolute(y), s.absolute(x)
    both = size.eq(math.inf) & other.eq(math.inf)
    one = const(1.0, x.dtype)
    size, other = s.where(both, one, size), s.where(both, one, other)
    # A quarter of each where the sum could overflow, a multiple where half of one could lose a bit.
    top, end = s.maximum(size, other), format_of(x).bias - 1
    factor = s.where(top < 2.0 ** (3 - end), const(2.0**30, x.dtype), one)
    factor = s.where(top > 2.0**end, const(0.25, x.dtype), factor)
    count, rest = _arc(size * factor, other * factor)
    behind = negative(x)
    count, rest = s.where(behind, 4.0 - count, count), s.where(behind, -rest, rest)
    result = flip(_turned(count, rest), sign_bit(y))
    return s.where(s.isnan(x) | s.isnan(y), x + y, result)


def asin(x: Expr) -> Expr:
    size = s.absolute(x)
    large = size > 0.5
    square = (1.0 - size) * 0.5
    root = s.sqrt(square)
    square = s.where(large, square, x * x)
    tail = square * horner(square, _table(x, _ASIN_SINGLE, _ASIN_DOUBLE))
    # pi/2 - 2 asin(root), the root in an exact part and a rest, the small terms first.
    head = cut(root)
    quarter = _table(x, _QUARTER_SINGLE, _QUARTER_DOUBLE)
    rest = (square - head * head) / (root + head)
    small = root * tail * 2.0 - (quarter[1] * 2.0 - rest * 2.0)
    turned = quarter[0] - (small - (quarter[0] - head * 2.0))
    turned = s.where(size.eq(1.0), const(quarter[0] * 2.0, x.dtype), turned)
    return flip(s.where(large, turned, s.fma(size, tail, size)), sign_bit(x))


def acos(x: Expr) -> Expr:
    size = s.absolute(x)
    large = size > 0.5
    part = _series(s.where(large, s.sqrt((1.0 - size) * 0.5), size), _ASIN_SINGLE, _ASIN_DOUBLE)
    below = x < 0.0
    middle = _turned(const(2.0, x.dtype), s.where(below, part, -part))
    double = part * 2.0
    return s.where(large, s.where(below, _turned(const(4.0, x.dtype), -double), double), middle)


def _large(x: Expr) -> Expr:
    """The size beyond which x * x + 1 is x * x."""
    return x > 2.0 ** (format_of(x).mantissa // 2 + 2)


def asinh(x: Expr) -> Expr:
    size = s.absolute(x)
    small = _series(size, _ASINH_SINGLE, _ASINH_DOUBLE)
    large = _large(size)
    inner = s.where(large, const(1.0, x.dtype), size)
    square = inner * inner
    middle = inner + square / (s.sqrt(square + 1.0) + 1.0)
    # One logarithm serves both: log(2x) is log1p(x - 1) + log 2.
    grown = log1p(s.where(large, size - 1.0, middle)) + s.where(
        large, const(math.log(2), x.dtype), const(0.0, x.dtype)
    )
    return flip(s.where(size < 0.5, small, grown), sign_bit(x))


def acosh(x: Expr) -> Expr:
    large = _large(x)
    above = s.where(large, const(1.0, x.dtype), x - 1.0)
    root = s.sqrt(s.fma(above, above, above * 2.0))
    middle = above + root
    lost = ((root - middle) + above) / (middle + 1.0)
    rest = s.where(large, const(math.log(2), x.dtype), lost)
    result = log1p(s.where(large, x - 1.0, middle)) + rest
    return s.where(x < 1.0, const(math.nan, x.dtype), result)


def atanh(x: Expr) -> Expr:
    size = s.absolute(x)
    double = size + size
    rest = 1.0 - size
    inner = s.where(size < 0.5, double + double * size / rest, double / rest)
    return flip(log1p(inner) * 0.5, sign_bit(x))


def erfinv(x: Expr) -> Expr:
    """A polynomial start and one Halley step with erf or, near 1, erfc."""
    size = s.absolute(x)
    rest = 1.0 - size
    w = -log(rest * (size + 1.0))
    root = s.sqrt(w) - 3.0
    far = s.where(root > 1.0, horner(root, _ERFINV_FARTHER), horner(root, _ERFINV_FAR))
    start = s.where(w < 5.0, horner(w - 2.5, _ERFINV_NEAR), far) * size
    start = s.where(size < 1.0, start, const(0.0, x.dtype))
    away = s.where(size < 0.5, erf(start) - size, rest - erfc(start))
    step = away * (math.sqrt(math.pi) / 2) * exp(start * start)
    found = start - step / s.fma(start, step, 1.0)
    end = s.where(size.eq(1.0), const(math.inf, x.dtype), const(math.nan, x.dtype))
    return flip(s.where(size < 1.0, found, end), sign_bit(x))
