"""The incomplete gamma functions P and Q = 1 - P, branch-free: every loop has a fixed length.

# Note [Incomplete gamma regions]
1. a >= 8 and x / a from 1/3 to 3: Temme's uniform expansion, by the complementary error function
   and a few powers of 1 / a.
2. x beyond that, or x >= max(a + 1, 3/2) for smaller a: Legendre's continued fraction gives Q.
3. Elsewhere the power series gives P; where a < 1 and x < 3/2, Q has its own sum, since 1 - P would
   lose digits.
4. The factor of the series and of the fraction, x^a e^-x / gamma(a + 1), is for large a made of the
   exponent of rule 1.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary import exp, expm1, log, power
from rushlight.scalar.elementary_exponential import log_tail
from rushlight.scalar.elementary_formats import horner
from rushlight.scalar.gamma import low_polynomial, stirling_tail
from rushlight.scalar.incomplete_tables import TEMME_DOUBLE, TEMME_SINGLE
from rushlight.scalar.ir import Expr, const
from rushlight.scalar.named import named
from rushlight.scalar.special import erfcx_above

_LARGE = 8.0
_RANGE = (-0.9394574998368059, 1.3526747270518578)  # the range of eta that the tables cover


@named
def _series(a: Expr, x: Expr) -> Expr:
    """1 + x / (a + 1) (1 + x / (a + 2) (1 + ...))."""
    total = const(1.0, x.dtype)
    for k in range(42 if x.dtype is float64 else 24, 0, -1):
        total = s.fma(x / (a + float(k)), total, 1.0)
    return total


@named
def _fraction(a: Expr, x: Expr) -> Expr:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (...)))."""
    levels = 64 if x.dtype is float64 else 20
    base = x - a
    total = base + (2.0 * levels + 1.0)
    for k in range(levels, 0, -1):
        total = (base + (2.0 * k - 1.0)) - (k - a) * float(k) / total
    return 1.0 / total


def _exponent(a: Expr, x: Expr) -> Expr:
    """x / a - 1 - log(x / a), accurate where it is small."""
    away = (x - a) / a
    near = (away > -0.29) & (away < 0.41)
    small = -log_tail(s.where(near, away, const(0.0, x.dtype)))
    return s.where(near, small, away - log(x / a))


def _uniform(a: Expr, x: Expr, exponent: Expr, decay: Expr) -> Expr:
    """Q where x >= a, else P."""
    above = x >= a
    eta = s.sqrt(exponent * 2.0)
    eta = s.where(above, eta, -eta)
    low, high = _RANGE
    t = (eta - (low + high) / 2) * (2 / (high - low))
    inverse = 1.0 / a
    total = const(0.0, x.dtype)
    for table in reversed(TEMME_DOUBLE if x.dtype is float64 else TEMME_SINGLE):
        total = s.fma(total, inverse, horner(t, table))
    rest = total * s.sqrt(inverse * (1 / (2 * math.pi)))
    tail = erfcx_above(s.sqrt(a * exponent)) * 0.5
    return decay * (tail + s.where(above, rest, -rest))


def _leading(a: Expr, x: Expr, log_gamma: Expr, decay: Expr) -> Expr:
    """x^a e^-x / gamma(a + 1), with log_gamma that of a + 1."""
    large = a >= _LARGE
    grown = decay / (
        s.sqrt(a * (2 * math.pi)) * exp(stirling_tail(s.where(large, a, const(_LARGE, a.dtype))))
    )
    # Beyond the cap it is 0 for every a < 8, and the power would overflow.
    cap = const(800.0 if x.dtype is float64 else 150.0, x.dtype)
    base = s.where(x > cap, cap, x)
    half = exp(base * -0.5)
    small = power(base, s.where(large, const(1.0, a.dtype), a)) * half / exp(log_gamma) * half
    return s.where(large, grown, small)


def _small_upper(a: Expr, x: Expr, log_gamma: Expr) -> Expr:
    """Q for a < 1 and x < 3/2: 1 - x^a / gamma(a + 1) (1 + a sum of (-x)^n / (n! (a + n)))."""
    near = a < 0.5
    inner = s.where(near, a, const(0.25, a.dtype))
    exact = inner * (inner - 1.0) * low_polynomial(inner)
    exponent = a * log(x) - s.where(near, exact, log_gamma)
    terms = 24 if x.dtype is float64 else 12
    total = const(0.0, x.dtype)
    for n in range(terms, 0, -1):
        total = (total + 1.0 / ((a + float(n)) * float(math.factorial(n)))) * -x
    return -expm1(exponent) - exp(exponent) * a * total


def _where_inside(a: Expr, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether both are positive and finite; and both, replaced by 1 where not."""
    one = const(1.0, x.dtype)
    inside = (a > 0.0) & (x > 0.0) & (a < math.inf) & (x < math.inf)
    return inside, s.where(inside, a, one), s.where(inside, x, one)


def _is_middle(a: Expr, x: Expr) -> Expr:
    return (a >= _LARGE) & (x * 3.0 > a) & (x < a * 3.0)


def _decay(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The exponent and exp(-a exponent)."""
    exponent = _exponent(a, x)
    return exponent, exp(-(a * exponent))


def middle_part(a: Expr, x: Expr) -> Expr:
    """Region 1 for `regularised`, as a function of its own: it is half of the instructions.

    Unspecified outside of the region.
    """
    _, a, x = _where_inside(a, x)
    middle, large = _is_middle(a, x), const(_LARGE, x.dtype)
    return _uniform(s.where(middle, a, large), s.where(middle, x, large), *_decay(a, x))


def regularised(a: Expr, x: Expr, log_gamma: Expr, uniform: Expr) -> tuple[Expr, Expr]:
    """(P, Q) of a and x; `log_gamma` is lgamma(a + 1), `uniform` is `middle_part`."""
    zero, one, nan = (const(v, x.dtype) for v in (0.0, 1.0, math.nan))
    inside, a_inside, x_inside = _where_inside(a, x)
    lower, upper = _inside(a_inside, x_inside, s.where(inside, log_gamma, zero), uniform)
    # At the ends all mass lies on one side; (0, 0) and (inf, inf) have no value.
    full = (a.eq(0.0) & (x > 0.0)) | (x.eq(math.inf) & (a >= 0.0) & (a < math.inf))
    empty = (x.eq(0.0) & (a > 0.0)) | (a.eq(math.inf) & (x >= 0.0) & (x < math.inf))
    p_end = s.where(full, one, s.where(empty, zero, nan))
    q_end = s.where(full, zero, s.where(empty, one, nan))
    return s.where(inside, lower, p_end), s.where(inside, upper, q_end)


def _inside(a: Expr, x: Expr, log_gamma: Expr, uniform: Expr) -> tuple[Expr, Expr]:
    one = const(1.0, x.dtype)
    large, middle = a >= _LARGE, _is_middle(a, x)
    # Regions that are not selected get harmless operands.
    leading = _leading(a, x, log_gamma, _decay(a, x)[1])
    by_fraction = s.where(large, x > a, (x >= a + 1.0) & (x >= 1.5))
    fraction = leading * a * _fraction(a, s.where(by_fraction, x, a + 2.0))
    series = leading * _series(a, s.where(by_fraction, one, x))
    from_above = by_fraction | (middle & (x >= a))
    known = s.where(middle, uniform, s.where(by_fraction, fraction, series))
    low = (a < 1.0) & (x < 1.5)
    small = _small_upper(s.where(low, a, one), s.where(low, x, one), log_gamma)
    lower = s.where(from_above, 1.0 - known, known)
    upper = s.where(low, small, s.where(from_above, known, 1.0 - known))
    return lower, upper
