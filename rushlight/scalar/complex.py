"""Complex formulas lowered to pairs of real ones, before a kernel is built.

`lower` takes expressions of complex type (Note [Scalar instructions], 10) to pairs (real part,
imaginary part) of real expressions. Products are the plain four, as in PyTorch: infinities are not
repaired. Quotients, roots and absolute values are scaled, so that intermediate values do not
overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import bool_, float32, real_type
from rushlight.scalar import build as s, elementary, hyperbolic, inverse
from rushlight.scalar.elementary_formats import flip, sign_bit
from rushlight.scalar.ir import Expr, const, make, topological

Pair = tuple[Expr, Expr]


def _is_zero(x: Expr) -> bool:
    return x.op == "const" and x.value == 0


def _far(x: Expr) -> float:
    """A power of two whose square, and the square of whose inverse, are in range."""
    return 2.0**60 if x.dtype is float32 else 2.0**500


def _lift(top: Expr) -> tuple[Expr, Expr]:
    """A power of four that keeps the squares of numbers like `top` in range.

    And the root of its inverse.
    """
    far, by = _far(top), 2.0**50 if top.dtype is float32 else 2.0**300

    def chosen(large: float, small: float) -> Expr:
        inside = s.where(top < 1 / far, const(small, top.dtype), const(1, top.dtype))
        return s.where(top > far, const(large, top.dtype), inside)

    return chosen(1 / by / by, by * by), chosen(by, 1 / by)


def hypot(x: Expr, y: Expr) -> Expr:
    """sqrt(x * x + y * y) without intermediate overflow; infinite where either is."""
    size, other = s.absolute(x), s.absolute(y)
    lift, _ = _lift(s.maximum(size, other))
    size, other = size * lift, other * lift
    length = s.sqrt(s.fma(size, size, other * other)) / lift
    return s.where(
        s.absolute(x).eq(math.inf) | s.absolute(y).eq(math.inf), const(math.inf, x.dtype), length
    )


def _same_sign(size: Expr, sign: Expr) -> Expr:
    return flip(s.absolute(size), sign_bit(sign))


def times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def over_i(z: Pair) -> Pair:
    return z[1], -z[0]


# ---- arithmetic ----


def add(a: Pair, b: Pair) -> Pair:
    im = a[1] if _is_zero(b[1]) else b[1] if _is_zero(a[1]) else a[1] + b[1]
    return a[0] + b[0], im


def sub(a: Pair, b: Pair) -> Pair:
    im = a[1] if _is_zero(b[1]) else -b[1] if _is_zero(a[1]) else a[1] - b[1]
    return a[0] - b[0], im


def mul(a: Pair, b: Pair) -> Pair:
    if _is_zero(b[1]):
        return a[0] * b[0], a[1] * b[0]
    if _is_zero(a[1]):
        return a[0] * b[0], a[0] * b[1]
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def div(a: Pair, b: Pair) -> Pair:
    """Smith's quotient: divides by the larger part first."""
    if _is_zero(b[1]):
        return a[0] / b[0], a[1] / b[0]
    wide = s.absolute(b[0]) >= s.absolute(b[1])
    den, num = s.where(wide, b[0], b[1]), s.where(wide, b[1], b[0])
    zero = den.eq(0)
    ratio = s.where(zero, num, num / den)  # division by 0 divides each part by 0
    scale = 1 / (den + num * ratio)
    first, second = s.where(wide, a[0], a[1]), s.where(wide, a[1], a[0])
    re = (first + second * ratio) * scale
    im = (second - first * ratio) * scale
    return re, s.where(wide, im, -im)


def absolute(z: Pair) -> Expr:
    return hypot(*z)


def sqrt(z: Pair) -> Pair:
    re, im = z
    lift, back = _lift(s.maximum(s.absolute(re), s.absolute(im)))
    x, y = s.absolute(re) * lift, s.absolute(im) * lift
    root = s.sqrt((hypot(x, y) + x) * 0.5)
    rest = s.where(root.eq(0), y, y / (root * 2))
    root, rest = root * back, rest * back
    infinite = s.absolute(im).eq(math.inf)
    root, rest = s.where(infinite, s.absolute(im), root), s.where(infinite, s.absolute(im), rest)
    left = hyperbolic.negative(re)
    return s.where(left, rest, root), _same_sign(s.where(left, root, rest), im)


def _log_size(re: Expr, im: Expr) -> Expr:
    """log(hypot(re, im)), also where that is near 1 or too large for the type."""
    a, b = s.absolute(re), s.absolute(im)
    top, low = s.maximum(a, b), s.minimum(a, b)
    near = (top > 0.5) & (top < 1.5) & (low < 1.5)
    close = elementary.log1p((top - 1) * (top + 1) + low * low) * 0.5
    half = top > 2.0**120
    factor = s.where(half, const(0.25, re.dtype), const(1, re.dtype))
    far = s.log(hypot(re * factor, im * factor)) + s.where(
        half, const(math.log(4), re.dtype), const(0, re.dtype)
    )
    return s.where(near, close, far)


def log(z: Pair) -> Pair:
    return _log_size(*z), inverse.atan2(z[1], z[0])


def exp(z: Pair) -> Pair:
    re, im = z
    # In two steps, where exp alone would overflow though its product with a cosine does not.
    most = 88.0 if re.dtype is float32 else 709.0
    large = re > most
    size = s.exp(s.where(large, re * 0.5, re))
    again = s.where(large, size, const(1, re.dtype))
    gone = re.eq(-math.inf)
    zero = const(0, re.dtype)
    a = s.where(gone, zero, size * s.cos(im) * again)
    a = s.where(re.eq(math.inf) & ~(s.absolute(im) < math.inf), re, a)
    b = s.where(gone, zero, size * s.sin(im) * again)
    return a, s.where(im.eq(0), im, b)


def power(x: Pair, y: Pair) -> Pair:
    a, b = exp(mul(y, log(x)))
    re, im = y
    zero, none = x[0].eq(0) & x[1].eq(0), const(0, a.dtype)
    start = s.where(re.eq(0) & im.eq(0), const(1, a.dtype), none)
    return s.where(zero, start, a), s.where(zero, none, b)


# ---- trigonometric and hyperbolic functions; at infinities and NaN as in C (Annex G) ----


def _infinite(x: Expr) -> Expr:
    return s.absolute(x).eq(math.inf)


def sinh(z: Pair) -> Pair:
    x, y = z
    turning = s.absolute(y) < math.inf
    re = s.where(x.eq(0) & ~turning, x, hyperbolic.sinh(x) * s.cos(y))
    re = s.where(_infinite(x) & ~turning, s.absolute(x), re)
    return re, s.where(y.eq(0), y, hyperbolic.cosh(x) * s.sin(y))


def cosh(z: Pair) -> Pair:
    x, y = z
    turning = s.absolute(y) < math.inf
    re = s.where(_infinite(x) & ~turning, s.absolute(x), hyperbolic.cosh(x) * s.cos(y))
    none = (x.eq(0) & ~turning) | y.eq(0)
    im = s.where(none, const(0, x.dtype), hyperbolic.sinh(x) * s.sin(y))
    return re, s.where(none, flip(im, sign_bit(x) ^ sign_bit(y)), im)


def sin(z: Pair) -> Pair:
    return times_i(sinh(over_i(z)))


def cos(z: Pair) -> Pair:
    return cosh(times_i(z))


def tanh(z: Pair) -> Pair:
    x, y = z
    limit = 11.0 if x.dtype is float32 else 22.0
    away = s.absolute(x) > limit
    inside = s.where(away, const(0, x.dtype), x)
    t, sh = hyperbolic.tan(y), hyperbolic.sinh(inside)
    beta = t * t + 1
    below = beta * sh * sh + 1
    re, im = beta * s.sqrt(sh * sh + 1) * sh / below, t / below
    tail = s.sin(y) * s.cos(y) * s.exp(s.absolute(x) * -2) * 4
    tail = s.where(_infinite(x), _same_sign(const(0, x.dtype), y), tail)
    re = s.where(x.eq(0) & ~(s.absolute(y) < math.inf), x, re)
    im = s.where(y.eq(0), y, im)
    return s.where(away, _same_sign(const(1, x.dtype), x), re), s.where(away, tail, im)


def tan(z: Pair) -> Pair:
    return over_i(tanh(times_i(z)))


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z), sqrt(1 + z)."""
    return sqrt((1 - z[0], -z[1])), sqrt((1 + z[0], z[1]))


def _endless(z: Pair) -> tuple[Expr, Expr]:
    """Where a part is infinite, and an infinity with the sign of the imaginary part."""
    endless = _infinite(z[0]) | _infinite(z[1])
    return endless, _same_sign(const(math.inf, z[0].dtype), z[1])


def asin(z: Pair) -> Pair:
    x, y = z
    low, high = _roots(z)
    endless, far = _endless(z)
    re = inverse.atan2(x, low[0] * high[0] - low[1] * high[1])
    re = s.where(endless, inverse.atan2(x, s.absolute(y)), s.where(x.eq(0) & s.isnan(y), x, re))
    return re, s.where(endless, far, inverse.asinh(low[0] * high[1] - low[1] * high[0]))


def acos(z: Pair) -> Pair:
    x, y = z
    low, high = _roots(z)
    endless, far = _endless(z)
    re = inverse.atan2(low[0], high[0]) * 2
    re = s.where(x.eq(0) & s.isnan(y), const(math.pi / 2, x.dtype), re)
    re = s.where(endless, inverse.atan2(s.absolute(y), x), re)
    return re, s.where(endless, -far, inverse.asinh(high[0] * low[1] - high[1] * low[0]))


def acosh(z: Pair) -> Pair:
    x, y = z
    low, high = sqrt((x - 1, y)), sqrt((x + 1, y))
    endless, far = _endless(z)
    im = inverse.atan2(low[1], high[0]) * 2
    im = s.where(x.eq(0) & s.isnan(y), const(math.pi / 2, x.dtype), im)
    im = s.where(endless, _same_sign(inverse.atan2(s.absolute(y), x), y), im)
    re = inverse.asinh(low[0] * high[0] + low[1] * high[1])
    return s.where(endless, s.absolute(far), re), im


def asinh(z: Pair) -> Pair:
    return over_i(asin(times_i(z)))


def atanh(z: Pair) -> Pair:
    x, y = z
    top = s.maximum(s.absolute(x), s.absolute(y))
    away = top > _far(x)
    zero = const(0, x.dtype)
    a, b = s.where(away, zero, x), s.where(away, zero, y)
    below = (1 - s.absolute(a)) * (1 - s.absolute(a)) + b * b
    re = _same_sign(elementary.log1p(s.absolute(a) * 4 / below) * 0.25, x)
    im = inverse.atan2(b * 2, (1 - a) * (1 + a) - b * b) * 0.5
    # For large |z| it is 1 / z, rotated by a right angle.
    far = div((const(1, x.dtype), zero), (x, y))[0]
    quarter = s.where(s.isnan(y), y, _same_sign(const(math.pi / 2, x.dtype), y))
    endless, _ = _endless(z)
    re = s.where(x.eq(0) & s.isnan(y), x, s.where(away, far, re))
    re = s.where(endless, _same_sign(zero, x), re)
    return re, s.where(away | endless, quarter, im)


def atan(z: Pair) -> Pair:
    return over_i(atanh(times_i(z)))


def expm1(z: Pair) -> Pair:
    x, y = z
    half = s.sin(y * 0.5)
    return elementary.expm1(x) * s.cos(y) - half * half * 2, exp(z)[1]


def log1p(z: Pair) -> Pair:
    x, y = z
    small = (s.absolute(x) < 0.5) & (s.absolute(y) < 0.5)
    near = elementary.log1p(x * (x + 2) + y * y) * 0.5
    return s.where(small, near, _log_size(x + 1, y)), inverse.atan2(y, x + 1)


def on_parts(function: Callable[[Pair], Pair]) -> Callable[[Expr], Expr]:
    """A function of pairs as a function of complex expressions."""
    return lambda z: s.paired(*function((s.real(z), s.imag(z))))


# ---- lowering ----


def _cast(expr: Expr, x: Any) -> Any:
    kind = expr.dtype
    if not isinstance(x, tuple):
        part = real_type(kind)
        return s.cast(x, part), const(0, part)
    if kind.kind == "c":
        return s.cast(x[0], real_type(kind)), s.cast(x[1], real_type(kind))
    return x[0].ne(0) | x[1].ne(0) if kind is bool_ else s.cast(x[0], kind)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "fma": lambda a, b, c: add(mul(a, b), c),
    "neg": lambda z: (-z[0], -z[1]),
    "abs": absolute,
    "sqrt": sqrt,
    "exp": exp,
    "log": log,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "pow": power,
    "eq": lambda a, b: a[0].eq(b[0]) & a[1].eq(b[1]),
    "ne": lambda a, b: a[0].ne(b[0]) | a[1].ne(b[1]),
    "isnan": lambda z: s.isnan(z[0]) | s.isnan(z[1]),
    "select": lambda c, a, b: (s.where(c, a[0], b[0]), s.where(c, a[1], b[1])),
    "real": lambda z: z[0],
    "imag": lambda z: z[1],
    "complex": lambda re, im: (re, im),
}


def lower(roots: Sequence[Expr], leaves: dict[Expr, Any]) -> list[Any]:
    """Each root as a real expression or a pair; `leaves` maps arguments, parameters and rows."""
    done: dict[Expr, Any] = dict(leaves)
    for expr in topological(list(roots)):
        if expr in done:
            continue
        args = [done[a] for a in expr.args]
        if expr.dtype.kind != "c" and not any(isinstance(a, tuple) for a in args):
            same = tuple(args) == expr.args
            done[expr] = expr if same else make(expr.op, tuple(args), expr.dtype, expr.value)
        elif expr.op == "const":
            value = complex(expr.value)  # type: ignore[arg-type]
            part = real_type(expr.dtype)
            done[expr] = const(value.real, part), const(value.imag, part)
        elif expr.op == "cast":
            done[expr] = _cast(expr, args[0])
        elif expr.op in _FUNCTIONS:
            done[expr] = _FUNCTIONS[expr.op](*args)
        else:
            raise TypeError(f"{expr.op} is not defined for complex numbers")
    return [done[r] for r in roots]
