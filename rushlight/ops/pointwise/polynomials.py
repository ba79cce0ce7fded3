"""Families of orthogonal polynomials, whose degree is a tensor too: as in PyTorch's `special`.

# Note [Degrees as data]
1. Chebyshev's are one kernel: the recurrence up to degree 8, above it the cosine or hyperbolic
   cosine of n times an angle. Nothing is read from the device.
2. Hermite's, Laguerre's and Legendre's have no such form: one kernel per step of the recurrence, as
   many as the highest degree. A degree given as a tensor is read for it (one transfer); a Python
   number costs none.
3. A degree is truncated to an integer; where it is below 0 or NaN the polynomial is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import FLOAT, float32
from rushlight.core.errors import DTypeError, NotDifferentiable, RushlightError
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import elementwise
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import register
from rushlight.scalar import build as s, hyperbolic, inverse
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

_UNROLLED = 8  # degrees up to it by recurrence
Recurrence = Callable[[Expr, Expr, Expr, Expr], Expr]  # (previous, current, x, k) -> polynomial k


def _odd(n: Expr) -> Expr:
    half = n * 0.5
    return s.floor(half).ne(half)


def _with_parity(x: Expr, n: Expr, value: Expr) -> Expr:
    """value times (-1)^n where x is negative."""
    return s.where((x < 0) & _odd(n), -value, value)


def _angles(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """(|x| < 1, arc cosine of x, |x|, inverse hyperbolic cosine of |x|)."""
    size = s.absolute(x)
    inside = size < 1
    one = const(1, x.dtype)
    return (
        inside,
        inverse.acos(s.where(inside, x, one)),
        size,
        inverse.acosh(s.where(inside, one, size)),
    )


def _chebyshev(x: Expr, n: Expr, first: Expr, beyond: Expr, at_ends: Expr) -> Expr:
    """The kind that begins with 1: its value `beyond` the unrolled degrees, and where |x| is 1."""
    n = s.trunc(n)
    before, now = const(1, x.dtype), first
    low = s.where(n < 1, before, now)
    for k in range(2, _UNROLLED + 1):
        before, now = now, (x + x) * now - before
        low = s.where(n >= k, now, low)
    value = s.where(n > _UNROLLED, beyond, low)
    value = s.where(s.absolute(x).eq(1), at_ends, value)
    return s.where(n >= 0, value, const(0, x.dtype))


def _kind_t(x: Expr, n: Expr) -> Expr:
    n = s.trunc(n)
    inside, angle, _, outer = _angles(x)
    beyond = s.where(inside, s.cos(n * angle), _with_parity(x, n, hyperbolic.cosh(n * outer)))
    return _chebyshev(x, n, x, beyond, _with_parity(x, n, const(1, x.dtype)))


def _kind_u(x: Expr, n: Expr) -> Expr:
    n = s.trunc(n)
    inside, angle, _, outer = _angles(x)
    root = s.sqrt(s.absolute((1 - x) * (1 + x)))
    swung = s.sin((n + 1) * angle) / root
    grown = _with_parity(x, n, hyperbolic.sinh((n + 1) * outer) / root)
    return _chebyshev(x, n, x + x, s.where(inside, swung, grown), _with_parity(x, n, n + 1))


def _halves(x: Expr, n: Expr) -> tuple[Expr, Expr, Expr]:
    """(|x| < 1, cos or cosh of n + 1/2 angles over that of half an angle, the same of sin or sinh).

    Outside they are of |x|.
    """
    inside, angle, size, outer = _angles(x)
    value = s.where(inside, x, size)
    near, far = s.sqrt((value + 1) * 0.5), s.sqrt(s.absolute(value - 1) * 0.5)
    count = n + 0.5
    by_cosine = s.where(inside, s.cos(count * angle), hyperbolic.cosh(count * outer)) / near
    by_sine = s.where(inside, s.sin(count * angle), hyperbolic.sinh(count * outer)) / far
    return inside, by_cosine, by_sine


def _kind_v(x: Expr, n: Expr) -> Expr:
    n = s.trunc(n)
    inside, by_cosine, by_sine = _halves(x, n)
    beyond = s.where(inside | (x > 0), by_cosine, _with_parity(x, n, by_sine))
    ends = s.where(x > 0, const(1, x.dtype), _with_parity(x, n, n + n + 1))
    return _chebyshev(x, n, x + x - 1, beyond, ends)


def _kind_w(x: Expr, n: Expr) -> Expr:
    n = s.trunc(n)
    inside, by_cosine, by_sine = _halves(x, n)
    beyond = s.where(inside | (x > 0), by_sine, _with_parity(x, n, by_cosine))
    ends = s.where(x > 0, n + n + 1, _with_parity(x, n, const(1, x.dtype)))
    return _chebyshev(x, n, x + x + 1, beyond, ends)


def _not_differentiable(name: str) -> Callable[..., Any]:
    def vjp(*_: Expr) -> Any:
        raise NotDifferentiable(
            f"{name}: it has no derivative; use .detach() on its operands if none is meant"
        )

    return vjp


def _declare_chebyshev(letter: str, kind: str, body: Callable[[Expr, Expr], Expr]) -> None:
    name = f"chebyshev_polynomial_{letter}"
    doc = f"Chebyshev polynomial of the {kind} kind, of degree n"
    elementwise(
        name,
        lambda x, n: body(x, n),
        f"{doc}.",
        FLOAT,
        vjp=_not_differentiable(name),
        method=False,
        top=False,
        special=name,
    )
    name = f"shifted_{name}"
    elementwise(
        name,
        lambda x, n: body(x + x - 1, n),
        f"{doc}, at 2x - 1.",
        FLOAT,
        vjp=_not_differentiable(name),
        method=False,
        top=False,
        special=name,
    )


_declare_chebyshev("t", "first", _kind_t)
_declare_chebyshev("u", "second", _kind_u)
_declare_chebyshev("v", "third", _kind_v)
_declare_chebyshev("w", "fourth", _kind_w)

# ---- by recurrence ----


def _hermite_start(first: Callable[[Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """The first two; NaN beyond the degree at which PyTorch stops."""

    def start(x: Expr, n: Expr) -> Expr:
        limit = 128.0 if x.dtype is float32 else 512.0
        return s.where(s.trunc(n) > limit, const(math.nan, x.dtype), _begin(x, n, first(x)))

    return start


def _begin(x: Expr, n: Expr, first: Expr) -> Expr:
    n = s.trunc(n)
    one, zero = const(1, x.dtype), const(0, x.dtype)
    return s.where(n >= 0, s.where(n < 1, one, first), zero)


_HIGHEST_DEGREE = 20_000  # some tenths of a second


def _declare_recurrence(
    name: str, start: Callable[[Expr, Expr], Expr], step: Recurrence, limit: float, doc: str
) -> None:
    begin = elementwise(
        name, lambda x, n: start(x, n), doc, FLOAT, vjp=_not_differentiable(name), listed=False
    )
    advance = elementwise(
        name,
        lambda before, now, x, n, k: s.where(s.trunc(n) >= k, step(before, now, x, k), now),
        doc,
        FLOAT,
        vjp=_not_differentiable(name),
        listed=False,
    )

    def function(x: Any, n: Any) -> Any:
        if not isinstance(x, Value) and not isinstance(n, Value):
            raise DTypeError(f"{name}: one of x and n must be a tensor, got {x!r} and {n!r}")
        highest = min(_highest(n), limit)
        if not highest <= _HIGHEST_DEGREE:
            raise RushlightError(
                f"{name}: takes a step for each degree, degrees up to {_HIGHEST_DEGREE}, got "
                f"{highest:.0f}"
            )
        now = begin(x, n)
        before = e.add(e.mul(now, 0), 1) if now._spec.numel else now
        for k in range(2, int(highest) + 1):
            before, now = now, advance(before, now, x, n, float(k))
        return now

    register(name, function, doc, method=False, top=False, out="cast", special=name)


def _highest(n: Any) -> float:
    """The highest degree; a NaN counts as below 0."""
    if not isinstance(n, Value):
        return -1.0 if n != n else float(n)
    if not n._spec.numel:
        return 0.0
    degrees = physical_of(n)
    if degrees._spec.dtype.kind == "f":
        degrees = e.select(e.eq(degrees, degrees), degrees, -1)
    return float(read_back.read(reductions.amax(degrees))[0])


_declare_recurrence(
    "hermite_polynomial_h",
    _hermite_start(lambda x: x + x),
    lambda before, now, x, k: (x + x) * now - (k + k - 2) * before,
    512,
    "Physicist's Hermite polynomial of degree n.",
)
_declare_recurrence(
    "hermite_polynomial_he",
    _hermite_start(lambda x: x),
    lambda before, now, x, k: x * now - (k - 1) * before,
    512,
    "Probabilist's Hermite polynomial of degree n.",
)
_declare_recurrence(
    "laguerre_polynomial_l",
    lambda x, n: _begin(x, n, 1 - x),
    lambda before, now, x, k: ((k + k - 1 - x) * now - (k - 1) * before) / k,
    math.inf,
    "Laguerre polynomial of degree n.",
)
_declare_recurrence(
    "legendre_polynomial_p",
    lambda x, n: _begin(x, n, x),
    lambda before, now, x, k: ((k + k - 1) * x * now - (k - 1) * before) / k,
    math.inf,
    "Legendre polynomial of degree n.",
)
