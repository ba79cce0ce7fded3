"""The logarithm of the gamma function and its derivatives, and small kin of erf that `special` names."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import FLOAT
from rushlight.core.errors import RushlightError
from rushlight.ops import elementwise as e
from rushlight.ops.family.declare import elementwise
from rushlight.ops.registry import composite
from rushlight.scalar import build as s, gamma
from rushlight.scalar.hyperbolic import erfc
from rushlight.scalar.ir import Expr, const
from rushlight.tape.value import Value

lgamma = elementwise(
    "lgamma",
    lambda x: gamma.lgamma(x),
    "Logarithm of the size of the gamma function.",
    FLOAT,
    vjp=lambda g, out, x: g * gamma.digamma_steps(x),
)


digamma = elementwise(
    "digamma",
    lambda x: gamma.digamma(x),
    "Derivative of lgamma.",
    FLOAT,
    vjp=lambda g, out, x: g * gamma.polygamma(1, x),
)


@functools.cache
def _polygamma(n: int) -> Callable[..., Any]:
    return elementwise(
        "polygamma",
        lambda x: gamma.polygamma(n, x),
        f"Derivative {n + 1} of lgamma.",
        FLOAT,
        vjp=lambda g, out, x: g * gamma.polygamma(n + 1, x),
        listed=False,
    )


@composite("polygamma")
def polygamma(n: Any, input: Any) -> Value:
    """The n-th derivative of digamma; the order comes first, the tensor where it is a method."""
    if isinstance(n, Value):
        n, input = input, n
    if n < 0:
        raise RushlightError(f"polygamma: the order must not be negative, got {n}")
    return digamma(input) if n == 0 else _polygamma(n)(input)


@composite("mvlgamma")
def mvlgamma(input: Value, p: int) -> Value:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RushlightError(f"mvlgamma: p must be at least 1, got {p}")
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for k in range(p):
        total = e.add(lgamma(e.sub(input, k / 2)), total)
    return total


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
)
ndtr = elementwise(
    "ndtr",
    lambda x: erfc(x * -math.sqrt(0.5)) * 0.5,
    "The normal distribution function.",
    FLOAT,
    vjp=lambda g, out, x: g * (s.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))),
    method=False,
    top=False,
)
