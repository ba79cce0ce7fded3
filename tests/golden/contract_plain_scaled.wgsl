struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    size0: u32,
    size1: u32,
    size2: u32,
    size3: u32,
    size4: u32,
    stride0_0: u32,
    stride0_1: u32,
    stride0_2: u32,
    stride0_3: u32,
    stride1_0: u32,
    stride1_1: u32,
    stride1_2: u32,
    stride1_3: u32,
    stride2_0: u32,
    stride2_1: u32,
    stride2_2: u32,
    stride2_3: u32,
    param0: u32,
    param1: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
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
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return f32_of_float16((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return f32_of_float16((buffer2[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load0(at: u32) -> f32 {
    let here = launch.offset0 + at;
    return f32_of_float16((atomicLoad(&buffer0[here >> 1u]) >> ((here & 1u) * 16u)) & 0xffffu);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    let word = here >> 1u;
    let shift = (here & 1u) * 16u;
    let old = atomicLoad(&buffer0[word]) >> shift;
    atomicXor(&buffer0[word], ((old ^ float16_of_f32(value)) & 0xffffu) << shift);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let here = group * 256u + lane;
    let n = here % launch.size3;
    let m = (here / launch.size3) % launch.size2;
    let batch = here / (launch.size3 * launch.size2);
    let y = batch % launch.size1;
    let x = batch / launch.size1;
    if (x >= launch.size0) { return; }
    var sum = 0.0f;
    for (var k = 0u; k < launch.size4; k += 1u) {
        let a = load1(x * launch.stride1_0 + y * launch.stride1_1 + m * launch.stride1_2 + k * launch.stride1_3);
        let b = load2(x * launch.stride2_0 + y * launch.stride2_1 + k * launch.stride2_2 + n * launch.stride2_3);
        sum = fma(a, b, sum);
    }
    store0(x * launch.stride0_0 + y * launch.stride0_1 + m * launch.stride0_2 + n * launch.stride0_3, bitcast<f32>(launch.param1) * load0(x * launch.stride0_0 + y * launch.stride0_1 + m * launch.stride0_2 + n * launch.stride0_3) + bitcast<f32>(launch.param0) * sum);
}
