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
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<u32>;
fn place(at: u32) -> u32 {
    let here = launch.offset2 + at;
    let low = buffer2[here * 2u];
    return select(0xffffffffu, low, buffer2[here * 2u + 1u] == 0u && low < launch.size3);
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[here]);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    buffer0[here] = bitcast<u32>(value);
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
    let k = (here / launch.size2) % launch.size1;
    let o = here / (launch.size2 * launch.size1);
    if (o >= launch.size0) { return; }
    let from_k = place(o * launch.stride2_0 + k * launch.stride2_1 + i * launch.stride2_2);
    if (from_k == 0xffffffffu) {
        store0(o * launch.stride0_0 + k * launch.stride0_1 + i * launch.stride0_2, 0.0f);
        store3(0u, 1i);
    } else {
        store0(o * launch.stride0_0 + k * launch.stride0_1 + i * launch.stride0_2, load1(o * launch.stride1_0 + from_k * launch.stride1_1 + i * launch.stride1_2));
    }
}
