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
@group(0) @binding(2) var<storage, read_write> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<u32>;
var<workgroup> shared_float32: array<f32, 256>;
fn f32_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn f32_max(a: f32, b: f32) -> f32 { return select(max(a, b), a + b, f32_isnan(a) || f32_isnan(b)); }
fn f32_of_bits(bits: u32) -> f32 { return bitcast<f32>(bits); }
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[here]);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let chunks = (launch.size1 + 511u) / 512u;
    let tasks = launch.size0 * launch.size2;
    let chunk = group % chunks;
    let walker = lane / 32u;
    let column = lane % 32u;
    let task = (group / chunks) * 32u + column;
    let present = task < launch.size0 * launch.size2;
    let o = task / max(launch.size2, 1u);
    let i = task % max(launch.size2, 1u);
    let begin = chunk * 512u + walker;
    let limit = select(0u, min((chunk + 1u) * 512u, launch.size1), present);
    var sum0 = f32_of_bits(0xff800000u);
    for (var a = begin; a < limit; a += 8u) {
        let p0_0 = load2(o * launch.stride2_0 + a * launch.stride2_1 + i * launch.stride2_2);
        sum0 = f32_max(sum0, p0_0);
    }
    shared_float32[lane] = sum0;
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half * 32u]); }
        workgroupBarrier();
    }
    let row0 = shared_float32[column];
    workgroupBarrier();
    if (present && walker == 0u) { buffer3[(1u * tasks + task * chunks + chunk) * 2u] = bitcast<u32>(row0); }
}
