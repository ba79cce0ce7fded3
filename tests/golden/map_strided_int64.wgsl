struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    size0: u32,
    size1: u32,
    stride0_0: u32,
    stride0_1: u32,
    stride1_0: u32,
    stride1_1: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
fn load1(at: u32) -> i64 {
    let here = launch.offset1 + at;
    return bitcast<i64>(u64(buffer1[here * 2u]) | (u64(buffer1[here * 2u + 1u]) << 32u));
}
fn store0(at: u32, value: i64) {
    let here = launch.offset0 + at;
    let bits = bitcast<u64>(value);
    buffer0[here * 2u] = u32(bits & 0xfffffffflu);
    buffer0[here * 2u + 1u] = u32(bits >> 32u);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let here = group * 256u + lane;
    if (here >= launch.size0 * launch.size1) { return; }
    var rest = here;
    let c1 = rest % launch.size1;
    rest = rest / launch.size1;
    let c0 = rest;
    let t0 = load1(c0 * launch.stride1_0 + c1 * launch.stride1_1);
    let t1 = bitcast<i64>(u64(here));
    let t2 = t0 + t1;
    store0(c0 * launch.stride0_0 + c1 * launch.stride0_1, t2);
}
