"""Angles modulo a quarter turn.

# Note [Reduction by quarter turns]
1. Below `narrow_end` the multiple of pi/2 is subtracted in parts. In float32 the multiple is at
   most 5, three bits, so that its products with the leading parts are exact even where fma rounds
   twice; float64 needs a true fma.
2. Beyond, the bits of 2/pi that matter for the exponent of x are shifted out of a long constant and
   multiplied by the mantissa as integers, modulo four quarter turns. The remainder is accurate to
   the last place for every finite x.
3. Both are computed and one is selected, since a vector has no branches. float32 uses 32-bit words
   only. An emitter may skip the second where all of a vector's angles are small (`skippable`).
"""

from __future__ import annotations

from rushlight.core.dtypes import DType, float32, float64, int32, int64, uint32
from rushlight.scalar import build as s
from rushlight.scalar.elementary_formats import SINGLE, bits, flip, format_of
from rushlight.scalar.ir import Expr, const
from rushlight.scalar.named import skippable

# 2/pi after twenty-two zero bits, in words of 32; after forty-four, in words of 64.
_SHORT = (0x0000028B, 0xE60DB939, 0x1054A7F0, 0x9D5F47D4, 0xD377036D, 0x8A5664F1, 0x0E4107F9)
_LONG = (
    0x00000000000A2F98,
    0x36E4E441529FC275,
    0x7D1F534DDC0DB629,
    0x5993C439041FE516,
    0x3ABDEBBC561B7246,
    0xE3A424DD2E006492,
    0xEEA09D1921CFE1DE,
    0xB1CB129A73EE8823,
    0x5F52EBB4484E99C7,
    0x026B45F7E413991D,
    0x639835339F49C845,
    0xF8BBDF9283B1FF89,
    0x7FFDE05980FEF2F1,
    0x18B5A0A6D1F6D367,
    0xECF27CB09B74F463,
    0xF669E5FEA2D7527B,
    0xAC7EBE5F17B3D073,
    0x9F78A5292EA6BFB5,
    0xFB11F8D5D0856033,
)
_SHORT_QUARTER = (1.462918119976564e-09, -4.070940267922164e-17)  # pi/2 * 2^-30
_LONG_QUARTER = (3.4061215800865545e-19, 1.3277647201629795e-35)  # pi/2 * 2^-62
_WORD = 0xFFFFFFFF


def reduce_quarters(size: Expr) -> tuple[Expr, Expr, Expr]:
    """(quarter, r, low) with size = quarter * pi/2 + r + low.

    r is rounded, low is its rounding error. size >= 0. Only the quarter's two low bits matter
    (int32).
    """
    kind = format_of(size)
    narrow = _narrow(size)
    near = size < kind.narrow_end
    wide = skippable(near, _wide_single if kind is SINGLE else _wide_double, size)
    quarter, r, low = (s.where(near, x, y) for x, y in zip(narrow, wide, strict=True))
    return quarter, r, low


def _narrow(size: Expr) -> tuple[Expr, Expr, Expr]:
    kind = format_of(size)
    n = s.round_even(size * kind.two_over_pi)
    exact = s.fma(n, -kind.half_pi[0], size)
    middle = s.fma(n, -kind.half_pi[1], exact)
    r = s.fma(n, -kind.half_pi[2], middle)
    # The rounding error: of the second product and of its difference.
    product = n * kind.half_pi[1]
    rest = exact - product
    taken = rest - exact
    lost = (exact - (rest - taken)) - (product + taken) - s.fma(n, kind.half_pi[1], -product)
    low = (rest - r) + s.fma(n, -kind.half_pi[2], lost)
    return s.cast(n, int32), r, low


def _window(words: tuple[int, ...], start: Expr, dtype: DType) -> list[Expr]:
    """Three words of a long constant from bit `start` on."""
    width = 8 * dtype.itemsize
    found: list[Expr] = [const(_signed(w, dtype), dtype) for w in words]
    number = start >> (width.bit_length() - 1)
    step = 1 << ((len(words) - 4).bit_length() - 1)
    while step:
        skip = (number & step).ne(0)
        found = [s.where(skip, found[i + step], found[i]) for i in range(len(found) - step)]
        step >>= 1
    left = start & (width - 1)
    # One place fewer than width - left, and one before: a shift by the whole width is a shift by 0.
    right = (width - 1) - left
    return [(found[i] << left) | (_halve(found[i + 1]) >> right) for i in range(3)]


def _signed(word: int, dtype: DType) -> int:
    return word - (1 << 64) if dtype is int64 and word >> 63 else word


def _halve(word: Expr) -> Expr:
    """Logical shift right by one."""
    return (word >> 1) & ((1 << 63) - 1) if word.dtype is int64 else word >> 1


def _wide_single(size: Expr) -> tuple[Expr, Expr, Expr]:
    """For size >= 2^3."""
    raw = s.bits_to(size, uint32)
    mantissa = (raw & 0x7FFFFF) | 0x800000
    high, middle, low = _window(_SHORT, (raw >> 23) - 130, uint32)
    carry_in = s.mulhi(mantissa, low)
    fraction = mantissa * middle + carry_in
    carry = s.cast(fraction < carry_in, uint32)
    turns = mantissa * high + s.mulhi(mantissa, middle) + carry
    # Two integer bits, 62 of fraction. To the nearest quarter, so the remainder is signed.
    quarter = (turns + 0x20000000) >> 30
    rest = s.cast(turns - (quarter << 30), int32)
    negative = rest >> 31
    whole, part = rest ^ negative, fraction ^ s.cast(negative, uint32)
    # The upper bits alone are exact in float32; the product with pi/2 is the sum over the parts.
    upper = s.cast(whole & -256, float32)
    lower = s.fma(s.cast(s.cast(part >> 1, int32), float32), 2.0**-31, s.cast(whole & 255, float32))
    small = s.fma(upper, _SHORT_QUARTER[1], lower * _SHORT_QUARTER[0])
    r = s.fma(upper, _SHORT_QUARTER[0], small)
    low = s.fma(upper, _SHORT_QUARTER[0], -r) + small
    sign = negative & (-1 << 31)
    return s.cast(quarter, int32), flip(r, sign), flip(low, sign)


def _wide_double(size: Expr) -> tuple[Expr, Expr, Expr]:
    """For size >= 2^10; the product's words are int64 with 32 bits each."""
    raw = bits(size)
    window = _window(_LONG, (raw >> 52) - 1033, int64)
    words = [half for word in window for half in (_upper(word), word & _WORD)]
    product = _multiply(raw & _WORD, (_upper(raw) & 0xFFFFF) | 0x100000, words)
    quarter = (product[0] + 0x20000000) >> 30
    rest = ((product[0] - (quarter << 30)) << 32) | product[1]
    negative = rest >> 63
    whole = rest ^ negative
    part = ((product[2] << 31) | (product[3] >> 1)) ^ (negative & ((1 << 63) - 1))
    upper = s.cast(whole & -1024, float64)
    lower = s.fma(s.cast(part, float64), 2.0**-63, s.cast(whole & 1023, float64))
    small = s.fma(upper, _LONG_QUARTER[1], lower * _LONG_QUARTER[0])
    r = s.fma(upper, _LONG_QUARTER[0], small)
    low = s.fma(upper, _LONG_QUARTER[0], -r) + small
    sign = negative & (-1 << 63)
    return s.cast(quarter, int32), flip(r, sign), flip(low, sign)


def _upper(word: Expr) -> Expr:
    return (word >> 32) & _WORD


def _multiply(low: Expr, high: Expr, words: list[Expr]) -> list[Expr]:
    """The four leading words of (high * 2^32 + low) * words, modulo the length of `words`.

    The most significant word comes first.
    """
    by_low = [low * word for word in words]
    by_high = [high * word for word in words]
    last = len(words) - 2
    columns: list[Expr] = []
    carry = const(0, int64)
    for place in range(last, -1, -1):
        total = (
            (by_low[place] & _WORD)
            + _upper(by_low[place + 1])
            + (by_high[place + 1] & _WORD)
            + carry
        )
        if place < last:
            total = total + (by_high[place + 2] >> 32)
        columns.append(total & _WORD)
        carry = total >> 32
    return columns[::-1][:4]
