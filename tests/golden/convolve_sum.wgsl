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
    size5: u32,
    size6: u32,
    size7: u32,
    size8: u32,
    size9: u32,
    size10: u32,
    size11: u32,
    size12: u32,
    size13: u32,
    size14: u32,
    size15: u32,
    size16: u32,
    size17: u32,
    size18: u32,
    size19: u32,
    size20: u32,
    size21: u32,
    size22: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<u32>;
fn partial(at: u32) -> f32 { return bitcast<f32>(load3(at)); }
fn keep(at: u32, value: f32) { store3(at, bitcast<u32>(value)); }
fn store3(at: u32, value: u32) {
    let here = launch.offset3 + at;
    buffer3[here] = value;
}
fn load3(at: u32) -> u32 {
    let here = launch.offset3 + at;
    return buffer3[here];
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
    let count = launch.size1 * launch.size2 * launch.size3 * launch.size7 * launch.size8 * launch.size9;
    if (here >= count) { return; }
    var total = 0.0f;
    for (var s = 0u; s < launch.size22; s += 1u) {
        total = total + partial(s * count + here);
    }
    store0(here, total);
}
