"""The functions that formulas are written with, beside Python's operators."""

from __future__ import annotations

import math

from rushlight.core.dtypes import DType, bfloat16, complex_type, float16, float32, int32, real_type
from rushlight.scalar.ir import Expr, Number, binary, const, make, unary


def exp(x: Expr) -> Expr:
    return unary("exp", x)


def log(x: Expr) -> Expr:
    return unary("log", x)


def sqrt(x: Expr) -> Expr:
    return unary("sqrt", x)


def sin(x: Expr) -> Expr:
    return unary("sin", x)


def cos(x: Expr) -> Expr:
    return unary("cos", x)


def tanh(x: Expr) -> Expr:
    return unary("tanh", x)


def erf(x: Expr) -> Expr:
    return unary("erf", x)


def absolute(x: Expr) -> Expr:
    return x if x.dtype.kind == "u" else unary("abs", x)


def floor(x: Expr) -> Expr:
    return unary("floor", x)


def ceil(x: Expr) -> Expr:
    return unary("ceil", x)


def round_even(x: Expr) -> Expr:
    return unary("round", x)


def trunc(x: Expr) -> Expr:
    return unary("trunc", x)


def isnan(x: Expr) -> Expr:
    return unary("isnan", x)


def power(x: Expr | Number, y: Expr | Number) -> Expr:
    return binary("pow", x, y)


def remainder_c(x: Expr, y: Expr | Number) -> Expr:
    """C's remainder: it has the sign of the dividend."""
    return binary("rem", x, y)


def maximum(x: Expr | Number, y: Expr | Number) -> Expr:
    return binary("max", x, y)


def minimum(x: Expr | Number, y: Expr | Number) -> Expr:
    return binary("min", x, y)


def mulhi(x: Expr, y: Expr | Number) -> Expr:
    return binary("mulhi", x, y)


def fma(x: Expr, y: Expr | Number, z: Expr | Number) -> Expr:
    y = y if isinstance(y, Expr) else const(y, x.dtype)
    z = z if isinstance(z, Expr) else const(z, x.dtype)
    return make("fma", (x, y, z), x.dtype)


def where(condition: Expr, x: Expr | Number, y: Expr | Number) -> Expr:
    if not isinstance(x, Expr):
        assert isinstance(y, Expr)
        x = const(x, y.dtype)
    elif not isinstance(y, Expr):
        y = const(y, x.dtype)
    if x is y:
        return x
    if condition.op == "const":
        return x if condition.value else y
    if x.dtype is not y.dtype:
        raise TypeError(f"where: branches differ in type: {x.dtype} and {y.dtype}")
    return make("select", (condition, x, y), x.dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    if x.dtype is dtype:
        return x
    if x.op == "const" and (x.dtype.kind != "c" or dtype.kind == "c"):
        assert x.value is not None
        return const(x.value, dtype)
    return make("cast", (x,), dtype)


def wrapped(x: Expr, dtype: DType) -> Expr:
    """An int32 cut to the range of a small integer type, as a store and a load would."""
    if dtype.kind not in "iu" or dtype.itemsize >= 4:
        return x
    bits = 8 * dtype.itemsize
    return x & ((1 << bits) - 1) if dtype.kind == "u" else (x << (32 - bits)) >> (32 - bits)


def rounded(x: Expr, dtype: DType) -> Expr:
    """A float32 rounded to a half type, as a store and a load would; it has no derivative."""
    if dtype not in (float16, bfloat16) or x.dtype is not float32:
        return x
    dropped = 13 if dtype is float16 else 16
    n = bits_to(x, int32)
    # To the nearest, ties to even: adding the dropped bits makes the carry.
    near = bits_to(
        (n + ((1 << (dropped - 1)) - 1) + ((n >> dropped) & 1)) & -(1 << dropped), float32
    )
    if dtype is float16:
        size = absolute(x)
        even = (size + 0.5) - 0.5  # below the normal numbers every half is a multiple of this
        near = where(size < 2.0**-14, where(n < 0, -even, even), near)
        near = where(
            near > 65504.0,
            const(math.inf, float32),
            where(near < -65504.0, const(-math.inf, float32), near),
        )
    return where(isnan(x), x, near)


def bits_to(x: Expr, dtype: DType) -> Expr:
    """The same bits as another type of the same width."""
    return x if x.dtype is dtype else make("bitcast", (x,), dtype)


# ---- complex numbers ----


def real(z: Expr) -> Expr:
    """The real part; a real number itself."""
    if z.dtype.kind != "c":
        return z
    return z.args[0] if z.op == "complex" else make("real", (z,), real_type(z.dtype))


def imag(z: Expr) -> Expr:
    return z.args[1] if z.op == "complex" else make("imag", (z,), real_type(z.dtype))


def paired(re: Expr, im: Expr) -> Expr:
    """The complex number with these parts."""
    if re.op == "real" and im.op == "imag" and re.args == im.args:
        return re.args[0]
    return make("complex", (re, im), complex_type(re.dtype))


def conj(z: Expr) -> Expr:
    """The complex conjugate; a real number itself."""
    return paired(real(z), -imag(z)) if z.dtype.kind == "c" else z
