"""Trigonometric, hyperbolic, exponential and error functions, and their inverses.

A body of instructions without derivatives has a declared derivative, of instructions that have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rushlight.core.dtypes import FIELD, FLOAT
from rushlight.ops.family.declare import elementwise
from rushlight.ops.registry import composite, second_name
from rushlight.scalar import build as s, complex as c, elementary, hyperbolic, inverse
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value

_LN2, _LN10 = math.log(2), math.log(10)


def _zero(like: Expr) -> Expr:
    return const(0, like.dtype)


def _either(
    real: Callable[[Expr], Expr], pairs: Callable[[c.Pair], c.Pair]
) -> Callable[[Expr], Expr]:
    """One body for real and for complex numbers."""
    on_complex = c.on_parts(pairs)

    def body(x: Expr) -> Expr:
        return on_complex(x) if x.dtype.kind == "c" else real(x)

    return body


# ---- trigonometric and hyperbolic functions, and their inverses ----

sinh = elementwise(
    "sinh",
    _either(hyperbolic.sinh, c.sinh),
    "Hyperbolic sine.",
    FIELD,
    vjp=lambda g, out, x: g * (s.exp(x) * 0.5 + s.exp(-x) * 0.5),
    autocast={"gpu": "float32"},
)
cosh = elementwise(
    "cosh",
    _either(hyperbolic.cosh, c.cosh),
    "Hyperbolic cosine.",
    FIELD,
    vjp=lambda g, out, x: g * (s.exp(x) * 0.5 - s.exp(-x) * 0.5),
    autocast={"gpu": "float32"},
)
tan = elementwise(
    "tan",
    _either(hyperbolic.tan, c.tan),
    "Tangent.",
    FIELD,
    vjp=lambda g, out, x: g * (out * out + 1),
    autocast={"gpu": "float32"},
)
asin = elementwise(
    "asin",
    _either(inverse.asin, c.asin),
    "Inverse sine.",
    FIELD,
    vjp=lambda g, out, x: g / s.sqrt(1 - x * x),
    autocast={"gpu": "float32"},
)
acos = elementwise(
    "acos",
    _either(inverse.acos, c.acos),
    "Inverse cosine.",
    FIELD,
    vjp=lambda g, out, x: -g / s.sqrt(1 - x * x),
    autocast={"gpu": "float32"},
)
atan = elementwise(
    "atan",
    _either(inverse.atan, c.atan),
    "Inverse tangent.",
    FIELD,
    vjp=lambda g, out, x: g / (x * x + 1),
)
asinh = elementwise(
    "asinh",
    _either(inverse.asinh, c.asinh),
    "Inverse hyperbolic sine.",
    FIELD,
    vjp=lambda g, out, x: g / s.sqrt(x * x + 1),
)
acosh = elementwise(
    "acosh",
    _either(inverse.acosh, c.acosh),
    "Inverse hyperbolic cosine.",
    FIELD,
    vjp=lambda g, out, x: (
        g / (s.sqrt(x - 1) * s.sqrt(x + 1)) if x.dtype.kind == "c" else g / s.sqrt(x * x - 1)
    ),
)
atanh = elementwise(
    "atanh",
    _either(inverse.atanh, c.atanh),
    "Inverse hyperbolic tangent.",
    FIELD,
    vjp=lambda g, out, x: g / (1 - x * x),
)


def _atan2_vjp(g: Expr, out: Expr, y: Expr, x: Expr) -> tuple[Expr, Expr]:
    square = x * x + y * y
    scaled = s.where(square.eq(0), const(0, g.dtype), g / square)  # none at the origin
    return scaled * x, -scaled * y


atan2 = elementwise(
    "atan2",
    lambda y, x: inverse.atan2(y, x),
    "Angle of the point (x, y), from -pi to pi.",
    FLOAT,
    vjp=_atan2_vjp,
    autocast={"gpu": "widest"},
)


hypot = elementwise(
    "hypot",
    c.hypot,
    "Length of the hypotenuse, sqrt(x * x + y * y), without overflow in between.",
    FLOAT,
    vjp=lambda g, out, x, y: (g * (x / out), g * (y / out)),
)
deg2rad = elementwise("deg2rad", lambda x: x * (math.pi / 180), "Degrees to radians.", FLOAT)
rad2deg = elementwise("rad2deg", lambda x: x * (180 / math.pi), "Radians to degrees.", FLOAT)


def _sinc_parts(x: Expr) -> tuple[Expr, Expr]:
    """(x is 0, pi x or 1): an unselected division by 0 would still make a gradient NaN."""
    zero = x.eq(0)
    return zero, s.where(zero, const(1, x.dtype), x * math.pi)


def _sinc(x: Expr) -> Expr:
    if x.dtype.kind != "c":
        return hyperbolic.sinc(x)
    zero, angle = _sinc_parts(x)
    return s.where(zero, const(1, x.dtype), s.sin(angle) / angle)


def _sinc_vjp(g: Expr, out: Expr, x: Expr) -> Expr:
    zero, angle = _sinc_parts(x)
    slope = (s.cos(angle) - s.sin(angle) / angle) / angle * math.pi
    if x.dtype.kind == "c":
        return s.where(zero, _zero(g), g * slope)
    # Near 0 by its series, where the difference cancels; so that the second derivative at 0 is
    # right too.
    near = s.absolute(x) < 0.04
    t = s.where(near, x * math.pi, _zero(x))
    u = t * t
    series = t * (-math.pi / 3) * (1 - u * (1 / 10) * (1 - u * (1 / 28) * (1 - u * (1 / 54))))
    return g * s.where(near, series, slope)


sinc = elementwise(
    "sinc", _sinc, "sin(pi x) / (pi x), and 1 at 0.", FIELD, vjp=_sinc_vjp, special="sinc"
)

# ---- exponentials and logarithms ----

exp2 = elementwise(
    "exp2",
    lambda x: s.exp(x * _LN2) if x.dtype.kind == "c" else hyperbolic.exp2(x),
    "2 to the x.",
    FIELD,
    vjp=lambda g, out, x: g * (out * _LN2),
    special="exp2",
)
expm1 = elementwise(
    "expm1",
    _either(elementary.expm1, c.expm1),
    "exp(x) - 1 without the loss near 0.",
    FIELD,
    vjp=lambda g, out, x: g * (out + 1),
    special="expm1",
    autocast={"gpu": "float32"},
)
log1p = elementwise(
    "log1p",
    _either(elementary.log1p, c.log1p),
    "log(1 + x) without the loss near 0.",
    FIELD,
    vjp=lambda g, out, x: g / (x + 1),
    special="log1p",
    autocast={"gpu": "float32"},
)
log10 = elementwise(
    "log10",
    lambda x: s.log(x) * (1 / _LN10) if x.dtype.kind == "c" else elementary.log10(x),
    "Logarithm to base 10.",
    FIELD,
    vjp=lambda g, out, x: g / (x * _LN10),
    autocast={"gpu": "float32"},
)


def _log_sum(x: Expr, y: Expr, base: float) -> Expr:
    if x.dtype.kind == "c":
        ahead = s.real(x) >= s.real(y)
        top, low = s.where(ahead, x, y), s.where(ahead, y, x)
        # Equal infinities: their difference is NaN, their sum is not. Of two zeros (log -inf) the
        # angle does not matter.
        nothing = s.real(x).eq(-math.inf) & s.real(y).eq(-math.inf)
        endless = s.real(x).eq(math.inf) & s.real(y).eq(math.inf) & s.imag(x).eq(s.imag(y))
        return s.where(nothing | endless, y, top + c.on_parts(c.log1p)(s.exp(low - top)))
    top = s.maximum(x, y)
    rest = s.where(x < y, x - y, y - x)
    small = s.exp(rest) if base == 1 else hyperbolic.exp2(rest)
    result = top + elementary.log1p(small) * (1 / base)
    # Equal infinities: their difference is NaN, their sum is not.
    return s.where(x.eq(y) & s.absolute(x).eq(math.inf), x, result)


def _log_sum_vjp(g: Expr, out: Expr, x: Expr, y: Expr, base: float) -> tuple[Expr, Expr]:
    if x.dtype.kind == "c":
        return g * s.exp(x - out), g * s.exp(y - out)
    return g / (s.exp((y - x) * base) + 1), g / (s.exp((x - y) * base) + 1)


logaddexp = elementwise(
    "logaddexp",
    lambda x, y: _log_sum(x, y, 1),
    "log(exp(x) + exp(y)).",
    FIELD,
    vjp=lambda g, out, x, y: _log_sum_vjp(g, out, x, y, 1),
    inplace="",
)
logaddexp2 = elementwise(
    "logaddexp2",
    lambda x, y: _log_sum(x, y, _LN2),
    "log2(2 ** x + 2 ** y).",
    FLOAT,
    vjp=lambda g, out, x, y: _log_sum_vjp(g, out, x, y, _LN2),
    inplace="",
)


def _times_log(x: Expr, y: Expr, log: Expr) -> Expr:
    nan = const(math.nan, x.dtype)
    return s.where(s.isnan(y), nan, s.where(x.eq(0), _zero(x), x * log))


def _xlogy_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    flat = (x.eq(0) | g.eq(0)) & (y <= 0)
    by_x = s.where(flat, _zero(g), g * s.log(s.where(flat, const(1, y.dtype), y)))
    return by_x, g * x / y


xlogy = elementwise(
    "xlogy",
    lambda x, y: _times_log(x, y, s.log(y)),
    "x * log(y), and 0 where x is 0.",
    FLOAT,
    vjp=_xlogy_vjp,
    rounds=False,
    inplace_top=True,
    special="xlogy",
)


def _xlog1py_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    flat = (x.eq(0) | g.eq(0)) & (y <= -1)
    by_x = s.where(flat, _zero(g), g * s.log(s.where(flat, const(1, y.dtype), y + 1)))
    return by_x, g * x / (y + 1)


xlog1py = elementwise(
    "xlog1py",
    lambda x, y: _times_log(x, y, elementary.log1p(y)),
    "x * log(1 + y), and 0 where x is 0.",
    FLOAT,
    vjp=_xlog1py_vjp,
    method=False,
    top=False,
    special="xlog1py",
)


def _logit_vjp(g: Expr, out: Expr, x: Expr) -> Expr:
    """NaN outside [0, 1] and infinite at both ends, with the right sign."""
    product = s.where(x.eq(0) | x.eq(1), const(0, x.dtype), x * (1 - x))
    return s.where((x < 0) | (x > 1), const(math.nan, g.dtype), g / product)


_logit = elementwise(
    "logit", lambda x: s.log(x / (1 - x)), "log(x / (1 - x)).", FLOAT, vjp=_logit_vjp, listed=False
)
_logit_within = elementwise(
    "logit",
    lambda x, eps: s.log(_within(x, eps) / (1 - _within(x, eps))),
    "logit of x held between eps and 1 - eps.",
    FLOAT,
    listed=False,
)


def _within(x: Expr, eps: Expr) -> Expr:
    return s.where(x < eps, eps, s.where(x > 1 - eps, 1 - eps, x))


@composite("logit", inplace="result", inplace_top=True, out="cast", special="logit")
def logit(input: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)), of x clamped to [eps, 1 - eps] if eps is given."""
    return _logit(input) if eps is None else _logit_within(input, eps)


# ---- the error function ----

erfc = elementwise(
    "erfc",
    lambda x: hyperbolic.erfc(x),
    "1 - erf(x), also where that is tiny.",
    FLOAT,
    vjp=lambda g, out, x: -g * (s.exp(-(x * x)) * (2 / math.sqrt(math.pi))),
    special="erfc",
)
erfinv = elementwise(
    "erfinv",
    lambda x: inverse.erfinv(x),
    "Inverse of erf.",
    FLOAT,
    vjp=lambda g, out, x: g * (s.exp(out * out) * (math.sqrt(math.pi) / 2)),
    inplace_top=False,
    special="erfinv",
    autocast={"gpu": "float32"},
)

second_name("arcsin", asin)
second_name("arccos", acos)
second_name("arctan", atan)
second_name("arctan2", atan2)
second_name("arcsinh", asinh)
second_name("arccosh", acosh)
second_name("arctanh", atanh)
