"""Complex numbers: construction, conjugates, absolute values and angles."""

from __future__ import annotations

import math

from rushlight.core.dtypes import ANY, COMPLEX, FLOAT, bool_, float32, float64
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.ops.family.declare import elementwise
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts, views
from rushlight.scalar import build as s, inverse
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record.value import Value

_complex = elementwise(
    "complex",
    s.paired,
    "real + i imag.",
    (float32, float64),
    listed=False,
    operand_names=("real", "imag"),
)
_polar = elementwise(
    "polar",
    lambda size, angle: s.paired(size * s.cos(angle), size * s.sin(angle)),
    "",
    (float32, float64),
    listed=False,
    operand_names=("abs", "angle"),
)
_conj = elementwise("conj", lambda x: s.conj(x), "Complex conjugate.", COMPLEX, listed=False)


def _check_parts(op: str, first: Value, second: Value) -> None:
    for v in (first, second):
        if v._spec.dtype not in (float32, float64):
            raise DTypeError(
                f"{op}: takes float32 or float64, got {v._spec!r}; cast with .float() or .double()"
            )
    if first._spec.dtype is not second._spec.dtype:
        raise DTypeError(f"{op}: both must have one type, got {first._spec!r} and {second._spec!r}")


@composite("complex", method=False, out="exact")
def complex(real: Value, imag: Value) -> Value:
    """Complex numbers with these real and imaginary parts."""
    _check_parts("complex", real, imag)
    return _complex(real, imag)


@composite("polar", method=False, out="exact", autocast={"cpu": "float32"})
def polar(abs: Value, angle: Value) -> Value:
    """Complex numbers with these absolute values and angles.

    Example:
        >>> torch.polar(torch.tensor([2.0]), torch.tensor([0.0]))
        tensor([2.+0.j])
    """
    _check_parts("polar", abs, angle)
    return _polar(abs, angle)


@composite("real", method=False)
def real(input: Value) -> Value:
    """The real parts, a view; a real tensor itself."""
    return complex_parts.real_part(input)


@composite("imag", method=False)
def imag(input: Value) -> Value:
    """The imaginary parts of a complex tensor, a view."""
    return complex_parts.imag_part(input)


def conjugate(x: Value) -> Value:
    return _conj(x) if x._spec.dtype.kind == "c" else x


@composite("conj")
def conj(input: Value) -> Value:
    """Complex conjugates, in new memory; a real tensor itself."""
    return conjugate(input)


@composite("conj_physical", inplace="result", inplace_top=True, out="exact")
def conj_physical(input: Value) -> Value:
    """Complex conjugates; of a real tensor a copy."""
    return _conj(input) if input._spec.dtype.kind == "c" else e.clone(input)


def _itself(x: Value) -> Value:
    _ = x._spec  # which nothing but a tensor has
    return x


@composite("resolve_conj")
def resolve_conj(input: Value) -> Value:
    """The tensor itself: conjugates are never lazy here."""
    return _itself(input)


@composite("resolve_neg")
def resolve_neg(input: Value) -> Value:
    """The tensor itself: negatives are never lazy here."""
    return _itself(input)


@composite("adjoint")
def adjoint(input: Value) -> Value:
    """The last two dimensions exchanged, and the conjugate where complex."""
    if len(input._spec.shape) < 2:
        raise ShapeError(f"adjoint: at least 2 dimensions are needed, got {input._spec!r}")
    return conjugate(views.transpose(input, -1, -2))


def _angle(x: Expr) -> Expr:
    if x.dtype.kind == "c":
        return inverse.atan2(s.imag(x), s.real(x))
    turned = s.where(x < 0, const(math.pi, x.dtype), const(0, x.dtype))
    return s.where(s.isnan(x), x, turned)


def _angle_vjp(g: Expr, out: Expr, x: Expr) -> Expr | None:
    if x.dtype.kind != "c":
        return None
    re, im = s.real(x), s.imag(x)
    zero = re.eq(0) & im.eq(0)
    square = s.where(zero, const(1, re.dtype), re * re + im * im)
    return s.paired(-(g * im) / square, g * re / square)


angle = elementwise(
    "angle",
    _angle,
    "The angle of a complex number, from -pi to pi; of a negative number pi, of other real ones 0.",
    FLOAT + COMPLEX,
    vjp=_angle_vjp,
    inplace="",
)


def _sgn(x: Expr) -> Expr:
    if x.dtype is bool_:
        return x
    if x.dtype.kind == "c":
        size = s.absolute(x)
        return x / s.cast(s.where(size.eq(0), const(1, size.dtype), size), x.dtype)
    return s.where(x > 0, const(1, x.dtype), s.where(x < 0, const(-1, x.dtype), const(0, x.dtype)))


sgn = elementwise(
    "sgn",
    _sgn,
    "-1, 0 or 1; of a complex number the one of size 1 at its angle, or 0.",
    ANY,
    inplace_top=False,
    out="exact",
)
isreal = elementwise(
    "isreal",
    lambda x: s.imag(x).eq(0) if x.dtype.kind == "c" else const(True, bool_),
    "Whether there is no imaginary part.",
    ANY,
    result=bool_,
    inplace="",
)
