"""log |gamma| and its derivative, branch-free.

`digamma` is made of differentiable instructions only, so that every polygamma follows from it. Polynomials interpolate
at Chebyshev points (40 digits). Near the zeros of either function the error is small against 1, not against the result.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary import log1p
from rushlight.scalar.elementary_formats import Polynomial, horner
from rushlight.scalar.ir import Expr, const

# lgamma(2 + t) / t for |t| <= 1/2
_GAMMA_SINGLE = (
    0.42278433509846747,
    0.3224670180454995,
    -0.06735229409089127,
    0.0205816254365885,
    -0.007385920884535923,
    0.00287886868374075,
    -0.0011874848149907528,
    0.0005702512502829781,
    -0.00025056201911273306,
)
_GAMMA_DOUBLE = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319809,
    0.020580808427784546,
    -0.0073855510286741114,
    0.0028905103307415836,
    -0.0011927539116954181,
    0.0005096695247392805,
    -0.00022315475870367355,
    9.945751290176889e-05,
    -4.492623209360517e-05,
    2.05072105479096e-05,
    -9.439541921024715e-06,
    4.374892520636031e-06,
    -2.0388192484564222e-06,
    9.549510392959532e-07,
    -4.511181191016309e-07,
    2.129692727315228e-07,
    -9.501416425423385e-08,
    4.509983567521808e-08,
    -3.1314285360886705e-08,
    1.4963573191192003e-08,
)
# x (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2), of 1 / x^2, for x >= 8
_STIRLING_SINGLE = (
    0.08333333326463777,
    -0.0027776985451962778,
    0.0007800347189829517,
)
_STIRLING_DOUBLE = (
    0.08333333333333333,
    -0.0027777777777776747,
    0.0007936507935117282,
    -0.0005952380234291254,
    0.0008417325268022405,
    -0.001914965912162907,
    0.0062081367662297935,
    -0.020855820837463117,
)
# Bernoulli numbers: log x - 1 / (2x) - digamma(x) is the sum of them over (2k x^2k), for x >= 10.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_FAR = 8.0  # from here on Stirling's series


def _table(x: Expr, single: Polynomial, double: Polynomial) -> Polynomial:
    return double if x.dtype is float64 else single


def _sine_of_pi(size: Expr) -> Expr:
    """|sin(pi size)|, exact at whole numbers."""
    return s.absolute(s.sin((size - s.round_even(size)) * math.pi))


def _above_zero(x: Expr) -> Expr:
    """lgamma of x >= 0."""
    small, far = x < 0.5, x >= _FAR
    one = const(1.0, x.dtype)
    near = s.where(far, one + one, x)
    whole = s.round_even(near)
    below = near < 1.5
    # near = 2 + t, or 1 + t below 1.5, or t below a half; beyond 2.5 a product of what lies between.
    t = s.where(small, near, s.where(below, near - 1.0, near - whole))
    t = s.where(~below & (whole < 2.0), near - 2.0, t)
    product = one
    for k in range(6):
        product = s.where(whole > k + 2.5, product * (t + (k + 2.0)), product)
    outer = s.log(s.where(far, x, s.where(small, x, product)))
    central = t * horner(t, _table(x, _GAMMA_SINGLE, _GAMMA_DOUBLE))
    zero = const(0.0, x.dtype)
    inner = s.where(below, log1p(s.where(below, t, zero)), zero)
    middle = central - inner + s.where(small, -outer, outer)
    square = 1.0 / (x * x)
    tail = horner(square, _table(x, _STIRLING_SINGLE, _STIRLING_DOUBLE)) / x
    stirling = (x - 0.5) * (outer - 1.0) + (tail + (0.5 * math.log(2 * math.pi) - 0.5))
    return s.where(far, s.where(x < math.inf, stirling, x), middle)


def lgamma(x: Expr) -> Expr:
    size = s.absolute(x)
    above = _above_zero(size)
    # gamma(-x) gamma(x) = -pi / (x sin(pi x)); infinite at whole numbers.
    mirrored = s.log(math.pi / (size * _sine_of_pi(size))) - above
    mirrored = s.where(size.eq(math.inf) | size.eq(0.0), const(math.inf, x.dtype), mirrored)
    return s.where(x > 0.0, above, s.where(s.isnan(x), x, mirrored))


def digamma(x: Expr) -> Expr:
    """The derivative of lgamma: steps up to 10 by 1 / x, the series there, and the mirror image below 0."""
    below = x < 0.0
    size = s.where(below, 1.0 - x, x)
    near = size < 10.0
    # What is not chosen must be finite: its derivative is multiplied by 0.
    low = s.where(near, size, const(1.0, x.dtype))
    steps = const(0.0, x.dtype)
    for k in range(10):
        steps = steps + 1.0 / (low + float(k))
    high = s.where(near, size + 10.0, size)
    square = 1.0 / (high * high)
    series = s.log(high) - 0.5 / high - square * horner(square, _BERNOULLI)
    result = series - s.where(near, steps, const(0.0, x.dtype))
    angle = s.where(below, x - s.round_even(x), const(0.25, x.dtype)) * math.pi
    turned = s.cos(angle) / s.sin(angle) * math.pi
    result = result - s.where(below, turned, const(0.0, x.dtype))
    pole = below & s.floor(x).eq(x)
    ends = s.where(pole, const(math.nan, x.dtype), result)
    at_zero = s.where(1.0 / x < 0.0, const(math.inf, x.dtype), const(-math.inf, x.dtype))
    return s.where(x.eq(math.inf), x, s.where(x.eq(0.0), at_zero, ends))
