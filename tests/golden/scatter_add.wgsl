struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    offset3: u32,
    size0: u32,
    size1: u32,
    size2: u32,
    size3: u32,
    stride0_0: u32,
    stride0_1: u32,
    stride0_2: u32,
    stride1_0: u32,
    stride1_1: u32,
    stride1_2: u32,
    stride2_0: u32,
    stride2_1: u32,
    stride2_2: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<u32>;
fn place(at: u32) -> u32 {
    let here = launch.offset2 + at;
    let low = buffer2[here];
    return select(0xffffffffu, low, low < launch.size3);
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
fn load0(at: u32) -> f32 {
    let here = launch.offset0 + at;
    return f32_of_float16((atomicLoad(&buffer0[here >> 1u]) >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return f32_of_float16((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    let word = here >> 1u;
    let shift = (here & 1u) * 16u;
    let old = atomicLoad(&buffer0[word]) >> shift;
    atomicXor(&buffer0[word], ((old ^ float16_of_f32(value)) & 0xffffu) << shift);
}
fn store3(at: u32, value: i32) {
    let here = launch.offset3 + at;
    buffer3[here] = bitcast<u32>(value);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let here = group * 256u + lane;
    let i = here % launch.size2;
    let columns = launch.size0 * launch.size2;
    let o = (here / launch.size2) % launch.size0;
    let slices = clamp(16384u / columns, 1u, min(launch.size3, launch.size1 / 64u) + 1u);
    let width = (launch.size3 + slices - 1u) / slices;
    let begin = here / columns * width;
    if (here / columns >= slices) { return; }
    for (var k = 0u; k < launch.size1; k += 1u) {
        let to_k = place(o * launch.stride2_0 + k * launch.stride2_1 + i * launch.stride2_2);
        if (to_k == 0xffffffffu) {
            store3(0u, 1i);
        } else if (to_k - begin < width) {
            store0(o * launch.stride0_0 + to_k * launch.stride0_1 + i * launch.stride0_2, load0(o * launch.stride0_0 + to_k * launch.stride0_1 + i * launch.stride0_2) + load1(o * launch.stride1_0 + k * launch.stride1_1 + i * launch.stride1_2));
        }
    }
}
