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
    stride3_0: u32,
    stride3_1: u32,
    stride3_2: u32,
    stride3_3: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read> buffer3: array<u32>;
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[here]);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[here]);
}
fn load3(at: u32) -> f32 {
    let here = launch.offset3 + at;
    return bitcast<f32>(buffer3[here]);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    buffer0[here] = bitcast<u32>(value);
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
    store0(x * launch.stride0_0 + y * launch.stride0_1 + m * launch.stride0_2 + n * launch.stride0_3, load3(x * launch.stride3_0 + y * launch.stride3_1 + m * launch.stride3_2 + n * launch.stride3_3) + sum);
}
