"""Catalog rows: Bessel functions, orthogonal polynomials, and the other special functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from tests.catalog.row import (
    COMPOSED,
    ELEMENTARY,
    EXACT,
    FLOAT,
    PAIRS,
    Array,
    Make,
    Row,
    Sample,
    Tolerance,
    always,
    as_float,
    at,
    int32,
    rough,
    unary,
)

GROWING = Tolerance(
    "a recurrence or a power whose size multiplies the errors of its operands", 256, 16
)


def wide(function):
    return lambda *xs: function(*(np.asarray(x, np.float64) for x in xs))


def one(name, reference, low, high, tolerance=COMPOSED, special=True):
    """A function of one tensor; integers become floats."""
    return unary(name, wide(reference), tolerance, low=low, high=high, special=special)


# ---- polynomials ----


def degree(function):
    """A reference whose degree is truncated, and below 0 gives 0."""

    def reference(x, n):
        n = np.trunc(np.asarray(n, np.float64))
        x = np.asarray(x, np.float64)
        return np.where(n < 0, 0.0, function(np.maximum(n, 0).astype(np.int64), x))

    return reference


def kind_v(n, x):
    return special.eval_chebyu(n, x) - np.where(n > 0, special.eval_chebyu(n - 1, x), 0)


def kind_w(n, x):
    return special.eval_chebyu(n, x) + np.where(n > 0, special.eval_chebyu(n - 1, x), 0)


def shifted(function):
    return lambda n, x: function(n, x + x - 1)


def degrees(make: Make, shape: tuple[int, ...], high: int) -> Array:
    return np.asarray(make.random.integers(-1, high + 1, shape), np.float64)


def polynomial(name, function, high=6):
    def samples(make: Make) -> Iterator[Sample]:
        for a, b in PAIRS:
            yield at(make(*a, low=-1.5, high=1.5), degrees(make, b, high))
        yield at(make(4, 5, low=-1, high=1), 12 if make.dtype.itemsize > 2 else 5)
        yield at(make(9, low=-1, high=1), np.full(9, 2.75))
        yield at(np.array([1.0, -1.0, 0.0, 0.5]), np.array([3.0, 5.0, 4.0, 2.0]))

    return Row(name, degree(function), samples, FLOAT, GROWING, differentiable=False)


POLYNOMIALS = [
    polynomial("chebyshev_polynomial_t", special.eval_chebyt),
    polynomial("chebyshev_polynomial_u", special.eval_chebyu),
    polynomial("chebyshev_polynomial_v", kind_v),
    polynomial("chebyshev_polynomial_w", kind_w),
    polynomial("shifted_chebyshev_polynomial_t", shifted(special.eval_chebyt), 4),
    polynomial("shifted_chebyshev_polynomial_u", shifted(special.eval_chebyu), 4),
    polynomial("shifted_chebyshev_polynomial_v", shifted(kind_v), 4),
    polynomial("shifted_chebyshev_polynomial_w", shifted(kind_w), 4),
    polynomial("hermite_polynomial_h", special.eval_hermite),
    polynomial("hermite_polynomial_he", special.eval_hermitenorm),
    polynomial("laguerre_polynomial_l", special.eval_laguerre),
    polynomial("legendre_polynomial_p", special.eval_legendre),
]

# ---- the others ----


def zetas(make: Make) -> Iterator[Sample]:
    for a, b in PAIRS:
        yield at(make(*a, low=1.5, high=6), make(*b, low=0.5, high=9))
    yield at(make(5, low=2, high=6), 2.5)
    values = np.array([1.0, 0.5, 3.0, 3.0, 2.5, np.nan])
    yield rough(values, np.array([2.0, 2.0, 0.0, -2.0, -1.5, 2.0]))
    yield rough(np.array([2.0, 3.0, 4.0]), np.array([-1.5, -7.25, -0.5]))


def zeta(x, q):
    """scipy's; below 0, where it gives NaN, the terms until q is positive are added."""
    x, q = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(q, np.float64))
    steps = 10
    lifted = sum(np.power(q + i, -np.trunc(x)) for i in range(steps)) + special.zeta(x, q + steps)
    below = (q < 0) & (q != np.floor(q)) & (x == np.floor(x)) & (x > 1)
    ends = np.where((q <= 0) & (q == np.floor(q)) & (x > 1), np.inf, special.zeta(x, np.abs(q)))
    ends = np.where((q < 0) & (q != np.floor(q)), np.nan, ends)
    return np.where(below, lifted, np.where((x == 1) & ~np.isnan(q), np.inf, ends))


def parts(make: Make) -> Iterator[Sample]:
    for shape in ((3, 4), (), (0, 3), (1037,)):
        yield at(make(*shape, low=1.25, high=1.75))  # clear of powers of two
    yield rough(make(50, low=-9, high=9))
    yield rough(np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1536.0, np.inf, -np.inf, np.nan]))


def incomplete(make: Make) -> Iterator[Sample]:
    """Integer orders have no gradient; others are forward only."""
    for a, b in PAIRS:
        yield at(make.random.integers(1, 12, a), make(*b, low=0.25, high=12))
        yield rough(make(*a, low=0.03125, high=40), make(*b, low=0.03125, high=40))
    yield rough(
        np.array([0.0, 0.0, 1.0, np.inf, 1.0, -1.0, np.nan, 8.0]),
        np.array([1.0, np.inf, 0.0, 1, np.inf, 1, 1, -1]),
    )


ROWS = [
    Row("igamma", special.gammainc, incomplete, FLOAT, COMPOSED),
    Row("igammac", special.gammaincc, incomplete, FLOAT, COMPOSED),
    one("i0", special.i0, -12, 12),
    one("i0e", special.i0e, -12, 12),
    one("i1", special.i1, -12, 12),
    one("i1e", special.i1e, -12, 12),
    one("bessel_j0", special.j0, -12, 12),
    one("bessel_j1", special.j1, -12, 12),
    one("bessel_y0", special.y0, 0.25, 12),
    one("bessel_y1", special.y1, 0.25, 12),
    one("modified_bessel_i0", special.i0, -12, 12),
    one("modified_bessel_i1", special.i1, -12, 12),
    one("modified_bessel_k0", special.k0, 0.25, 6),
    one("modified_bessel_k1", special.k1, 0.25, 6),
    one("scaled_modified_bessel_k0", special.k0e, 0.25, 6),
    one("scaled_modified_bessel_k1", special.k1e, 0.25, 6),
    one("spherical_bessel_j0", lambda x: special.spherical_jn(0, x), -12, 12),
    one("airy_ai", lambda x: special.airy(x)[0], -6, 6, special=False),
    one("erfcx", special.erfcx, -2, 5),
    one("log_ndtr", special.log_ndtr, -6, 4),
    unary("ndtri", special.ndtri, ELEMENTARY, FLOAT, as_float, 0.03125, 0.96875, special=True),
    Row("zeta", zeta, zetas, FLOAT, GROWING),
    Row("frexp", lambda x: np.frexp(x)[0], parts, FLOAT, EXACT, call=lambda op, x: op(x).mantissa),
    Row(
        "frexp",
        lambda x: np.frexp(x)[1],
        parts,
        FLOAT,
        EXACT,
        always(int32),
        differentiable=False,
        call=lambda op, x: op(x).exponent,
        variant="exponent",
    ),
    *POLYNOMIALS,
]
