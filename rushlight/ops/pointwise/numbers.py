"""Elementwise signs, special values, combinations of tensors, shifts and divisors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import (
    ALL,
    ARITHMETIC,
    FIELD,
    FLOAT,
    INTEGER,
    DType,
    bfloat16,
    bool_,
    complex128,
    float16,
    float32,
    float64,
    get_default,
    promote,
    result_type,
)
from rushlight.core.errors import DTypeError, RushlightError, UnsupportedDType
from rushlight.ops.create import creation
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.older import rearranged
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import clamp, no_gradient, scaled
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts
from rushlight.scalar import build as s
from rushlight.scalar.elementary_formats import bits, flip, sign_bit
from rushlight.scalar.hyperbolic import negative
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value


def _zero(like: Expr) -> Expr:
    return const(0, like.dtype)


# ---- signs and special values ----


def _copysign_vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, None]:
    turned = s.where(negative(x) ^ negative(y), -g, g)
    return s.where(x.eq(0), _zero(g), turned), None


copysign = elementwise(
    "copysign",
    lambda x, y: flip(s.absolute(x), sign_bit(y)),
    "The size of x with the sign of y.",
    FLOAT,
    vjp=_copysign_vjp,
)


def _signbit(x: Expr) -> Expr:
    if x.dtype is bool_:
        return const(False, bool_)
    return negative(x) if x.dtype.kind == "f" else x < 0


signbit = elementwise(
    "signbit",
    _signbit,
    "Whether the sign bit is set, as in -0.0.",
    ALL,
    result=bool_,
    inplace="",
    out="exact",
)


def _equals(x: Expr, value: float) -> Expr:
    return x.eq(value) if x.dtype.kind == "f" else const(False, bool_)


isposinf = elementwise(
    "isposinf",
    lambda x: _equals(x, math.inf),
    "Is plus infinity.",
    ALL,
    result=bool_,
    inplace="",
    out="exact",
)
isneginf = elementwise(
    "isneginf",
    lambda x: _equals(x, -math.inf),
    "Is minus infinity.",
    ALL,
    result=bool_,
    inplace="",
    out="exact",
)


_heaviside = elementwise(
    "heaviside",
    lambda x, values: (
        x | values if x.dtype is bool_ else s.where(x.eq(0), values, s.cast(x > 0, x.dtype))
    ),
    "0 below 0, 1 above, and the second operand at 0.",
    ALL,
    vjp=lambda g, out, x, values: (None, s.where(x.eq(0), g, _zero(g))),
    listed=False,
)


@composite("heaviside", inplace="result", out="exact")
def heaviside(input: Value, values: Value) -> Value:
    """0 where the input is negative, 1 where it is positive, `values` where it is 0."""
    same_types("heaviside", input, values)
    return _heaviside(input, values)


def same_types(op: str, *operands: Any) -> None:
    """Refuse operands that PyTorch does not promote."""
    found = {v._spec.dtype.name for v in operands if isinstance(v, Value)}
    if len(found) > 1:
        raise DTypeError(
            f"{op}: operands must have one type, got {' and '.join(sorted(found))}; cast with "
            ".to(dtype)"
        )


_finite = elementwise(
    "nan_to_num",
    lambda x, nan, high, low: s.where(
        s.isnan(x), nan, s.where(x.eq(math.inf), high, s.where(x.eq(-math.inf), low, x))
    ),
    "x with NaN and infinities replaced.",
    FLOAT,
    listed=False,
)
_LARGEST: dict[DType, float] = {
    float16: 65504.0,
    float32: (2 - 2.0**-23) * 2.0**127,
    float64: math.ldexp(2 - 2.0**-52, 1023),
}
_LARGEST_BFLOAT16 = (2 - 2.0**-7) * 2.0**127


@composite("nan_to_num", inplace="result", inplace_top=True, out="exact", pure=True)
def nan_to_num(
    input: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """x with NaN replaced by `nan` (0), infinities by `posinf` and `neginf` (the dtype's limits).

    Example:
        >>> torch.nan_to_num(torch.tensor([torch.nan, torch.inf]), posinf=1.0)
        tensor([0., 1.])
    """
    if input._spec.dtype.kind == "c":
        return complex_parts.joined(nan_to_num(complex_parts.split(input), nan, posinf, neginf))
    if input._spec.dtype.kind != "f":
        return e.clone(input)
    most = _LARGEST.get(input._spec.dtype, _LARGEST_BFLOAT16)
    return _finite(
        input,
        0.0 if nan is None else float(nan),
        most if posinf is None else float(posinf),
        -most if neginf is None else float(neginf),
    )


@composite("isclose")
def isclose(
    input: Value, other: Value, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Value:
    """|input - other| <= atol + rtol * |other|, elementwise; infinities are close to
    themselves.
    """
    same_types("isclose", input, other)
    if rtol < 0 or atol < 0:
        raise RushlightError(f"isclose: rtol and atol must not be negative, got {rtol} and {atol}")
    close = e.eq(input, other)
    if equal_nan and input._spec.differentiable:
        close = e.logical_or(close, e.logical_and(e.isnan(input), e.isnan(other)))
    if (rtol == 0 and atol == 0) or input._spec.dtype is bool_:
        return close
    if not other._spec.differentiable:  # a difference of integers could wrap
        other = e.cast(other, get_default())
    allowed = e.add(e.abs(e.mul(other, rtol)), atol)
    away = e.abs(e.sub(input, other))
    return e.logical_or(close, e.logical_and(e.isfinite(away), e.le(away, allowed)))


def _frac(x: Expr) -> Expr:
    return x - s.trunc(x)


def _larger(x: Expr, y: Expr) -> Expr:
    return s.isnan(y) | (x >= y)


def _smaller(x: Expr, y: Expr) -> Expr:
    return s.isnan(y) | (x <= y)


def _ignoring_nan(
    name: str, wins: Callable[[Expr, Expr], Expr], common: Callable[..., Any], doc: str
) -> Any:
    """fmax and fmin: NaN is ignored; all of the gradient of a tie goes to the first."""

    def body(x: Expr, y: Expr) -> Expr:
        if x.dtype is bool_:
            return common.op.body(x, y)  # type: ignore[attr-defined]
        return s.where(wins(x, y), x, y) if x.dtype.kind == ("f") else common.op.body(x, y)  # type: ignore[attr-defined]

    def vjp(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
        first = wins(x, y)
        return s.where(first, g, _zero(g)), s.where(first, _zero(g), g)

    return elementwise(name, body, doc, ALL, vjp=vjp, inplace="")


fmax = _ignoring_nan("fmax", _larger, e.maximum, "The larger of two, a number rather than NaN.")
fmin = _ignoring_nan("fmin", _smaller, e.minimum, "The smaller of two, a number rather than NaN.")
frac = elementwise("frac", _frac, "x - trunc(x).", FLOAT, vjp=lambda g, out, x: g, out="exact")


def _next_by(step: int, smallest: int) -> Callable[[Expr, Expr], Expr]:
    """The next number in a format whose numbers are `step` apart in the compute type's bits.

    The first after 0 has the bits `smallest`. Floats of one sign are ordered as their bits are.
    """

    def body(x: Expr, y: Expr) -> Expr:
        word = bits(x)
        away = (y > x) ^ (x < 0)
        stepped = s.bits_to(s.where(away, word + step, word - step), x.dtype)
        first = s.bits_to(sign_bit(y) | smallest, x.dtype)
        moved = s.where(x.eq(0), first, stepped)
        return s.where(s.isnan(x) | s.isnan(y), x + y, s.where(x.eq(y), y, moved))

    return body


# float16: the smallest normal number, the steps below it, the largest number.
_HALF = (
    2.0**-14,
    2.0**-24,
    65504.0,
)


def _next_half(x: Expr, y: Expr) -> Expr:
    """In float32, where float16's subnormal numbers are normal and its infinity is finite."""
    normal, step, largest = _HALF
    size = s.absolute(x)
    up = y > x
    away = up ^ (x < 0)
    fine = (size < normal) | (size.eq(normal) & ~away)
    by_step = s.where(up, x + step, x - step)
    inward = s.where(x > 0, const(largest, x.dtype), const(-largest, x.dtype))
    moved = s.where(fine, by_step, s.where(size.eq(math.inf), inward, _next_by(1 << 13, 1)(x, y)))
    return s.where(s.isnan(x) | s.isnan(y), x + y, s.where(x.eq(y), y, moved))


def _nexts(body: Callable[[Expr, Expr], Expr], *accepts: DType) -> Callable[..., Any]:
    return elementwise(
        "nextafter",
        body,
        "The next number after x towards y; its gradient is that of x, where they differ.",
        accepts,
        vjp=lambda g, out, x, y: (s.where(x.eq(y), const(0, g.dtype), g), None),
        listed=False,
    )


_next_wide = _nexts(_next_by(1, 1), float32, float64)
_NEXT_NARROW = {
    float16: _nexts(_next_half, float16),
    bfloat16: _nexts(_next_by(1 << 16, 1 << 16), bfloat16),
}


@composite("nextafter", inplace="result", out="cast")
def nextafter(input: Value, other: Value) -> Value:
    """The next number after input towards other.

    Its gradient is that of input, where they differ.
    """
    kind = result_type((x._spec.dtype, len(x._spec.shape)) for x in (input, other))
    found: Value = _NEXT_NARROW.get(kind, _next_wide)(input, other)
    return found


# ---- combinations ----


def _between(start: Expr, end: Expr, weight: Expr) -> Expr:
    # From the nearer end, so that weight 1 gives the end exactly.
    away = end - start
    return s.where(s.absolute(weight) < 0.5, start + weight * away, end - away * (1 - weight))


_lerp = elementwise(
    "lerp",
    _between,
    "start + weight * (end - start).",
    FIELD,
    vjp=lambda g, out, start, end, weight: (g * (1 - weight), g * weight, g * (end - start)),
    listed=False,
    operand_names=("self", "end", "weight"),
)


@composite("lerp", inplace="result", out="cast")
def lerp(input: Value, end: Value, weight: Any) -> Value:
    """input + weight * (end - input).

    Args:
        end: The other end, where the weight is 1.
        weight: The share of `end`, a number or a tensor.

    Example:
        >>> torch.lerp(torch.tensor([0.0, 10.0]), torch.tensor([1.0, 20.0]), 0.5)
        tensor([ 0.5000, 15.0000])
    """
    same_types("lerp", input, end, weight)
    if isinstance(weight, complex):
        _factor("lerp", weight, input, end)
    return _lerp(input, end, weight)


def _factor(op: str, factor: Any, *operands: Any) -> Any:
    """A factor in the operands' type, for it does not change the result's; else refused."""
    if isinstance(factor, Value):
        no_gradient(op, "value", factor)
        return factor
    found = [v._spec.dtype for v in operands if isinstance(v, Value)]
    kinds = {dtype.kind for dtype in found}
    kinds.update("f" for v in operands if isinstance(v, float))
    if isinstance(factor, complex) and "c" not in kinds:
        raise RushlightError(f"{op}: {factor} is complex, and the operands are not; cast one")
    if kinds & {"f", "c"}:
        return factor
    dtype = functools.reduce(promote, found)
    if dtype is bool_:
        raise UnsupportedDType(f"{op}: bool is not supported; cast to an integer or a float")
    creation.check_holds(op, factor, factor, dtype)
    return int(factor)


_addcmul = elementwise(
    "addcmul",
    lambda x, y, z, value: x + value * (y * z),
    "x + value * y * z.",
    ARITHMETIC,
    listed=False,
    operand_names=("self", "tensor1", "tensor2", "value"),
)
_addcdiv = elementwise(
    "addcdiv",
    lambda x, y, z, value: x + value * (y / z),
    "x + value * y / z.",
    FIELD,
    listed=False,
    operand_names=("self", "tensor1", "tensor2", "value"),
)


@composite("addcmul", inplace="result", out="cast", autocast={"gpu": "widest"})
def addcmul(input: Value, tensor1: Value, tensor2: Value, *older: Any, value: Any = 1) -> Value:
    """input + value * tensor1 * tensor2.

    Example:
        >>> a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
        >>> torch.addcmul(torch.ones(2), a, b, value=10)
        tensor([31., 81.])
    """
    if older:
        tensors, factors = rearranged("addcmul", (input, tensor1, tensor2, *older), 3, ("value",))
        return addcmul(*tensors, **factors)
    value = _factor("addcmul", value, input, tensor1, tensor2)
    return _addcmul(input, tensor1, tensor2, value)


@composite("addcdiv", inplace="result", out="cast", autocast={"gpu": "widest"})
def addcdiv(input: Value, tensor1: Value, tensor2: Value, *older: Any, value: Any = 1) -> Value:
    """input + value * tensor1 / tensor2; of floats only."""
    if older:
        tensors, factors = rearranged("addcdiv", (input, tensor1, tensor2, *older), 3, ("value",))
        return addcdiv(*tensors, **factors)
    value = _factor("addcdiv", value, input, tensor1, tensor2)
    if not any(v._spec.differentiable for v in (tensor1, tensor2)):
        raise DTypeError(
            "addcdiv: integers are not divided; use input + value * trunc(tensor1 / tensor2), or "
            "cast"
        )
    return _addcdiv(input, tensor1, tensor2, value)


@composite("rsub", method=False)
def rsub(input: Value, other: Any, *, alpha: float = 1) -> Value:
    """other - alpha * input."""
    return e.sub(other, scaled("rsub", other, input, alpha))


@composite("ldexp", inplace="result", inplace_top=True, out="cast")
def ldexp(input: Value, other: Any) -> Value:
    """input * 2 ** other."""
    if not isinstance(other, Value):
        return e.mul(input, 2.0**other)
    kind = (
        promote(input._spec.dtype, other._spec.dtype)
        if isinstance(input, Value)
        else other._spec.dtype
    )
    return e.mul(input, e.pow(2.0, e.cast(other, kind) if kind.kind in "fc" else other))


@composite("float_power", inplace="result", out="exact")
def float_power(input: Value | complex, exponent: Value | complex) -> Value:
    """input ** exponent in float64, or complex128 where either is complex."""
    both = (input, exponent)
    has_complex = any(
        v._spec.dtype.kind == "c" if isinstance(v, Value) else isinstance(v, complex) for v in both
    )
    number: type[Any] = complex if has_complex else float
    dtype = complex128 if has_complex else float64
    wide = [e.cast(v, dtype) if isinstance(v, Value) else number(v) for v in both]
    return e.pow(*wide)


@composite("clamp_min", inplace="result", inplace_top=True, out="bounds")
def clamp_min(input: Value, min: Any) -> Value:
    """x clamped from below.

    Example:
        >>> torch.clamp_min(torch.tensor([-1.0, 2.0]), 0.0)
        tensor([0., 2.])
    """
    return clamp(input, min=min)


@composite("clamp_max", inplace="result", inplace_top=True, out="bounds")
def clamp_max(input: Value, max: Any) -> Value:
    """x clamped from above."""
    return clamp(input, max=max)


@composite("positive")
def positive(input: Value) -> Value:
    """The tensor itself, which must hold numbers."""
    if input._spec.dtype is bool_:
        raise DTypeError("positive: does not take bool; cast with .to(dtype)")
    return input


# ---- integers ----


def _outside(x: Expr, count: Expr) -> Expr:
    return (count < 0) | (count >= 8 * x.dtype.itemsize)


def _sign_bits(x: Expr) -> Expr:
    return _zero(x) if x.dtype.kind == "u" else x >> (8 * x.dtype.itemsize - 1)


bitwise_left_shift = elementwise(
    "bitwise_left_shift",
    lambda x, count: s.where(_outside(x, count), _zero(x), x << count),
    "x shifted to the left by some bits.",
    INTEGER,
    operator="lshift",
)
bitwise_right_shift = elementwise(
    "bitwise_right_shift",
    lambda x, count: s.where(_outside(x, count), _sign_bits(x), x >> count),
    "x shifted to the right by some bits, keeping its sign.",
    INTEGER,
    operator="rshift",
)


def _gcd(x: Expr, y: Expr) -> Expr:
    """Euclid's steps, as many as two Fibonacci numbers of the width need."""
    x, y = s.absolute(x), s.absolute(y)
    for _ in range(91 if x.dtype.itemsize == 8 else 46):
        x, y = s.where(y.eq(0), x, y), s.remainder_c(x, y)  # by zero it gives 0
    return s.absolute(x)


def _lcm(x: Expr, y: Expr) -> Expr:
    return s.absolute(x / _gcd(x, y) * y)


gcd = elementwise("gcd", _gcd, "Greatest common divisor.", INTEGER, inplace_top=True)
lcm = elementwise("lcm", _lcm, "Least common multiple.", INTEGER, inplace_top=True)
