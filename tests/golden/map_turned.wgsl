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
var<workgroup> tile0: array<f32, 1056>;
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[here]);
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
    var rest = group;
    let c1 = rest % ((launch.size1 + 31u) / 32u) * 32u;
    rest = rest / ((launch.size1 + 31u) / 32u);
    let c0 = rest % ((launch.size0 + 31u) / 32u) * 32u;
    rest = rest / ((launch.size0 + 31u) / 32u);
    if (rest > 0u) { return; }
    let base0 = c0 * launch.stride0_0 + c1 * launch.stride0_1;
    let base1 = c0 * launch.stride1_0 + c1 * launch.stride1_1;
    let x = lane % 32u;
    let first = lane / 32u;
    for (var y = first; y < 32u; y += 8u) {
        if (c0 + x < launch.size0 && c1 + y < launch.size1) {
            tile0[y * 33u + x] = load1(base1 + x + y * launch.stride1_1);
        }
    }
    workgroupBarrier();
    for (var y = first; y < 32u; y += 8u) {
        if (c1 + x < launch.size1 && c0 + y < launch.size0) {
            let t0 = tile0[x * 33u + y];
            let t1 = t0 * 2.0f;
            store0(base0 + y * launch.stride0_0 + x * launch.stride0_1, t1);
        }
    }
}
