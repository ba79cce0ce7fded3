"""log |gamma| and its derivative, branch-free.

Polynomials interpolate at Chebyshev points (40 digits). Near the zeros below 0 the error is small
relative to 1, not to the result.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import float64
from rushlight.scalar import build as s
from rushlight.scalar.elementary import cos, log, sin
from rushlight.scalar.elementary_exponential import log_parts
from rushlight.scalar.elementary_formats import Polynomial, horner
from rushlight.scalar.ir import Expr, const, with_slope
from rushlight.scalar.named import named

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
# lgamma(1 + t) / (t (t - 1)) for |t| <= 1/2
_GAMMA_LOW_SINGLE = (
    0.5772156649015329,
    -0.24525130984493104,
    0.15543421062638585,
    -0.11515306227828252,
    0.09224514562205555,
    -0.07711366526010667,
    0.06653925044419441,
    -0.06148026419173829,
    0.055099105419578645,
    -0.030716833189203107,
    0.027585303202672135,
    -0.08653274240410874,
    0.08076458505018069,
)
_GAMMA_LOW_DOUBLE = (
    0.5772156649015329,
    -0.2452513685225803,
    0.15543426586395104,
    -0.1151465425638577,
    0.09223900846486405,
    -0.07731816852855389,
    0.06673172823237797,
    -0.05877794159837892,
    0.05255632488226146,
    -0.04754311942143399,
    0.043410871085662106,
    -0.039943325032720044,
    0.03698991835462524,
    -0.034436692145567833,
    0.032218815048872314,
    -0.03035945377828152,
    0.02862978653237747,
    -0.026270026294447774,
    0.02490778264077449,
    -0.028951157038668355,
    0.027688536184191183,
    -0.0024327669275136083,
    0.002052495676344135,
    -0.0779261344606791,
    0.07547948080594057,
    0.08532809667377311,
    -0.08300985443081176,
    -0.1142806060495023,
    0.11085899735141698,
)
# digamma(x) / (x - its zero), of x - 3/2, for 1 <= x <= 2
_DIGAMMA_SINGLE = (
    0.9510558760318328,
    -0.42362749747529066,
    0.24054253501497624,
    -0.1483988613883281,
    0.09498468507487738,
    -0.062055980386091954,
    0.040850026740824504,
    -0.025786883631264544,
    0.01711498899971067,
    -0.016373620255320655,
    0.010902588672572695,
)
_DIGAMMA_DOUBLE = (
    0.9510558760318328,
    -0.4236274212814606,
    0.24054248424078697,
    -0.14840492305388092,
    0.09498872445289039,
    -0.06192213327548831,
    0.040760833940846085,
    -0.026975796659787055,
    0.017907248317313294,
    -0.011908220105959716,
    0.007927021796868154,
    -0.005279937255532708,
    0.003518106563802472,
    -0.0023454947397380833,
    0.0015633696313653504,
    -0.0010364584817312839,
    0.0006909255761282986,
    -0.00048595039220036254,
    0.00032395945401345196,
    -0.00014480643368061614,
    9.653646261410062e-05,
    -0.0001782188548855923,
    0.00011881232908510335,
)
# The zero of digamma in two parts.
_ZERO_SINGLE = (1.4616321325302124, 1.243815006546356e-08)
_ZERO_DOUBLE = (1.4616321449683622, 9.549995429965697e-17)
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
_FAR, _FARTHER = 8.0, 10.0  # where the series of lgamma and of digamma begin


def _table(x: Expr, single: Polynomial, double: Polynomial) -> Polynomial:
    return double if x.dtype is float64 else single


def low_polynomial(t: Expr) -> Expr:
    """lgamma(1 + t) / (t (t - 1))."""
    return horner(t, _table(t, _GAMMA_LOW_SINGLE, _GAMMA_LOW_DOUBLE))


def stirling_tail(x: Expr) -> Expr:
    """lgamma(x) less (x - 1/2) log x - x + log(2 pi) / 2, for x >= 8."""
    return horner(1.0 / (x * x), _table(x, _STIRLING_SINGLE, _STIRLING_DOUBLE)) / x


def _stirling(x: Expr) -> Expr:
    """lgamma of x >= 8, the product with the logarithm in two parts."""
    tail = stirling_tail(x)
    high, low = log_parts(x, 1.0)
    factor = x - 0.5
    product = factor * high
    rest = s.fma(factor, high, -product) + factor * low
    total = product + (rest + (tail + (0.5 * math.log(2 * math.pi) - 0.5)))
    return s.where(product < math.inf, total, product)


def above_half(x: Expr) -> Expr:
    """lgamma of x >= 1/2."""
    far, low = x >= _FAR, x < 1.5
    two = const(2.0, x.dtype)
    near = s.where(far, two, x)
    whole = s.maximum(s.round_even(near), 2.0)
    # near = 1 + t below 1.5, else 2 + t; beyond 2.5, times the product of the factors between.
    t = near - whole
    product = const(1.0, x.dtype)
    for k in range(6):
        product = s.where(whole > k + 2.5, product * (t + (k + 2.0)), product)
    below = near - 1.0
    other = near - 2.0
    square = below * other
    lost = s.fma(below, other, -square) + below * ((near - other) - 2.0)
    inner = low_polynomial(below)
    first = s.fma(square, inner, lost * inner) + 0.0  # +0 at 1
    middle = s.fma(t, horner(t, _table(x, _GAMMA_SINGLE, _GAMMA_DOUBLE)), log(product))
    end = s.where(x < math.inf, _stirling(x), x)
    return s.where(far, end, s.where(low, first, middle))


@named
def lgamma(x: Expr) -> Expr:
    size = s.absolute(x)
    # gamma(1 + x) = x gamma(x) near 0; below 0, gamma(-x) gamma(x) = -pi / (x sin(pi x)), infinite
    # at integers.
    near = size < 0.5
    t = s.where(near, x, const(0.5, x.dtype))
    central = s.fma(t * (t - 1.0), low_polynomial(t), -log(size))
    safe = s.where(near, const(0.5, x.dtype), size)
    above = above_half(safe)
    mirrored = (
        log(math.pi / (safe * s.absolute(sin((safe - s.round_even(safe)) * math.pi)))) - above
    )
    mirrored = s.where(s.floor(safe).eq(safe), const(math.inf, x.dtype), mirrored)
    return s.where(near, central, s.where(s.isnan(x), x, s.where(x > 0.0, above, mirrored)))


def digamma(x: Expr) -> Expr:
    """digamma: a polynomial about its zero, reached by steps of 1 / x; Stirling's series beyond 10.

    Below 0 it is reflected. Its own derivatives are those of `digamma_steps`.
    """
    below = x < 0.0
    size = s.where(below, 1.0 - x, x)
    far = size >= _FARTHER
    low = size < 1.0
    inner = s.where(far, const(1.5, x.dtype), s.where(low, size + 1.0, size))
    start = inner - s.maximum(s.floor(inner) - 1.0, 0.0)
    zero = _table(x, _ZERO_SINGLE, _ZERO_DOUBLE)
    slope = horner(start - 1.5, _table(x, _DIGAMMA_SINGLE, _DIGAMMA_DOUBLE))
    middle = ((start - zero[0]) - zero[1]) * slope
    for k in range(1, int(_FARTHER) - 1):
        middle = s.where(inner >= k + 1.0, middle + 1.0 / (start + (k - 1.0)), middle)
    middle = s.where(low, middle - 1.0 / size, middle)
    square = 1.0 / (size * size)
    series = log(size) - (0.5 / size + square * horner(square, _BERNOULLI))
    result = s.where(far, series, middle)
    angle = (x - s.round_even(x)) * math.pi
    result = s.where(below, result - cos(angle) / sin(angle) * math.pi, result)
    return _ends(x, below, result)


def _ends(x: Expr, below: Expr, result: Expr) -> Expr:
    """digamma with its poles: NaN at negative integers, infinite at 0."""
    pole = below & s.floor(x).eq(x)
    ends = s.where(pole, const(math.nan, x.dtype), result)
    at_zero = s.where(1.0 / x < 0.0, const(math.inf, x.dtype), const(-math.inf, x.dtype))
    return s.where(x.eq(math.inf), x, s.where(x.eq(0.0), at_zero, ends))


def digamma_above(x: Expr) -> Expr:
    """digamma of x > 0, of differentiable instructions: steps of 1 / x up to 10, then the
    series.
    """
    near = x < 10.0
    # A value that is not selected must be finite: its derivative is multiplied by 0.
    low = s.where(near, x, const(1.0, x.dtype))
    steps = const(0.0, x.dtype)
    for k in range(10):
        steps = steps + 1.0 / (low + float(k))
    high = s.where(near, x + 10.0, x)
    square = 1.0 / (high * high)
    series = s.log(high) - 0.5 / high - square * horner(square, _BERNOULLI)
    return series - s.where(near, steps, const(0.0, x.dtype))


def digamma_steps(x: Expr) -> Expr:
    """digamma as lgamma's derivative has it: `digamma_above`, reflected below 0."""
    below = x < 0.0
    result = digamma_above(s.where(below, 1.0 - x, x))
    angle = s.where(below, x - s.round_even(x), const(0.25, x.dtype)) * math.pi
    turned = s.cos(angle) / s.sin(angle) * math.pi
    result = result - s.where(below, turned, const(0.0, x.dtype))
    return with_slope(_ends(x, below, result), x, lambda x: polygamma(1, x))


# ---- higher derivatives ----

# Bernoulli number 2k over (2k)!
_EULER = tuple(
    top / below
    for top, below in (
        (1, 12),
        (-1, 720),
        (1, 30240),
        (-1, 1209600),
        (1, 47900160),
        (-691, 1307674368000),
        (1, 74724249600),
        (-3617, 10670622842880000),
        (43867, 5109094217170944000),
        (-174611, 802857662698291200000),
    )
)
_LARGEST_FACTORIAL = (
    4  # beyond, n! is divided over the factors of a power, which would overflow first
)


def _whole_power(x: Expr, n: int) -> Expr:
    result: Expr | None = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        x, n = x * x, n >> 1
    assert result is not None
    return result


def _slopes_of_cotangent(n: int) -> Polynomial:
    """The n-th derivative of cot as a polynomial in cot.

    Each is -(1 + c^2) times the one before, differentiated.
    """
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return tuple(found)


def polygamma(n: int, x: Expr) -> Expr:
    """The n-th derivative of digamma, n >= 1, of differentiable instructions.

    Ten terms of the sum of (-1)^(n+1) n! / (x + k)^(n+1), and the Euler-Maclaurin formula for the
    rest; reflected below 0.
    """
    order = n + 1
    below = x < 0.0
    size = s.where(below, 1.0 - x, x)
    shared = n > _LARGEST_FACTORIAL
    numerator = math.exp(math.lgamma(order) / order) if shared else 1.0
    total = _whole_power(numerator / size, order)
    for k in range(1, 10):
        total = total + _whole_power(numerator / (size + float(k)), order)
    end = size + 10.0
    inverse = 1.0 / end
    # Products of 2k - 1 factors from the order on; each coefficient adds one pair.
    coefficients = []
    rising = float(order)
    for k, coefficient in enumerate(_EULER):
        coefficients.append(coefficient * rising)
        rising *= (order + 2 * k + 1) * (order + 2 * k + 2)
    rest = s.fma(inverse, horner(inverse * inverse, tuple(coefficients)), 0.5) + end * (1 / n)
    total = (total + _whole_power(numerator / end, order) * rest) * (
        1.0 if shared else float(math.factorial(n))
    )
    above = total if n % 2 else -total
    angle = s.where(below, x - s.round_even(x), const(0.25, x.dtype)) * math.pi
    turned = horner(s.cos(angle) / s.sin(angle), _slopes_of_cotangent(n)) * math.pi**order
    result = s.where(below, (-above if n % 2 else above) - turned, above)
    pole = (x <= 0.0) & s.floor(x).eq(x)
    result = s.where(pole, const(math.inf if n % 2 else -math.inf, x.dtype), result)
    result = s.where(x.eq(math.inf), const(0.0, x.dtype), result)
    return with_slope(result, x, lambda x: polygamma(n + 1, x))
