"""Float8 numbers as formulas of their codes, the 8 bits in memory, as int32.

Both directions are integer arithmetic, so every emitter has them. They are PyTorch's conversions
from and to float32: to the nearest, ties to even; what is too large becomes the code that
`Format.past` names.
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight.core.dtypes import DType, float32, int32
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const

_SIGN = 0x80
_INFINITY = 0x7F800000  # of float32, as are the next two
_NAN = 0x7FC00000
_LEAST_POWER = 0x00400000  # 2 ** -127, which is not normal


class Format(NamedTuple):
    """A sign, an exponent and a fraction in 8 bits. Codes are without the sign."""

    fraction: int  # bits of the fraction
    bias: int  # of the exponent
    largest: int  # the code of the largest finite number
    past: int  # the code of what is larger
    nan: int  # where it is the sign alone, there is no -0
    infinity: int | None = None


FORMATS = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7E, 0x7F),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, _SIGN, _SIGN),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7F, 0x7C),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, _SIGN, _SIGN),
}


def decoded(code: Expr, dtype: DType) -> Expr:
    """The float32 of a code, an int32 from 0 to 255."""
    if dtype.name not in FORMATS:
        return _decoded_power(code)
    form = FORMATS[dtype.name]
    size, sign = code & (_SIGN - 1), (code & _SIGN) << 24
    normal = (size << (23 - form.fraction)) + ((127 - form.bias) << 23)
    small = s.bits_to(s.cast(size, float32) * 2.0 ** (1 - form.bias - form.fraction), int32)
    bits = s.where(size < (1 << form.fraction), small, normal)
    if form.infinity is not None:
        bits = s.where(size.eq(form.infinity), _INFINITY, bits)
    if form.nan == _SIGN:
        return s.bits_to(s.where(code.eq(_SIGN), _NAN, bits | sign), float32)
    last = form.largest if form.infinity is None else form.infinity  # what follows are NaNs
    return s.bits_to(s.where(size > last, _NAN, bits) | sign, float32)


def encoded(x: Expr, dtype: DType) -> Expr:
    """The code of a float32, an int32 from 0 to 255."""
    if dtype.name not in FORMATS:
        return _encoded_power(x)
    form = FORMATS[dtype.name]
    bits = s.bits_to(x, int32)
    size, sign = bits & 0x7FFFFFFF, (bits >> 24) & _SIGN
    dropped = 23 - form.fraction
    # Adding just less than half of the last place, and the place itself, makes the carry.
    carried = size + ((1 << (dropped - 1)) - 1) + ((size >> dropped) & 1)
    normal = (carried >> dropped) - ((127 - form.bias) << form.fraction)
    # Below the normal numbers the codes are multiples of one number: the last place of `offset`.
    offset = const(2.0 ** (24 - form.bias - form.fraction), float32)
    small = s.bits_to(s.bits_to(size, float32) + offset, int32) - (
        (127 + 24 - form.bias - form.fraction) << 23
    )
    code = s.where(size < ((128 - form.bias) << 23), small, normal)
    code = s.where(code > form.largest, form.past, code)
    code = s.where(size > _INFINITY, form.nan, code)
    if form.nan == _SIGN:
        return s.where(code.eq(0) | code.eq(_SIGN), code, code | sign)
    return code | sign


# float8_e8m0fnu has powers of two only: the exponent of a float32, without sign or zero.


def _decoded_power(code: Expr) -> Expr:
    bits = s.where(code.eq(0), _LEAST_POWER, code << 23)
    return s.bits_to(s.where(code.eq(0xFF), _NAN, bits), float32)


def _encoded_power(x: Expr) -> Expr:
    size = s.bits_to(x, int32) & 0x7FFFFFFF
    # Half-way numbers go up, but for the least power itself.
    half = s.where(size < (1 << 23), const(_LEAST_POWER - 1, int32), _LEAST_POWER)
    return s.where(size < _INFINITY, (size + half) >> 23, const(0xFF, int32))
