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
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
fn bfloat16_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn f32_of_bfloat16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return f32_of_bfloat16((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return f32_of_bfloat16((buffer2[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load0(at: u32) -> f32 {
    let here = launch.offset0 + at;
    return f32_of_bfloat16((atomicLoad(&buffer0[here >> 1u]) >> ((here & 1u) * 16u)) & 0xffffu);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    let word = here >> 1u;
    let shift = (here & 1u) * 16u;
    let old = atomicLoad(&buffer0[word]) >> shift;
    atomicXor(&buffer0[word], ((old ^ bfloat16_of_f32(value)) & 0xffffu) << shift);
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
    store0(x * launch.stride0_0 + y * launch.stride0_1 + m * launch.stride0_2 + n * launch.stride0_3, load0(x * launch.stride0_0 + y * launch.stride0_1 + m * launch.stride0_2 + n * launch.stride0_3) + sum);
}
