"""Bessel functions and Airy's function, as PyTorch's `special` names them.

Formulas in `scalar/bessel`. PyTorch has no derivative of most of them; here each has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import FLOAT
from rushlight.ops.family.declare import elementwise
from rushlight.scalar import bessel, build as s
from rushlight.scalar.ir import Expr, const


def _sign(x: Expr) -> Expr:
    return s.where(x > 0, const(1, x.dtype), s.where(x < 0, const(-1, x.dtype), const(0, x.dtype)))


def _over(value: Expr, x: Expr) -> Expr:
    """value / x for a value that is about x / 2 near 0."""
    zero = x.eq(0)
    return s.where(zero, const(0.5, x.dtype), value / s.where(zero, const(1, x.dtype), x))


i0 = elementwise(
    "i0",
    lambda x: bessel.i0(x),
    "Modified Bessel function of the first kind, order 0.",
    FLOAT,
    vjp=lambda g, out, x: g * bessel.i1(x),
    special="i0",
)
i0e = elementwise(
    "i0e",
    lambda x: bessel.i0_scaled(x),
    "exp(-|x|) times i0(x).",
    FLOAT,
    vjp=lambda g, out, x: g * (bessel.i1_scaled(x) - _sign(x) * out),
    method=False,
    top=False,
    special="i0e",
)
i1 = elementwise(
    "i1",
    lambda x: bessel.i1(x),
    "Modified Bessel function of the first kind, order 1.",
    FLOAT,
    vjp=lambda g, out, x: g * (bessel.i0(x) - _over(out, x)),
    method=False,
    top=False,
    special="i1",
)
i1e = elementwise(
    "i1e",
    lambda x: bessel.i1_scaled(x),
    "exp(-|x|) times i1(x).",
    FLOAT,
    vjp=lambda g, out, x: g * (bessel.i0_scaled(x) - out * _sign(x) - _over(out, x)),
    method=False,
    top=False,
    special="i1e",
)


def _plain(
    name: str, body: Callable[[Expr], Expr], doc: str, vjp: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    return elementwise(
        name, lambda x: body(x), doc, FLOAT, vjp=vjp, method=False, top=False, special=name
    )


# A formula of |x| has its derivative declared: that of |x| taken twice is wrong at 0.
bessel_j0 = _plain(
    "bessel_j0",
    bessel.j0,
    "Bessel function of the first kind, order 0.",
    lambda g, out, x: -g * bessel.j1(x),
)
bessel_j1 = _plain(
    "bessel_j1",
    bessel.j1,
    "Bessel function of the first kind, order 1.",
    lambda g, out, x: g * (bessel.j0(x) - _over(out, x)),
)
bessel_y0 = _plain("bessel_y0", bessel.y0, "Bessel function of the second kind, order 0.")
bessel_y1 = _plain("bessel_y1", bessel.y1, "Bessel function of the second kind, order 1.")
modified_bessel_i0 = _plain(
    "modified_bessel_i0",
    bessel.i0,
    "Modified Bessel function of the first kind, order 0.",
    lambda g, out, x: g * bessel.i1(x),
)
modified_bessel_i1 = _plain(
    "modified_bessel_i1",
    bessel.i1,
    "Modified Bessel function of the first kind, order 1.",
    lambda g, out, x: g * (bessel.i0(x) - _over(out, x)),
)
modified_bessel_k0 = _plain(
    "modified_bessel_k0", bessel.k0, "Modified Bessel function of the second kind, order 0."
)
modified_bessel_k1 = _plain(
    "modified_bessel_k1", bessel.k1, "Modified Bessel function of the second kind, order 1."
)
scaled_modified_bessel_k0 = _plain(
    "scaled_modified_bessel_k0", bessel.k0_scaled, "exp(x) times modified_bessel_k0(x)."
)
scaled_modified_bessel_k1 = _plain(
    "scaled_modified_bessel_k1", bessel.k1_scaled, "exp(x) times modified_bessel_k1(x)."
)
spherical_bessel_j0 = _plain("spherical_bessel_j0", bessel.spherical_j0, "sin(x) / x, and 1 at 0.")
airy_ai = _plain("airy_ai", bessel.airy, "Airy's function Ai.")
