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
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn load1(at: u32) -> vec2<u32> {
    let here = launch.offset1 + at;
    return vec2<u32>(buffer1[here * 2u], buffer1[here * 2u + 1u]);
}
fn store0(at: u32, value: vec2<u32>) {
    let here = launch.offset0 + at;
    buffer0[here * 2u] = value.x;
    buffer0[here * 2u + 1u] = value.y;
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
    let t1 = vec2<u32>(here, 0u);
    let t2 = i64_add(t0, t1);
    store0(c0 * launch.stride0_0 + c1 * launch.stride0_1, t2);
}
