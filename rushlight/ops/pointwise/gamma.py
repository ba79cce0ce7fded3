"""The logarithm of the gamma function and its derivatives, and relatives of erf in `special`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import FLOAT
from rushlight.core.errors import KindError, RushlightError
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.ops.view.formats import packed
from rushlight.scalar import build as s, gamma
from rushlight.scalar.hyperbolic import erfc
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value

lgamma = elementwise(
    "lgamma",
    lambda x: gamma.lgamma(x),
    "Logarithm of the size of the gamma function.",
    FLOAT,
    vjp=lambda g, out, x: g * gamma.digamma_steps(x),
    inplace_top=False,
    special="gammaln",
)


digamma = elementwise(
    "digamma",
    lambda x: gamma.digamma(x),
    "Derivative of lgamma.",
    FLOAT,
    vjp=lambda g, out, x: g * gamma.polygamma(1, x),
    inplace_top=False,
    special="digamma psi",
)


@cached
def _polygamma(n: int) -> Callable[..., Any]:
    return elementwise(
        "polygamma",
        lambda x: gamma.polygamma(n, x),
        f"Derivative {n + 1} of lgamma.",
        FLOAT,
        vjp=lambda g, out, x: g * gamma.polygamma(n + 1, x),
        listed=False,
    )


_HIGHEST = 170  # the formula holds the factorial of the order, and it grows with the order


@composite("polygamma", method=False, inplace="result", out="cast", special="polygamma")
def polygamma(n: Any, input: Any) -> Value:
    """The n-th derivative of digamma; the order comes first, in the method the tensor."""
    if isinstance(n, Value) and not (
        n._spec.dtype.kind in "iu" and n._spec.numel == 1 and isinstance(input, Value)
    ):
        n, input = input, n
    try:
        n = operator.index(n)
    except TypeError:
        raise KindError(
            f"polygamma(): argument 'n' must be an int and 'input' a tensor, got {n!r:.60}"
        ) from None
    if not 0 <= n <= _HIGHEST:
        raise RushlightError(
            f"polygamma: the order is from 0 to {_HIGHEST}, got {n}; {_HIGHEST + 1}! exceeds "
            "float64"
        )
    return digamma(input) if n == 0 else _polygamma(n)(input)


def _method(self: Value, n: Any) -> Value:
    """The n-th derivative of digamma."""
    return polygamma(n, self)


_method.__name__ = _method.__qualname__ = "polygamma"
METHODS = (_method,)


@composite("mvlgamma", inplace="result", out="cast", special="multigammaln")
@packed
def mvlgamma(input: Value, p: int) -> Value:
    """The logarithm of the multivariate gamma function of dimension p.

    Args:
        p: The dimension.
    """
    if p < 1:
        raise RushlightError(f"mvlgamma: p must be at least 1, got {p}")
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    if p > _SUMMED_ONE_BY_ONE:
        return e.add(_sum_of_lgammas(input, p), total)
    for k in range(p):
        total = e.add(lgamma(e.sub(input, k / 2)), total)
    return total


_SUMMED_ONE_BY_ONE = 16
_MOST_TERMS = 1 << 27


def _sum_of_lgammas(x: Value, p: int) -> Value:
    """The sum of lgamma(x - k / 2) for k below p, the terms along a new dimension."""
    if p * x._spec.numel > _MOST_TERMS:
        raise RushlightError(
            f"mvlgamma: p = {p} for {x._spec!r} needs p times as many numbers, more than "
            f"{_MOST_TERMS}"
        )
    steps = e.div(creation.arange(p, device=x._spec.device.device.name), 2)
    x = x if x._spec.dtype.kind == "f" else e.cast(x, steps._spec.dtype)
    return reductions.sum(lgamma(e.sub(views.unsqueeze(x, -1), e.cast(steps, x._spec.dtype))), -1)


def _entropy(x: Expr) -> Expr:
    inside = x > 0
    safe = s.where(inside, x, const(1, x.dtype))
    beyond = s.where(x.eq(0), const(0, x.dtype), s.where(s.isnan(x), x, const(-math.inf, x.dtype)))
    return s.where(inside, -(x * s.log(safe)), beyond)


entr = elementwise(
    "entr",
    _entropy,
    "-x log(x), 0 at 0 and -inf below.",
    FLOAT,
    vjp=lambda g, out, x: -g * (s.log(x) + 1),
    method=False,
    top=False,
    special="entr",
)
ndtr = elementwise(
    "ndtr",
    lambda x: erfc(x * -math.sqrt(0.5)) * 0.5,
    "The normal distribution function.",
    FLOAT,
    vjp=lambda g, out, x: g * (s.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))),
    method=False,
    top=False,
    special="ndtr",
)
