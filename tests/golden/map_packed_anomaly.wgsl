struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    size0: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read_write> buffer2: array<atomic<u32>>;
fn put_word0(at: u32, word: u32, bits: u32) {
    if (bits >= 32u) { buffer0[at] = word; return; }
    let mask = (1u << bits) - 1u;
    if (bits > 0u) { buffer0[at] = (buffer0[at] & ~mask) | (word & mask); }
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
fn note_met(magnitude: u32, infinity: u32, bit: u32) {
    if (magnitude >= infinity) {
        atomicOr(&buffer2[launch.offset2], select(bit, bit * 2u, magnitude == infinity));
    }
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    note_met((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0x7fffu, 0x7c00u, 4u);
    return f32_of_float16((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let first = (group * 256u + lane) * 2u;
    if (first >= launch.size0) { return; }
    let last = min(first + 2u, launch.size0);
    var words0: array<u32, 1>;
    for (var here = first; here < last; here += 1u) {
        let t0 = load1(here);
        let t1 = t0 * 0.5f;
        note_met(float16_of_f32(t1) & 0x7fffu, 0x7c00u, 1u); words0[(here - first) / 2u] = words0[(here - first) / 2u] | (float16_of_f32(t1) << (((here - first) % 2u) * 16u));
    }
    let start0 = (launch.offset0 + first) / 2u;
    let bits0 = (last - first) * 16u;
    put_word0(start0 + 0u, words0[0], bits0);
}
