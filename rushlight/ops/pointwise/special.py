"""Further functions of `special`: scaled and inverse forms, Hurwitz's zeta function, frexp."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rushlight.core.dtypes import FLOAT, compute_type, get_default, int32, result_type
from rushlight.core.errors import DTypeError, NotDifferentiable
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.returned import returned
from rushlight.ops.pointwise import arithmetic as e, gamma
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.scalar import build as s, incomplete, special
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.needed import is_followed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_ROOT_HALF = math.sqrt(0.5)


def _log_ndtr_vjp(g: Expr, out: Expr, x: Expr) -> Expr:
    """The density over the distribution function.

    Far below 0 their logarithms cancel, and the quotient is a series of 1 / x^2.
    """
    end = 12.0 if x.dtype.itemsize == 4 else 50.0
    far = x < -end
    size = s.where(far, -x, const(end, x.dtype))
    u = 1 / (size * size)
    tail = size / (1 - u * (1 - u * 3 * (1 - u * 5 * (1 - u * 7))))
    near, logarithm = (s.where(far, const(0, x.dtype), part) for part in (x, out))
    return g * s.where(
        far, tail, s.exp(near * near * -0.5 - logarithm) * (1 / math.sqrt(2 * math.pi))
    )


erfcx = elementwise(
    "erfcx",
    lambda x: special.erfcx(x),
    "exp(x^2) erfc(x).",
    FLOAT,
    vjp=lambda g, out, x: g * (x * 2 * out - 2 / math.sqrt(math.pi)),
    method=False,
    top=False,
    special="erfcx",
)
log_ndtr = elementwise(
    "log_ndtr",
    lambda x: special.log_ndtr(x),
    "Logarithm of the normal distribution function.",
    FLOAT,
    vjp=_log_ndtr_vjp,
    method=False,
    top=False,
    special="log_ndtr",
)
ndtri = elementwise(
    "ndtri",
    lambda x: special.ndtri(x),
    "Inverse of the normal distribution function.",
    FLOAT,
    vjp=lambda g, out, x: g * (s.exp(out * out * 0.5) * math.sqrt(2 * math.pi)),
    method=False,
    top=False,
    special="ndtri",
)

# ---- Hurwitz's zeta function: some terms, and the Euler-Maclaurin formula for the rest ----

_TERMS = 10
# 1 / (2k)! times the Bernoulli number 2k
_EULER = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)


def _rest(x: Expr, base: Expr) -> Expr:
    """The sum of (base + i) ** -x over all i >= 0, for base >= 10."""
    first = power = s.power(base, -x)
    total = power * base / (x - 1) + power * 0.5
    factor, power = x, power / base
    for k, coefficient in enumerate(_EULER):
        total = total + factor * power * coefficient
        factor = factor * (x + (2 * k + 1)) * (x + (2 * k + 2))
        power = power / (base * base)
    # The factors overflow where the power is 0 already.
    return s.where(first.eq(0), const(0, x.dtype), total)


def _zeta_end(x: Expr, q: Expr, total: Expr, count: Expr) -> Expr:
    result = total + _rest(x, q + count)
    nan, inf = const(math.nan, x.dtype), const(math.inf, x.dtype)
    below = s.where(s.floor(q).eq(q), inf, s.where(s.floor(x).eq(x), result, nan))
    result = s.where(q > 0, result, s.where(s.isnan(q), nan, below))
    return s.where(x.eq(1), inf, s.where(x > 1, result, nan))


_zeta_begin = elementwise(
    "zeta", lambda x, q: s.power(q, -x), "The first term of zeta.", FLOAT, listed=False
)
_zeta_add = elementwise(
    "zeta",
    lambda x, q, total, i: total + s.power(q + i, -x),
    "One more term of zeta.",
    FLOAT,
    listed=False,
)
_zeta_finish = elementwise("zeta", _zeta_end, "The rest of zeta.", FLOAT, listed=False)


@composite("zeta", method=False, top=False, out="cast", special="zeta")
def zeta(input: Any, other: Any) -> Value:
    """Hurwitz's zeta function: the sum of (other + i) ** -input over i >= 0.

    The smallest element of a tensor `other` is read (one transfer): below 0 there are more terms.
    """
    total = _zeta_begin(input, other)
    least = other
    if isinstance(other, Value):
        least = read_back.read(reductions.amin(physical_of(other)))[0] if other._spec.numel else 0.0
    count = _TERMS + (math.ceil(-least) if -1e4 < least < 0 else 0)
    for i in range(1, count):
        total = _zeta_add(input, other, total, float(i))
    return _zeta_finish(input, other, total, float(count))


# ---- the incomplete gamma functions ----


def _density(a: Expr, x: Expr, log_gamma: Expr) -> Expr:
    """The derivative of P by x, x ** (a - 1) exp(-x) / gamma(a)."""
    return s.exp((a - 1) * s.log(x) - x - s.cast(log_gamma, x.dtype)) * a


def _wide(x: Expr, *parts: Expr) -> list[Expr]:
    return [s.cast(part, x.dtype) for part in parts]


_middle = elementwise(
    "igamma",
    lambda a, x: incomplete.middle_part(a, x),
    "Both functions where their operands are large and of one size.",
    FLOAT,
    vjp=lambda g, out, a, x: (None, None),
    listed=False,
)
_lower = elementwise(
    "igamma",
    lambda a, x, log_gamma, middle: incomplete.regularised(a, x, *_wide(x, log_gamma, middle))[0],
    "The lower incomplete gamma function.",
    FLOAT,
    vjp=lambda g, out, a, x, log_gamma, middle: (None, g * _density(a, x, log_gamma), None, None),
    conditions=(2, 3),
    listed=False,
)
_upper = elementwise(
    "igammac",
    lambda a, x, log_gamma, middle: incomplete.regularised(a, x, *_wide(x, log_gamma, middle))[1],
    "The upper incomplete gamma function.",
    FLOAT,
    vjp=lambda g, out, a, x, log_gamma, middle: (None, -g * _density(a, x, log_gamma), None, None),
    conditions=(2, 3),
    listed=False,
)


def _no_slope(*_: Expr) -> Any:
    raise NotDifferentiable(
        "igamma and igammac: there is no derivative by the first operand; use .detach() on it if "
        "none is meant"
    )


_held = elementwise(
    "igamma",
    lambda a: a,
    "The operand by which there is no derivative.",
    FLOAT,
    _no_slope,
    listed=False,
)


def _regularised(name: str, kernel: Any, a: Value, x: Value) -> Value:
    if not isinstance(a, Value) or not isinstance(x, Value):
        raise DTypeError(
            f"{name}: both operands must be tensors; make them with rushlight.tensor(...)"
        )
    if is_followed(a):
        a = _held(a)
    common = result_type([(v._spec.dtype, len(v._spec.shape)) for v in (a, x)], [])
    common = common if common.kind == "f" else get_default()
    # In the compute type: a logarithm rounded to a half would lose the result.
    wide = compute_type(common)
    middle = _middle(e.cast(a, wide), e.cast(x, wide))
    return kernel(a, x, gamma.lgamma(e.add(e.cast(a, wide), 1)), middle)


@composite("igamma", inplace="result", out="cast", special="gammainc")
def igamma(input: Value, other: Value) -> Value:
    """The regularised lower incomplete gamma function P(input, other)."""
    return _regularised("igamma", _lower, input, other)


@composite("igammac", inplace="result", out="cast", special="gammaincc")
def igammac(input: Value, other: Value) -> Value:
    """The regularised upper incomplete gamma function Q(input, other)."""
    return _regularised("igammac", _upper, input, other)


# ---- mantissa and exponent ----


@returned("frexp")
class Frexp(NamedTuple):
    """The result of frexp."""

    mantissa: Any
    exponent: Any


_exponent = elementwise(
    "frexp",
    lambda x: special.exponent(x),
    "The exponent of x as a fraction from a half to 1 times a power of two.",
    FLOAT,
    result=int32,
    listed=False,
)
_power_of_two = elementwise(
    "frexp",
    lambda n, like: special.small_power(s.cast(n, int32), like),
    "2 ** n in the type of the second.",
    FLOAT,
    conditions=(0,),
    vjp=lambda g, out, n, like: (None, None),
    listed=False,
)


@composite("frexp", out="exact")
def frexp(input: Value) -> Any:
    """(mantissa, exponent) with input = mantissa * 2 ** exponent and 1/2 <= |mantissa| < 1.

    Example:
        >>> torch.frexp(torch.tensor([8.0]))
        rushlight.return_types.frexp(
        mantissa=tensor([0.5000]),
        exponent=tensor([4], dtype=rushlight.int32))
    """
    if input._spec.dtype.kind != "f":
        raise DTypeError(
            f"frexp: takes floating point numbers, got {input._spec!r}; cast with .float()"
        )
    exponent = _exponent(input)
    # In two steps: the power of two for a subnormal number is out of range.
    half = e.floor_divide(exponent, 2)
    mantissa = input
    for part in (half, e.sub(exponent, half)):
        mantissa = e.mul(mantissa, _power_of_two(e.neg(part), input))
    return Frexp(mantissa, exponent)
