struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
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
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn i64_of_i32(x: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u)); }
fn load0(at: u32) -> vec2<u32> {
    let here = launch.offset0 + at;
    return vec2<u32>(buffer0[here * 2u], buffer0[here * 2u + 1u]);
}
fn load1(at: u32) -> i32 {
    let here = launch.offset1 + at;
    return bitcast<i32>(buffer1[here]);
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
    let i = here % launch.size2;
    let o = here / launch.size2;
    if (o >= launch.size0) { return; }
    var row0 = load0(o * launch.stride0_0 + 0xffffffffu * launch.stride0_1 + i * launch.stride0_2);
    for (var a = 0u; a < launch.size1; a += 1u) {
        let t0 = load1(o * launch.stride1_0 + a * launch.stride1_1 + i * launch.stride1_2);
        let t1 = i64_of_i32(t0);
        let t2 = i64_add(row0, t1);
        row0 = t2;
        store0(o * launch.stride0_0 + a * launch.stride0_1 + i * launch.stride0_2, row0);
    }
}
