struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    offset3: u32,
    size0: u32,
    param0: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<atomic<u32>>;
fn note_met(magnitude: u32, infinity: u32, bit: u32) {
    if (magnitude >= infinity) {
        atomicOr(&buffer3[launch.offset3], select(bit, bit * 2u, magnitude == infinity));
    }
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    note_met(buffer1[here] & 0x7fffffffu, 0x7f800000u, 4u);
    return bitcast<f32>(buffer1[here]);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    note_met(buffer2[here] & 0x7fffffffu, 0x7f800000u, 4u);
    return bitcast<f32>(buffer2[here]);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    note_met(bitcast<u32>(value) & 0x7fffffffu, 0x7f800000u, 1u);
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
    if (here >= launch.size0) { return; }
    let t0 = load1(here);
    let t1 = t0 * bitcast<f32>(launch.param0);
    let t2 = load2(0u);
    let t3 = t1 + t2;
    store0(here, t3);
}
