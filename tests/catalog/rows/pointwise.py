"""Catalog rows: transcendental functions, signs, special values, shifts, activations, losses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from tests.catalog.row import (
    ALL,
    COMPOSED,
    ELEMENTARY,
    EXACT,
    FLOAT,
    INTEGER,
    NUMBER,
    ROUNDED,
    Array,
    Make,
    Row,
    Sample,
    Tolerance,
    alias,
    always,
    as_float,
    at,
    binary,
    bool_,
    float64,
    rough,
    unary,
)
from tests.catalog.rows import activations, losses


def wide(function):
    """A reference for ops whose integers become floats."""
    return lambda *xs: function(*(np.asarray(x, np.float64) for x in xs))


def same(dtype):
    return dtype


# ---- references ----


def logit(x, eps=None):
    x = np.asarray(x, np.float64)
    return special.logit(x if eps is None else np.clip(x, eps, 1 - eps))


def log_gamma(x):
    """C's: infinite at minus infinity too."""
    return np.where(x == -np.inf, np.inf, special.gammaln(x))


def log_gammas(x, p):
    return sum(special.gammaln(x - k / 2) for k in range(p)) + p * (p - 1) / 4 * np.log(np.pi)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    if np.asarray(x).dtype.kind != "f":
        return np.copy(x)
    out = np.where(np.isnan(x), nan, x)
    out = np.where(out == np.inf, posinf, out)
    return np.where(out == -np.inf, neginf, out)


def heaviside(x, values):
    if x.dtype == bool:
        return x | values
    return np.where(np.isnan(x), 0, np.heaviside(x, values)).astype(np.asarray(x).dtype)


def xlog1py(x, y):
    return np.where(np.isnan(y), np.nan, special.xlog1py(x, y))


def shifted_left(x, count):
    width = 8 * x.dtype.itemsize
    inside = (count >= 0) & (count < width)
    return np.where(inside, np.left_shift(x, np.where(inside, count, 0).astype(x.dtype)), 0).astype(
        x.dtype
    )


def shifted_right(x, count):
    width = 8 * x.dtype.itemsize
    inside = (count >= 0) & (count < width)
    return np.right_shift(x, np.where(inside, count, width - 1).astype(x.dtype)).astype(x.dtype)


# ---- samples ----


def positives(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a), make(*b, low=0.25, high=3)


def apart(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make.lattice(*a), make.lattice(*b, shift=0.5)


def away_from_zero(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make.nonzero(*a), make.nonzero(*b)


def counts(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a, low=-99, high=99), make(*b, low=-3, high=70)


def wholes(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a, low=-9999, high=9999), make(*b, low=-500, high=500)


def logits(make: Make) -> Iterator[Sample]:
    low, high = (0.125, 0.875) if make.floats else (0, 1)
    yield at(make(3, 4, low=low, high=high))
    yield at(make(low=low, high=high))
    yield at(make(0, 3, low=low, high=high))
    yield at(make(1037, low=low, high=high))
    if make.floats:
        yield at(make(3, 4, low=0.25, high=0.75), 0.125)
        yield rough(make(3, 4, low=-2, high=2), eps=0.125)
        yield rough(make.special())


def orders(make: Make) -> Iterator[Sample]:
    for n in range(4):
        yield at(make(3, 4, low=1, high=5), n)
    yield at(make(low=1, high=5), 1)
    yield at(make(0, 3), 2)


def dimensions(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, low=2, high=6), 1)
    yield at(make(3, 4, low=2, high=6), 3)
    yield at(make(low=2, high=6), 2)
    yield at(make(0, 3), 2)


def finite(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), posinf=1.0, neginf=-1.0)
    yield at(make(), posinf=1.0, neginf=-1.0)
    yield at(make(0, 2), posinf=1.0, neginf=-1.0)
    yield rough(make.special(), 0.5, 1.0, -1.0)
    yield rough(make.special(), nan=0.5, posinf=2.0, neginf=-1.0)


def near(make: Make) -> Iterator[Sample]:
    x = make(3, 4)
    y = x.copy()
    if make.dtype is not bool_:
        y.flat[::2] += 1
    yield at(x, y)
    yield at(x, y, 0.5, 0.25)
    yield at(make(0, 3), make(3))
    if make.floats:
        values = make.special()
        yield at(values[:, None], values)
        yield at(values[:, None], values, equal_nan=True)


def weighted(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make(3, 4), 0.25)
    yield at(make(3, 4), make(4), 0.75)
    yield at(
        make(3, 4), make(3, 4), make(3, 1, low=-1, high=2, kink=lambda w: np.abs(np.abs(w) - 0.5))
    )
    yield at(make(), make(), 0.5)
    yield at(make(0, 3), make(0, 3), 2.0)


def triples(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make(3, 4), make.nonzero(3, 4))
    yield at(make(3, 4), make(4), make.nonzero(3, 1), value=2)
    yield at(make(), make(), make.nonzero(), value=3)
    yield at(make(0, 3), make(3), make.nonzero(0, 3))
    if make.floats:
        yield at(make(1037), make(1037), make.nonzero(1037), value=0.75)


def scaled_differences(make: Make) -> Iterator[Sample]:
    yield from binary("", np.subtract).samples(make)
    yield at(make(3, 4), make(4), alpha=3)


def bounds(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=lambda x: np.abs(x - 1)), 1)
    yield at(make(kink=lambda x: np.abs(x - 1)), 1)
    yield at(make(0, 3), 1)
    yield rough(make.special(), 1)
    if make.floats:
        yield at(make.lattice(3, 4), make.lattice(4, shift=0.5))


def steps(make: Make) -> Iterator[Sample]:
    yield at(make.nonzero(3, 4), make(3, 4))
    yield rough(make.lattice(3, 1), make(4))
    yield at(make(0, 3), make(3))
    if make.floats:
        yield rough(make.special(), make(9))


def exponents(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a), make(*b, low=-3, high=3)


def clamped(limit):
    def reference(x, bound):
        return np.where(np.isnan(x), x, limit(x, bound)).astype(
            np.result_type(x, np.asarray(bound, x.dtype))
        )

    return reference


def angle_row(name, reference, low, high, **named) -> Row:
    return unary(name, wide(reference), ELEMENTARY, low=low, high=high, **named)


ASIN = angle_row("asin", np.arcsin, -0.9, 0.9)
ACOS = angle_row("acos", np.arccos, -0.9, 0.9)
ATAN = angle_row("atan", np.arctan, -4, 4)
ASINH = angle_row("asinh", np.arcsinh, -4, 4)
ACOSH = angle_row("acosh", np.arccosh, 1.25, 5)
ATANH = angle_row("atanh", np.arctanh, -0.9, 0.9)
ATAN2 = binary("atan2", wide(np.arctan2), away_from_zero, ELEMENTARY, NUMBER, as_float)
COUNT = (3,)
POLES = Tolerance("the recurrence subtracts numbers a few times the result", 32, 2)

ROWS = [
    angle_row("sinh", np.sinh, -4, 4),
    angle_row("cosh", np.cosh, -4, 4),
    angle_row("tan", np.tan, -1.25, 1.25),
    ASIN,
    ACOS,
    ATAN,
    ASINH,
    ACOSH,
    ATANH,
    ATAN2,
    alias(ASIN, "arcsin"),
    alias(ACOS, "arccos"),
    alias(ATAN, "arctan"),
    alias(ATAN2, "arctan2"),
    alias(ASINH, "arcsinh"),
    alias(ACOSH, "arccosh"),
    alias(ATANH, "arctanh"),
    binary("hypot", wide(np.hypot), away_from_zero, ELEMENTARY, NUMBER, as_float),
    unary("deg2rad", wide(np.deg2rad), ROUNDED, low=-180, high=180),
    unary("rad2deg", wide(np.rad2deg), ROUNDED),
    unary("sinc", wide(np.sinc), ELEMENTARY, kink=np.abs, special=False),
    angle_row("exp2", np.exp2, -5, 5),
    angle_row("expm1", np.expm1, -3, 3),
    angle_row("log1p", np.log1p, -0.5, 5),
    angle_row("log10", np.log10, 0.25, 5),
    binary("logaddexp", np.logaddexp, tolerance=ELEMENTARY, dtypes=FLOAT),
    binary("logaddexp2", np.logaddexp2, tolerance=ELEMENTARY, dtypes=FLOAT),
    binary("xlogy", wide(special.xlogy), positives, ELEMENTARY, NUMBER, as_float),
    binary("xlog1py", wide(xlog1py), positives, ELEMENTARY, NUMBER, as_float),
    Row("logit", logit, logits, ALL, COMPOSED, as_float),
    angle_row("erfc", special.erfc, -3, 3),
    angle_row("erfinv", special.erfinv, -0.9, 0.9),
    unary("lgamma", wide(log_gamma), low=0.25, high=9),
    unary("digamma", wide(special.digamma), POLES, low=0.25, high=9, special=False),
    Row("polygamma", lambda x, n: special.polygamma(n, x), orders, FLOAT, POLES),
    Row("mvlgamma", log_gammas, dimensions, FLOAT, COMPOSED),
    unary("entr", wide(special.entr), low=0.25, high=3),
    angle_row("ndtr", special.ndtr, -3, 3),
    binary("copysign", np.copysign, away_from_zero, EXACT, NUMBER, as_float),
    unary("signbit", np.signbit, EXACT, ALL, always(bool_), differentiable=False),
    unary(
        "isposinf", lambda x: np.equal(x, np.inf), EXACT, ALL, always(bool_), differentiable=False
    ),
    unary(
        "isneginf", lambda x: np.equal(x, -np.inf), EXACT, ALL, always(bool_), differentiable=False
    ),
    binary("nextafter", np.nextafter, apart, ROUNDED, FLOAT, special=False, scalars=()),
    Row("heaviside", heaviside, steps, ALL, EXACT),
    unary("sgn", lambda x: np.where(np.isnan(x), 0, np.sign(x)), EXACT, NUMBER, same, kink=np.abs),
    Row("nan_to_num", nan_to_num, finite, ALL, EXACT),
    Row("isclose", np.isclose, near, ALL, EXACT, always(bool_), differentiable=False),
    binary("fmax", np.fmax, apart, EXACT, ALL),
    binary("fmin", np.fmin, apart, EXACT, ALL),
    unary(
        "frac",
        lambda x: x - np.trunc(x),
        EXACT,
        FLOAT,
        same,
        -5,
        5,
        lambda x: np.abs(x - np.rint(x)),
        special=False,
    ),
    Row("lerp", lambda x, y, w: x + w * (y - x), weighted, FLOAT, COMPOSED),
    Row("addcmul", lambda x, y, z, value=1: x + value * (y * z), triples, NUMBER, COMPOSED),
    Row("addcdiv", lambda x, y, z, value=1: x + value * (y / z), triples, FLOAT, COMPOSED),
    Row("rsub", lambda x, y, alpha=1: y - alpha * x, scaled_differences, NUMBER, ROUNDED),
    binary("ldexp", lambda x, y: x * 2.0**y, exponents, COMPOSED, NUMBER, as_float, special=False),
    binary(
        "float_power",
        np.float_power,
        lambda make, a, b: positives(make, b, a)[::-1],
        ELEMENTARY,
        (float64,),
        special=False,
    ),
    Row("clamp_min", clamped(np.maximum), bounds, NUMBER, EXACT),
    Row("clamp_max", clamped(np.minimum), bounds, NUMBER, EXACT),
    unary("positive", np.copy, EXACT, NUMBER, same),
    binary(
        "bitwise_left_shift",
        shifted_left,
        counts,
        EXACT,
        INTEGER,
        special=False,
        differentiable=False,
        scalars=COUNT,
    ),
    binary(
        "bitwise_right_shift",
        shifted_right,
        counts,
        EXACT,
        INTEGER,
        special=False,
        differentiable=False,
        scalars=COUNT,
    ),
    binary(
        "gcd", np.gcd, wholes, EXACT, INTEGER, special=False, differentiable=False, scalars=(6,)
    ),
    binary(
        "lcm", np.lcm, wholes, EXACT, INTEGER, special=False, differentiable=False, scalars=(6,)
    ),
    *activations.ROWS,
    *losses.ROWS,
]
