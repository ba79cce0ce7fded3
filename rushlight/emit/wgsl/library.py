"""WGSL helper functions: NaN-safe comparisons, half formats, exact remainder, wide multiplication.

Owns: the text of each helper and what it needs. Takes: names. Gives: the text of those and all they
need, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rushlight.emit.wgsl.int64 import INT64

_FLOAT32 = """
fn f32_of_bits(bits: u32) -> f32 { return bitcast<f32>(bits); }
fn f32_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn f32_hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ launch.hidden); }
fn f32_truth(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) != 0u; }
fn f32_eq(a: f32, b: f32) -> bool { return a == b && !f32_isnan(a) && !f32_isnan(b); }
fn f32_lt(a: f32, b: f32) -> bool { return a < b && !f32_isnan(a) && !f32_isnan(b); }
fn f32_le(a: f32, b: f32) -> bool { return a <= b && !f32_isnan(a) && !f32_isnan(b); }
fn f32_max(a: f32, b: f32) -> f32 { return select(max(a, b), a + b, f32_isnan(a) || f32_isnan(b)); }
fn f32_min(a: f32, b: f32) -> f32 { return select(min(a, b), a + b, f32_isnan(a) || f32_isnan(b)); }
fn f32_rem(a: f32, b: f32) -> f32 {
    // Long division on the mantissas: exact, where a - b * trunc(a / b) is not.
    let sign = bitcast<u32>(a) & 0x80000000u;
    let x = bitcast<u32>(a) & 0x7fffffffu;
    let y = bitcast<u32>(b) & 0x7fffffffu;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) { return f32_of_bits(0x7fc00000u); }
    if (x < y) { return a; }
    var exponent = max(x >> 23u, 1u);
    let floor_exponent = max(y >> 23u, 1u);
    var rest = select(x & 0x7fffffu, (x & 0x7fffffu) | 0x800000u, x >= 0x800000u);
    let by = select(y & 0x7fffffu, (y & 0x7fffffu) | 0x800000u, y >= 0x800000u);
    rest = rest % by;
    while (exponent > floor_exponent) {
        rest = rest << 1u;
        if (rest >= by) { rest -= by; }
        exponent -= 1u;
    }
    if (rest == 0u) { return bitcast<f32>(sign); }
    let room = min(countLeadingZeros(rest) - 8u, exponent - 1u);
    rest = rest << room;
    exponent -= room;
    let bits = select(rest, (rest & 0x7fffffu) | (exponent << 23u), rest >= 0x800000u);
    return bitcast<f32>(sign | bits);
}
"""

# Through i64, in two halves: NVIDIA's u64(f32) sets the low word of large numbers to ones.
_UINT64 = """
fn u64_from_f32(x: f32) -> u64 {
    if (x < 9223372036854775808.0f) { return bitcast<u64>(i64(x)); }
    return bitcast<u64>(i64(x - 9223372036854775808.0f)) | 0x8000000000000000lu;
}
fn u64_from_f64(x: f64) -> u64 {
    if (x < 9223372036854775808.0lf) { return bitcast<u64>(i64(x)); }
    return bitcast<u64>(i64(x - 9223372036854775808.0lf)) | 0x8000000000000000lu;
}
"""

_FLOAT64 = """
fn f64_of_bits(bits: u64) -> f64 { return bitcast<f64>(bits); }
fn f64_isnan(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }
fn f64_hide(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) ^ u64(launch.hidden)); }
fn f64_truth(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) != 0lu; }
fn f64_eq(a: f64, b: f64) -> bool { return a == b && !f64_isnan(a) && !f64_isnan(b); }
fn f64_lt(a: f64, b: f64) -> bool { return a < b && !f64_isnan(a) && !f64_isnan(b); }
fn f64_le(a: f64, b: f64) -> bool { return a <= b && !f64_isnan(a) && !f64_isnan(b); }
fn f64_max(a: f64, b: f64) -> f64 { return select(max(a, b), a + b, f64_isnan(a) || f64_isnan(b)); }
fn f64_min(a: f64, b: f64) -> f64 { return select(min(a, b), a + b, f64_isnan(a) || f64_isnan(b)); }
fn f64_rem(a: f64, b: f64) -> f64 {
    let sign = bitcast<u64>(a) & 0x8000000000000000lu;
    let x = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let y = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if (x >= 0x7ff0000000000000lu || y > 0x7ff0000000000000lu || y == 0lu) { return f64_of_bits(0x7ff8000000000000lu); }
    if (x < y) { return a; }
    let hidden = 0x10000000000000lu;
    var exponent = max(u32(x >> 52u), 1u);
    let floor_exponent = max(u32(y >> 52u), 1u);
    var rest = x & 0xffffffffffffflu;
    if (x >= hidden) { rest = rest | hidden; }
    var by = y & 0xffffffffffffflu;
    if (y >= hidden) { by = by | hidden; }
    rest = rest % by;
    while (exponent > floor_exponent) {
        rest = rest << 1u;
        if (rest >= by) { rest = rest - by; }
        exponent -= 1u;
    }
    if (rest == 0lu) { return bitcast<f64>(sign); }
    while (rest < hidden && exponent > 1u) {
        rest = rest << 1u;
        exponent -= 1u;
    }
    var bits = rest;
    if (rest >= hidden) { bits = (rest & 0xffffffffffffflu) | (u64(exponent) << 52u); }
    return bitcast<f64>(sign | bits);
}
"""

_HALVES = """
fn f32_of_bfloat16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn bfloat16_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn f32_of_float16(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let low = bits & 0x7fffu;
    let normal = (low << 13u) + 0x38000000u;
    let special = (low << 13u) | 0x7f800000u;
    // Small ones are a whole number of 2^-24, which float32 holds as a normal number.
    let small = bitcast<u32>(f32(low) * 5.96046448e-08f);
    return bitcast<f32>(sign | select(select(normal, special, low >= 0x7c00u), small, low < 0x400u));
}
fn float16_of_f32(x: f32) -> u32 {
    let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits > 0x7f800000u) { return sign | 0x7e00u | ((bits >> 13u) & 0x1ffu); }
    if (bits >= 0x477ff000u) { return sign | 0x7c00u; }
    if (bits >= 0x38800000u) { return sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13u) & 1u)) >> 13u); }
    let shift = min(126u - (bits >> 23u), 31u);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (whole + select(0u, 1u, rest > half || (rest == half && (whole & 1u) == 1u)));
}
"""

_WORDS = """
fn f32_fma_wide(a: f32, b: f32, c: f32) -> f32 { return f32(f64(a) * f64(b) + f64(c)); }
fn u32_mulhi(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}
"""

# The rounding errors of a product and a sum are exact in pieces; an infinite one adds nothing.
_FMA = """
fn FLOAT_fma_split(a: FLOAT, b: FLOAT, c: FLOAT) -> FLOAT {
    let product = FLOAT_hide(a * b);
    let total = FLOAT_hide(product + c);
    let a_high = bitcast<FLOAT>(bitcast<BITS>(a) & MASK);
    let b_high = bitcast<FLOAT>(bitcast<BITS>(b) & MASK);
    let a_low = a - a_high;
    let b_low = b - b_high;
    let lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    let back = FLOAT_hide(total - product);
    let exact = total + (((product - (total - back)) + (c - back)) + lost);
    return select(exact, total, (bitcast<BITS>(exact) & EXPONENT) == EXPONENT);
}
"""


def _fma(kind: str, bits: str, mask: str, exponent: str) -> str:
    text = _FMA.replace("FLOAT", kind).replace("BITS", bits)
    return text.replace("MASK", mask).replace("EXPONENT", exponent)


_SPLIT = _fma("f32", "u32", "0xfffff000u", "0x7f800000u") + _fma(
    "f64", "u64", "0xfffffffff8000000lu", "0x7ff0000000000000lu"
)


@cache
def _library() -> dict[str, str]:
    """Every helper's text by name."""
    pieces = re.split(
        r"(?m)^(?=fn )", "".join((_FLOAT32, _UINT64, _FLOAT64, _HALVES, _WORDS, _SPLIT, INT64))
    )
    return {
        piece[3 : piece.index("(")]: piece.rstrip() + "\n"
        for piece in pieces
        if piece.startswith("fn ")
    }


@cache
def _needs(name: str) -> tuple[str, ...]:
    library = _library()
    called = re.findall(r"\b([a-z]\w*)\(", library[name])
    return tuple(dict.fromkeys(c for c in called if c in library and c != name))


def library_text(names: Iterable[str]) -> str:
    """The text of these helpers after all that they call."""
    order: dict[str, None] = {}
    stack = [(n, False) for n in sorted(set(names), reverse=True)]
    while stack:
        name, ready = stack.pop()
        if ready:
            order.setdefault(name)
        elif name not in order:
            stack.append((name, True))
            stack.extend((n, False) for n in _needs(name) if n not in order)
    library = _library()
    return "".join(library[n] for n in order)
