"""int64 and uint64 where the adapter has none: a vec2<u32> of low and high word.

The functions are named after the instructions (`i64_add`, `i64_lt`); Note [Scalar instructions]
rules them. Those of uint64 are here as `u64_lt` where the sign matters.
"""

INT64 = """
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn i64_neg(a: vec2<u32>) -> vec2<u32> { return i64_sub(vec2<u32>(0u, 0u), a); }
fn i64_abs(a: vec2<u32>) -> vec2<u32> { return select(a, i64_neg(a), (a.y >> 31u) == 1u); }
fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x * b.x, u32_mulhi(a.x, b.x) + a.x * b.y + a.y * b.x);
}
fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x == b.x && a.y == b.y; }
fn i64_below(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}
fn i64_le(a: vec2<u32>, b: vec2<u32>) -> bool { return !i64_lt(b, a); }
fn i64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_lt(a, b)); }
fn i64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_lt(b, a)); }
fn i64_truth(a: vec2<u32>) -> bool { return (a.x | a.y) != 0u; }
fn i64_shl(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let by = b.x & 63u;
    if (by == 0u) { return a; }
    if (by >= 32u) { return vec2<u32>(0u, a.x << (by - 32u)); }
    return vec2<u32>(a.x << by, (a.y << by) | (a.x >> (32u - by)));
}
fn i64_shr(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let by = b.x & 63u;
    let high = bitcast<i32>(a.y);
    if (by == 0u) { return a; }
    if (by >= 32u) { return vec2<u32>(bitcast<u32>(high >> (by - 32u)), bitcast<u32>(high >> 31u)); }
    return vec2<u32>((a.x >> by) | (a.y << (32u - by)), bitcast<u32>(high >> by));
}
fn i64_divmod(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    // Quotient and remainder of unsigned words, bit by bit, from a's first set bit.
    if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
    var quotient = vec2<u32>(0u, 0u);
    var rest = vec2<u32>(0u, 0u);
    var step = select(63u - countLeadingZeros(a.y), 31u - countLeadingZeros(a.x | 1u), a.y == 0u) + 1u;
    while (step > 0u) {
        step -= 1u;
        let carry = rest.y >> 31u;
        let word = select(a.x, a.y, step >= 32u);
        rest = vec2<u32>((rest.x << 1u) | ((word >> (step & 31u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
        if (carry == 1u || !i64_below(rest, b)) {
            rest = i64_sub(rest, b);
            if (step >= 32u) { quotient.y |= 1u << (step - 32u); } else { quotient.x |= 1u << step; }
        }
    }
    return vec4<u32>(quotient, rest);
}
fn i64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (!i64_truth(b)) { return vec2<u32>(0u, 0u); }
    let quotient = i64_divmod(i64_abs(a), i64_abs(b)).xy;
    return select(quotient, i64_neg(quotient), ((a.y ^ b.y) >> 31u) == 1u);
}
fn i64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (!i64_truth(b)) { return vec2<u32>(0u, 0u); }
    let rest = i64_divmod(i64_abs(a), i64_abs(b)).zw;
    return select(rest, i64_neg(rest), (a.y >> 31u) == 1u);
}
fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool { return i64_below(a, b); }
fn u64_le(a: vec2<u32>, b: vec2<u32>) -> bool { return !i64_below(b, a); }
fn u64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_below(a, b)); }
fn u64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_below(b, a)); }
fn u64_shr(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let by = b.x & 63u;
    if (by == 0u) { return a; }
    if (by >= 32u) { return vec2<u32>(a.y >> (by - 32u), 0u); }
    return vec2<u32>((a.x >> by) | (a.y << (32u - by)), a.y >> by);
}
fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (!i64_truth(b)) { return vec2<u32>(0u, 0u); }
    return i64_divmod(a, b).xy;
}
fn u64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (!i64_truth(b)) { return vec2<u32>(0u, 0u); }
    return i64_divmod(a, b).zw;
}
fn u64_of_f32(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) & 0xffu;
    // From 2^63 on, where the numbers of int64 end.
    if (exponent == 190u && (bits >> 31u) == 0u) { return vec2<u32>(0u, ((bits & 0x7fffffu) | 0x800000u) << 8u); }
    return i64_of_f32(x);
}
fn f32_of_u64(a: vec2<u32>) -> f32 {
    if ((a.y >> 31u) == 0u) { return f32_of_i64(a); }
    // Half of it, its last bit kept so that rounding sees it, and twice the result.
    return 2.0f * f32_of_i64(vec2<u32>((a.x >> 1u) | (a.y << 31u) | (a.x & 1u), a.y >> 1u));
}
fn i64_of_i32(x: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u)); }
fn i64_of_f32(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) & 0xffu;
    let mantissa = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
    if (exponent < 127u || exponent > 190u) { return vec2<u32>(0u, select(0u, 0x80000000u, exponent > 190u)); }
    var whole = i64_shl(mantissa, vec2<u32>(exponent - 150u, 0u));
    if (exponent < 150u) { whole = vec2<u32>(mantissa.x >> (150u - exponent), 0u); }
    return select(whole, i64_neg(whole), (bits >> 31u) == 1u);
}
fn f32_of_i64(a: vec2<u32>) -> f32 {
    let sign = a.y & 0x80000000u;
    let size = i64_abs(a);
    if (size.y == 0u && size.x < 0x1000000u) { return bitcast<f32>(bitcast<u32>(f32(size.x)) | sign); }
    // Shift the first set bit to bit 63, keep 24 bits, round the rest to even.
    let room = select(countLeadingZeros(size.y), 32u + countLeadingZeros(size.x), size.y == 0u);
    let top = i64_shl(size, vec2<u32>(room, 0u));
    let kept = top.y >> 8u;
    let half = (top.y >> 7u) & 1u;
    let sticky = ((top.y & 0x7fu) | top.x) != 0u;
    let rounded = kept + select(0u, 1u, half == 1u && (sticky || (kept & 1u) == 1u));
    return bitcast<f32>(sign | (((189u - room) << 23u) + rounded));
}
"""
