"""Catalog rows: arithmetic, comparison, rounding, elementary functions, casts and their
composites.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rushlight.core.dtypes import by_name
from tests.catalog.row import (
    ALL,
    COMPOSED,
    ELEMENTARY,
    EXACT,
    FLOAT,
    INTEGER,
    NUMBER,
    ROUNDED,
    SIGNED,
    SMALL,
    Array,
    DType,
    Make,
    Row,
    Sample,
    alias,
    always,
    as_float,
    at,
    binary,
    bool_,
    rough,
    round_to,
    unary,
)

erf = np.vectorize(math.erf, otypes=[np.float64])


def wide(function):
    """A reference for ops whose integers become floats."""
    return lambda *xs: function(*(np.asarray(x, np.float64) for x in xs))


def same(dtype: DType) -> DType:
    return dtype


# ---- references ----


def or_add(x, y, alpha=1):
    return np.add(x, y if alpha == 1 else y * alpha)  # NumPy's bool + bool is `or`, as PyTorch's


def integer_power(x, y):
    """Exact, also where NumPy refuses: a negative exponent of an integer gives 0, 1 or -1."""

    def one(base: int, exponent: int) -> int:
        if exponent >= 0:
            return base**exponent
        return base ** (-exponent) if base in (1, -1) else 0

    shape = np.broadcast(x, y).shape
    pairs = np.broadcast(x, y)
    return np.array([one(int(a), int(b)) for a, b in pairs], np.int64).reshape(shape)


def power(x, y):
    return np.power(x, y) if np.asarray(x).dtype.kind == "f" else integer_power(x, y)


def sign(x):
    """PyTorch's: 0 for NaN."""
    return np.where(np.isnan(x), 0, np.sign(x))


def relu(x):
    return np.where(np.isnan(x), x, np.maximum(x, 0)) if x.dtype.kind == "f" else np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x, approximate="none"):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + (np.tanh(inner) if approximate == "tanh" else erf(x * math.sqrt(0.5))))


def divide(x, y, rounding_mode=None):
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    quotient = np.divide(np.asarray(x, np.float64), np.asarray(y, np.float64))
    if rounding_mode == "trunc":
        return np.trunc(quotient).astype(np.result_type(x, y))
    return quotient


def clamp(x, min=None, max=None):
    out = x
    if min is not None:
        out = np.where(np.isnan(x), x, np.maximum(out, min))
    if max is not None:
        out = np.where(np.isnan(x), x, np.minimum(out, max))
    return out


def cast_to(name: str):
    target = by_name(name)

    def reference(x):
        if target.kind == "f":
            return round_to(x, target)
        whole = (
            np.asarray(x).astype(np.int64)
            if target.itemsize < 4 and target.kind != "b"
            else np.asarray(x)
        )
        return whole.astype(target.name)  # towards zero, then wrapped

    return reference


# ---- operands away from kinks ----


def whole(x: Array) -> Array:
    """Distance to the nearest integer."""
    return np.abs(x - np.rint(x))


def half(x: Array) -> Array:
    """Distance to the nearest half-integer."""
    return np.abs(x - np.floor(x) - 0.5)


def quotients(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    """y = 0.5 times an odd number, x an integer plus a quarter: x / y is never near an integer."""
    if not make.floats:
        return make(*a, low=-9, high=9), make.nonzero(*b)
    odd = np.asarray(make.random.choice([-1.5, -0.5, 0.5, 1.5], b))
    return np.asarray(make.random.integers(-9, 10, a) + 0.25), odd


def divisors(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a), make.nonzero(*b)


def powers(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    if make.floats:
        return make(*a, low=0.25, high=3), make(*b, low=-2, high=2)
    return make(*a, low=-3, high=3), make(*b, low=-2, high=5)


def apart(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make.lattice(*a), make.lattice(*b, shift=0.5)


def with_ties(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make.lattice(*a), make.lattice(*b)


def bits(make: Make, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Array, Array]:
    return make(*a, low=-99, high=99), make(*b, low=-99, high=99)


# ---- samples with arguments that are no tensors ----


def with_alpha(make: Make) -> Iterator[Sample]:
    yield from binary("", np.add).samples(make)
    if make.dtype is not bool_:
        yield at(make(3, 4), make(4), alpha=3)


def division(make: Make) -> Iterator[Sample]:
    yield from binary("", np.divide, divisors).samples(make)


def rounded_division(make: Make) -> Iterator[Sample]:
    for mode in ("floor", "trunc"):
        yield at(*quotients(make, (3, 4), (4,)), rounding_mode=mode)
        yield at(quotients(make, (5,), ())[0], 4, rounding_mode=mode)


def remainders(make: Make) -> Iterator[Sample]:
    yield from binary("", np.fmod, quotients, special=False, scalars=(2, 0.5)).samples(make)
    if make.floats:  # 1 / 0.1 rounds up to 10, but ten times 0.1 is more than 1
        yield rough(
            round_to([1.0, -1.0, 1.0, 6.0, 0.0], make.dtype),
            round_to([0.1, 0.1, -0.1, 0.1, 3.0], make.dtype),
        )


def selection(make: Make) -> Iterator[Sample]:
    yield at(make.mask(3, 4), make(3, 4), make(3, 4))
    yield at(make.mask(3, 1), make(4), make(2, 3, 4))
    yield at(make.mask(), make(), make())
    yield at(make.mask(0), make(0), make(1))
    if make.dtype is not bool_:
        yield at(make.mask(5), make(5), 2)
        yield at(make.mask(5), -1, make(5))


def masking(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4), make.mask(3, 4), 1)
    yield at(make(3, 4), make.mask(4), 0)
    yield at(make(), make.mask(), 1)
    yield at(make(0, 2), make.mask(0, 2), 1)
    yield at(make(1037), make.mask(1037), make())
    if make.floats:
        yield rough(make(3, 4), make.mask(3, 1), -math.inf)


def clamping(make: Make) -> Iterator[Sample]:
    def clear(x: Array) -> Array:
        return np.minimum(np.abs(x - 1), np.abs(x + 1))

    yield at(make(3, 4, kink=clear), -1, 1)
    yield at(make(1037, kink=clear), min=-1)
    yield at(make(5, kink=clear), max=1)
    yield at(make(kink=clear), -1, 1)
    yield at(make(0, 2), -1, 1)
    yield rough(make.special(), -1, 2)
    if make.floats:
        yield at(make.lattice(3, 4), make.lattice(4, shift=-0.75), make.lattice(3, 1, shift=0.5))


def slopes(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, kink=np.abs))
    yield at(make(kink=np.abs), 0.25)
    yield at(make(0, 3))
    yield at(make(1037, kink=np.abs), negative_slope=0.5)


def both_gelus(make: Make) -> Iterator[Sample]:
    for approximate in ("none", "tanh"):
        yield at(make(3, 4), approximate=approximate)
        yield at(make(1037), approximate=approximate)


def triangles(make: Make) -> Iterator[Sample]:
    for diagonal in (0, 1, -2):
        yield at(make(4, 5), diagonal)
    yield at(make(2, 3, 3))
    yield at(make(0, 3))


def any_value(make: Make) -> Iterator[Sample]:
    yield at(make(3, 4, low=-90, high=90))
    yield at(make())
    yield at(make(0, 3))
    yield at(make(1037, low=-90, high=90))


def cast_row(name: str) -> Row:
    target = by_name(name)
    smooth = target.kind == "f"
    return Row(
        f"to_{name}",
        cast_to(name),
        any_value,
        ALL,
        EXACT,
        always(target),
        smooth,
        unrounded=np.copy,
    )


def comparison(name: str, reference) -> Row:
    return binary(name, reference, with_ties, EXACT, ALL, always(bool_), differentiable=False)


def logical(name: str, reference) -> Row:
    return binary(name, reference, with_ties, EXACT, ALL, always(bool_), differentiable=False)


def bitwise(name: str, reference) -> Row:
    return binary(
        name,
        reference,
        bits,
        EXACT,
        (bool_, *INTEGER),
        special=False,
        differentiable=False,
        scalars=(6,),
    )


def rounding(name: str, reference, kink) -> Row:
    return unary(name, reference, EXACT, NUMBER, same, -5, 5, kink)


ADD = Row("add", or_add, with_alpha, ALL, ROUNDED)
SUB = Row("sub", lambda x, y, alpha=1: np.subtract(x, y * alpha), with_alpha, NUMBER, ROUNDED)
MUL = binary("mul", np.multiply, dtypes=ALL)
DIV = Row("div", divide, division, ALL, ROUNDED, as_float)

ROWS = [
    ADD,
    SUB,
    alias(SUB, "subtract"),
    MUL,
    alias(MUL, "multiply"),
    DIV,
    Row("div", divide, rounded_division, NUMBER, EXACT, variant="rounded"),
    alias(DIV, "divide"),
    alias(DIV, "true_divide"),
    Row("floor_divide", np.floor_divide, remainders, NUMBER, EXACT),
    Row("remainder", np.remainder, remainders, NUMBER, ROUNDED),
    Row("fmod", np.fmod, remainders, NUMBER, ROUNDED),
    binary("pow", power, powers, ELEMENTARY, special=False),
    binary("maximum", np.maximum, apart, EXACT, ALL),
    binary("minimum", np.minimum, apart, EXACT, ALL),
    unary("neg", np.negative, EXACT, NUMBER, same),
    unary("abs", np.abs, EXACT, NUMBER, same, kink=np.abs),
    unary("sign", sign, EXACT, NUMBER, same, kink=np.abs),
    unary("square", np.square, ROUNDED, NUMBER, same),
    unary("sqrt", wide(np.sqrt), ROUNDED, low=0.25, high=4),
    unary("rsqrt", wide(lambda x: 1 / np.sqrt(x)), ELEMENTARY, low=0.25, high=4),
    unary("reciprocal", wide(lambda x: 1 / x), low=0.5, high=3),
    unary("exp", wide(np.exp), low=-5, high=5),
    unary("log", wide(np.log), low=0.25, high=5),
    unary("log2", wide(np.log2), low=0.25, high=5),
    unary("sin", wide(np.sin), low=-7, high=7),
    unary("cos", wide(np.cos), low=-7, high=7),
    unary("tanh", wide(np.tanh), low=-4, high=4),
    unary("erf", wide(erf), low=-4, high=4),
    rounding("floor", np.floor, whole),
    rounding("ceil", np.ceil, whole),
    rounding("trunc", np.trunc, whole),
    rounding("round", np.rint, half),
    comparison("eq", np.equal),
    comparison("ne", np.not_equal),
    comparison("lt", np.less),
    comparison("le", np.less_equal),
    comparison("gt", np.greater),
    comparison("ge", np.greater_equal),
    logical("logical_and", np.logical_and),
    logical("logical_or", np.logical_or),
    logical("logical_xor", np.logical_xor),
    unary("logical_not", np.logical_not, EXACT, ALL, always(bool_), differentiable=False),
    bitwise("bitwise_and", np.bitwise_and),
    bitwise("bitwise_or", np.bitwise_or),
    bitwise("bitwise_xor", np.bitwise_xor),
    unary(
        "bitwise_not",
        np.invert,
        EXACT,
        (bool_, *INTEGER),
        same,
        -99,
        99,
        special=False,
        differentiable=False,
    ),
    unary("isnan", np.isnan, EXACT, ALL, always(bool_), differentiable=False),
    unary("isinf", np.isinf, EXACT, ALL, always(bool_), differentiable=False),
    unary("isfinite", np.isfinite, EXACT, ALL, always(bool_), differentiable=False),
    Row("where", np.where, selection, ALL, EXACT, small=SIGNED),
    Row(
        "masked_fill",
        lambda x, mask, value: np.where(mask, np.asarray(value).astype(x.dtype), x),
        masking,
        ALL,
        EXACT,
    ),
    Row("clamp", clamp, clamping, NUMBER, EXACT, small=SIGNED),
    unary("relu", relu, EXACT, NUMBER, same, kink=np.abs),
    unary("sigmoid", wide(sigmoid), low=-6, high=6),
    unary("silu", lambda x: x * sigmoid(x), ELEMENTARY, FLOAT, low=-6, high=6, special=False),
    unary("softsign", lambda x: x / (1 + np.abs(x)), ELEMENTARY, FLOAT, special=False, kink=np.abs),
    unary("softplus", softplus, ELEMENTARY, FLOAT, low=-6, high=6),
    unary("gelu_exact", gelu, COMPOSED, FLOAT, low=-4, high=4, special=False),
    unary("gelu_tanh", lambda x: gelu(x, "tanh"), COMPOSED, FLOAT, low=-4, high=4, special=False),
    Row("gelu", gelu, both_gelus, FLOAT, COMPOSED),
    Row(
        "leaky_relu",
        lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
        slopes,
        FLOAT,
        ROUNDED,
    ),
    Row("tril", np.tril, triangles, ALL, EXACT),
    Row("triu", np.triu, triangles, ALL, EXACT),
    Row("clone", np.copy, any_value, ALL, EXACT),
    *[cast_row(dtype.name) for dtype in (*ALL, *SMALL)],
]
