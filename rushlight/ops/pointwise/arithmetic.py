"""Arithmetic, comparison, rounding and the elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import (
    ALL,
    ANY,
    ARITHMETIC,
    FIELD,
    FLOAT,
    FLOAT8,
    INTEGER,
    STORED,
    DType,
    bool_,
    int64,
    uint32,
    uint64,
)
from rushlight.core.errors import KindError, RushlightError, SparseOperandError
from rushlight.ops.family.declare import elementwise
from rushlight.ops.registry import register, second_name
from rushlight.scalar import build as s, elementary
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record import call
from rushlight.tape.record.value import Value


def _is_bool(x: Expr) -> bool:
    return x.dtype is bool_


def _floor_div(x: Expr, y: Expr) -> Expr:
    rest = s.remainder_c(x, y)
    past = rest.ne(0) & ((rest < 0) ^ (y < 0))
    if x.dtype.kind != "f":
        quotient = x / y
        return s.where(past, quotient - 1, quotient)
    # As in Python: x / y may have been rounded up to an integer that it does not reach, x - rest is
    # exact.
    quotient = (x - rest) / y
    quotient = s.where(past, quotient - 1, quotient)
    down = s.floor(quotient)
    nearest = s.where(quotient - down > 0.5, down + 1, down)
    # A quotient of 0 has the sign that x / y has.
    return s.where(y.eq(0), x / y, s.where(quotient.eq(0), x / y * 0, nearest))


def _remainder(x: Expr, y: Expr) -> Expr:
    rest = s.remainder_c(x, y)
    return s.where(rest.ne(0) & ((rest < 0) ^ (y < 0)), rest + y, rest)


def _power(x: Expr, y: Expr) -> Expr:
    if x.dtype.kind in "fc":
        return s.power(x, y)
    # Square and multiply over the bits of the exponent; a negative one gives 0, 1 or -1.
    result, base, left = const(1, x.dtype), x, y
    for _ in range(8 * x.dtype.itemsize - (x.dtype.kind == "i")):
        result = s.where((left & 1).ne(0), result * base, result)
        base, left = base * base, left >> 1
    odd = (y & 1).ne(0)
    tiny = s.where(
        x.eq(1), const(1, x.dtype), s.where(x.eq(-1), s.where(odd, x, -x), const(0, x.dtype))
    )
    return s.where(y < 0, tiny, result)


def _sign(x: Expr) -> Expr:
    return s.where(x > 0, const(1, x.dtype), s.where(x < 0, const(-1, x.dtype), const(0, x.dtype)))


add = elementwise(
    "add",
    lambda x, y: x | y if _is_bool(x) else x + y,
    "Sum, x + y.",
    ANY,
    listed=False,
    rounds=True,
    of_numbers=True,
)
sub = elementwise(
    "sub",
    lambda x, y: x - y,
    "Difference, x - y.",
    ARITHMETIC,
    listed=False,
    rounds=True,
    of_numbers=True,
)
mul = elementwise(
    "mul",
    lambda x, y: x & y if _is_bool(x) else x * y,
    "Product, x * y.",
    STORED,
    rounds=False,
    of_numbers=True,
    operator="mul",
)
div = elementwise(
    "div",
    lambda x, y: x / y,
    "Quotient, x / y; integers give floats.",
    FIELD,
    listed=False,
    of_numbers=True,
)
floor_divide = elementwise(
    "floor_divide",
    _floor_div,
    "Quotient rounded down.",
    vjp=lambda g, out, x, y: (g * 0, g * 0),
    listed=False,
    of_numbers=True,
)
remainder = elementwise(
    "remainder",
    _remainder,
    "Remainder with the sign of the divisor.",
    vjp=lambda g, out, x, y: (g, -g * s.floor(x / y)),
    listed=False,
    rounds=True,
)
fmod = elementwise(
    "fmod",
    lambda x, y: s.remainder_c(x, y),
    "Remainder with the sign of the dividend.",
    listed=False,
    rounds=True,
)
_any_pow = elementwise(
    "pow",
    _power,
    "Power, x ** y.",
    ARITHMETIC,
    second="exponent",
    listed=False,
    rounds=True,
    operand_names=("self", "exponent"),
    autocast={"gpu": "float32"},
)


def _refuse_reciprocals(tensors: Sequence[Value], operands: Sequence[Any]) -> None:
    exponent = operands[1]
    if isinstance(exponent, int) and exponent < 0 and tensors[0]._spec.dtype.kind in "biu":
        raise RushlightError(
            f"pow: integers to negative integer powers are not allowed, got {tensors[0]._spec!r} "
            f"to the power of {exponent}; cast to a float type first"
        )


_any_pow.op.refuse = _refuse_reciprocals  # type: ignore[attr-defined]
neg = elementwise("neg", lambda x: -x, "Negative, -x.", ARITHMETIC, out="exact")


def _larger_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """A tie shares the gradient; both get all of it where either is NaN, as in PyTorch."""
    none, half = const(0, g.dtype), g * 0.5
    tie = x.eq(y)
    return s.where(tie, half, s.where(x < y, none, g)), s.where(tie, half, s.where(x > y, none, g))


def _smaller_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    none, half = const(0, g.dtype), g * 0.5
    tie = x.eq(y)
    return s.where(tie, half, s.where(x > y, none, g)), s.where(tie, half, s.where(x < y, none, g))


maximum = elementwise(
    "maximum",
    lambda x, y: x | y if _is_bool(x) else s.maximum(x, y),
    "The larger of two; NaN wins; a tie shares the gradient.",
    ALL,
    vjp=_larger_vjp,
    inplace="",
)
minimum = elementwise(
    "minimum",
    lambda x, y: x & y if _is_bool(x) else s.minimum(x, y),
    "The smaller of two; NaN wins; a tie shares the gradient.",
    ALL,
    vjp=_smaller_vjp,
    inplace="",
)
abs = elementwise("abs", lambda x: s.absolute(x), "Absolute value.", (*ARITHMETIC, *FLOAT8))
sign = elementwise(
    "sign",
    lambda x: x if _is_bool(x) else _sign(x),
    "-1, 0 or 1; of NaN 0, as in PyTorch.",
    ALL,
    vjp=lambda g, out, x: None,
    inplace_top=False,
    out="exact",
)
square = elementwise(
    "square",
    lambda x: x * x,
    "x * x.",
    ARITHMETIC,
    vjp=lambda g, out, x: g * (x * 2),
    listed=False,
    rounds=True,
)
sqrt = elementwise("sqrt", lambda x: s.sqrt(x), "Square root.", FIELD)
rsqrt = elementwise(
    "rsqrt",
    lambda x: 1 / s.sqrt(x),
    "1 / sqrt(x).",
    FIELD,
    vjp=lambda g, out, x: g * (out * out * out * -0.5),
    autocast={"gpu": "float32"},
)
reciprocal = elementwise(
    "reciprocal",
    lambda x: 1 / x,
    "1 / x.",
    FIELD,
    vjp=lambda g, out, x: -g * (out * out),
    autocast={"gpu": "float32"},
)


def _power_of(
    body: Callable[[Expr], Expr], slope: Callable[[Expr, Expr], Expr]
) -> Callable[..., Any]:
    """`pow` for one exponent, which is an operand all the same: a record shows it."""
    return elementwise(
        "pow",
        lambda x, y: body(x),
        "Power, x ** y.",
        ARITHMETIC,
        vjp=lambda g, out, x, y: (g * slope(out, x), None),
        listed=False,
        autocast={"gpu": "float32"},
    )


# Exponents with a kernel of their own, as in PyTorch: of floats, and those of integers that stay
# integers.
_POWERS: dict[float, Callable[..., Any]] = {
    2: _power_of(lambda x: x * x, lambda out, x: x * 2),
    3: _power_of(lambda x: x * x * x, lambda out, x: x * x * 3),
    -1: _power_of(lambda x: 1 / x, lambda out, x: -(out * out)),
    0.5: _power_of(lambda x: s.sqrt(x), lambda out, x: 0.5 / out),
    -0.5: _power_of(lambda x: 1 / s.sqrt(x), lambda out, x: out * out * out * -0.5),
}


def _short_powers(general: Callable[..., Any]) -> Callable[..., Any]:
    def pow(input: Any, exponent: Any, *rest: Any, out: Any = None) -> Any:
        if rest or out is not None:  # See Note [Call template] 5
            return call.stored(general, (input, exponent, *rest), out)
        if exponent.__class__ is int or exponent.__class__ is float:
            short = _POWERS.get(exponent)
            if short is not None and isinstance(input, Value):
                try:
                    kind = input._spec.dtype.kind
                except SparseOperandError:  # See Note [Sparse operands]
                    return general(input, exponent)
                if kind == "f" or (kind in "iu" and exponent.__class__ is int and exponent > 0):
                    return short(input, exponent)
        return general(input, exponent)

    return pow


pow = _short_powers(_any_pow)
pow.op, pow.takes_out = _any_pow.op, True  # type: ignore[attr-defined]
register("pow", pow, "Power, x ** y.", inplace="result", out="cast", operator="pow")
exp = elementwise("exp", lambda x: s.exp(x), "e ** x.", FIELD, autocast={"gpu": "float32"})
log = elementwise(
    "log", lambda x: s.log(x), "Natural logarithm.", FIELD, autocast={"gpu": "float32"}
)
log2 = elementwise(
    "log2",
    lambda x: s.log(x) * (1 / math.log(2)) if x.dtype.kind == "c" else elementary.log2(x),
    "Logarithm to base 2.",
    FIELD,
    vjp=lambda g, out, x: g / (x * math.log(2)),
    autocast={"gpu": "float32"},
)
sin = elementwise("sin", lambda x: s.sin(x), "Sine.", FIELD)
cos = elementwise("cos", lambda x: s.cos(x), "Cosine.", FIELD)
tanh = elementwise("tanh", lambda x: s.tanh(x), "Hyperbolic tangent.", FIELD)
erf = elementwise("erf", lambda x: s.erf(x), "Error function.", FLOAT, special="erf")
floor = elementwise(
    "floor", lambda x: s.floor(x) if x.dtype.kind == "f" else x, "Round down.", out="exact"
)
ceil = elementwise(
    "ceil", lambda x: s.ceil(x) if x.dtype.kind == "f" else x, "Round up.", out="exact"
)
trunc = elementwise(
    "trunc", lambda x: s.trunc(x) if x.dtype.kind == "f" else x, "Round towards zero.", out="exact"
)
round = elementwise(
    "round",
    lambda x: s.round_even(x) if x.dtype.kind == "f" else x,
    "Round to the nearest, halves to even.",
    listed=False,
    rounds=True,
)

eq = elementwise("eq", lambda x, y: x.eq(y), "x == y.", STORED, result=bool_, operator="eq")
ne = elementwise("ne", lambda x, y: x.ne(y), "x != y.", STORED, result=bool_, operator="ne")
# False is less than True; the instruction `lt` does not compare bools.
lt = elementwise(
    "lt", lambda x, y: ~x & y if _is_bool(x) else x < y, "x < y.", ALL, result=bool_, operator="lt"
)
le = elementwise(
    "le",
    lambda x, y: ~x | y if _is_bool(x) else x <= y,
    "x <= y.",
    ALL,
    result=bool_,
    operator="le",
)
gt = elementwise(
    "gt", lambda x, y: x & ~y if _is_bool(x) else x > y, "x > y.", ALL, result=bool_, operator="gt"
)
ge = elementwise(
    "ge",
    lambda x, y: x | ~y if _is_bool(x) else x >= y,
    "x >= y.",
    ALL,
    result=bool_,
    operator="ge",
)


def _truth(x: Expr) -> Expr:
    return s.cast(x, bool_)


logical_and = elementwise(
    "logical_and", lambda x, y: _truth(x) & _truth(y), "Both true.", ANY, result=bool_
)
logical_or = elementwise(
    "logical_or", lambda x, y: _truth(x) | _truth(y), "Either true.", ANY, result=bool_
)
logical_xor = elementwise(
    "logical_xor", lambda x, y: _truth(x) ^ _truth(y), "One of two true.", ANY, result=bool_
)
logical_not = elementwise(
    "logical_not", lambda x: ~_truth(x), "Not true.", ANY, result=bool_, inplace_top=False
)
bitwise_and = elementwise(
    "bitwise_and", lambda x, y: x & y, "Bitwise and.", (bool_, *INTEGER), operator="and"
)
bitwise_or = elementwise(
    "bitwise_or", lambda x, y: x | y, "Bitwise or.", (bool_, *INTEGER), operator="or"
)
bitwise_xor = elementwise(
    "bitwise_xor", lambda x, y: x ^ y, "Bitwise exclusive or.", (bool_, *INTEGER), operator="xor"
)
bitwise_not = elementwise(
    "bitwise_not", lambda x: ~x, "Bitwise not.", (bool_, *INTEGER), inplace_top=False, out="exact"
)


def _either_part(test: Callable[[Expr], Expr], x: Expr) -> Expr:
    return test(s.real(x)) | test(s.imag(x)) if x.dtype.kind == "c" else test(x)


def _is_inf(x: Expr) -> Expr:
    return s.absolute(x).eq(math.inf) if x.dtype.kind == "f" else const(False, bool_)


def _is_finite(x: Expr) -> Expr:
    return s.absolute(x) < math.inf if x.dtype.kind == "f" else const(True, bool_)


isnan = elementwise(
    "isnan",
    lambda x: s.isnan(x) if x.dtype.kind in "fc" else const(False, bool_),
    "Is not a number.",
    STORED,
    result=bool_,
    inplace="",
)
isinf = elementwise(
    "isinf", lambda x: _either_part(_is_inf, x), "Is infinite.", STORED, result=bool_, inplace=""
)
isfinite = elementwise(
    "isfinite",
    lambda x: ~_either_part(lambda p: ~_is_finite(p), x),
    "Is neither infinite nor NaN.",
    STORED,
    result=bool_,
    inplace="",
)

select = elementwise(
    "where",
    lambda c, x, y: s.where(s.cast(c, bool_), x, y),
    "x where the condition holds, else y.",
    STORED,
    conditions=(0,),
    listed=False,
    rounds=True,
    operand_names=("condition", "self", "other"),
)
relu = elementwise(
    "relu",
    lambda x: s.maximum(x, 0),
    "max(x, 0).",
    vjp=lambda g, out, x: s.where(out <= 0, const(0, g.dtype), g),  # a NaN passes
)


def _sigmoid(x: Expr) -> Expr:
    if x.dtype.kind == "c":
        return 1 / (1 + s.exp(-x))
    # By -|x|, so that nothing overflows and small results keep their digits.
    below = x < 0
    small = s.exp(s.where(below, x, -x))
    total = small + 1
    result = s.where(below, small, const(1, x.dtype)) / total
    # The rounding error of the sum; 1 / (1 + small) is about 1 - small / 2.
    return s.fma(result * ((total - 1) - small), s.fma(small, -0.5, 1), result)


sigmoid = elementwise(
    "sigmoid",
    _sigmoid,
    "Logistic function, 1 / (1 + exp(-x)).",
    FIELD,
    vjp=lambda g, out, x: g * out * (1 - out),
    special="expit",
)


def _gate(x: Expr) -> Expr:
    """The sigmoid by the exponential of -|x|: an overflow would make the next derivative NaN."""
    below = x < 0
    small = s.exp(s.where(below, x, -x))
    return s.where(below, small, const(1, x.dtype)) / (small + 1)


def _silu_vjp(g: Expr, out: Expr, x: Expr) -> Expr:
    gate = 1 / (1 + s.exp(-x)) if x.dtype.kind == "c" else _gate(x)
    return g * gate * (1 + x * (1 - gate))


silu = elementwise(
    "silu",
    lambda x: x / (1 + s.exp(-x)),
    "x * sigmoid(x).",
    FIELD,
    vjp=_silu_vjp,
    method=False,
    top=False,
)
gelu_exact = elementwise(
    "gelu_exact",
    lambda x: x * 0.5 * (1 + s.erf(x * math.sqrt(0.5))),
    "x times the normal distribution function of x.",
    FLOAT,
    method=False,
    top=False,
)
gelu_tanh = elementwise(
    "gelu_tanh",
    lambda x: x * 0.5 * (1 + s.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))),
    "The tanh approximation of gelu.",
    FLOAT,
    method=False,
    top=False,
)
softsign = elementwise(
    "softsign",
    lambda x: x / s.cast(1 + s.absolute(x), x.dtype),
    "x / (1 + |x|).",
    FIELD,
    method=False,
    top=False,
)
clone = elementwise(
    "clone", lambda x: x, "A contiguous copy.", STORED, inplace="", out="", layout="packed"
)
_MIDDLE = 1 << 63


def _to_unsigned(dtype: DType) -> Callable[[Expr], Expr]:
    """Floats to a wide unsigned dtype through int64, so that negative ones wrap on every device."""

    def body(x: Expr) -> Expr:
        if x.dtype.kind != "f":
            return x
        whole = s.cast(s.cast(x, int64), dtype)
        if dtype is not uint64:
            return whole
        upper = s.cast(s.cast(x - float(_MIDDLE), int64), dtype) ^ _MIDDLE
        return s.where(x < float(_MIDDLE), whole, upper)

    return body


_CAST_BODIES = {dtype: _to_unsigned(dtype) for dtype in (uint32, uint64)}
_CASTS = {
    dtype: elementwise(
        f"to_{dtype.name}",
        _CAST_BODIES.get(dtype, lambda x: x),
        f"Cast to {dtype.name}.",
        STORED,
        result=dtype,
        layout="kept",
        method=False,
        top=False,
    )
    for dtype in STORED
}


def cast(x: Value, dtype: DType) -> Value:
    """`x` in another dtype; the same value when it has that dtype already."""
    if x._spec.dtype is dtype:
        return x
    try:
        kernel = _CASTS[dtype]
    except (KeyError, TypeError):
        raise KindError(
            f"a cast of {x._spec!r}: dtype is a type like rushlight.float32, got {dtype!r}"
        ) from None
    return kernel(x)


second_name("absolute", abs, inplace_top=False)
second_name("fix", trunc, out="cast")
second_name("greater", gt)
second_name("greater_equal", ge)
second_name("less", lt)
second_name("less_equal", le)
second_name("multiply", mul)
second_name("negative", neg)
second_name("not_equal", ne)
