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
@group(0) @binding(1) var<storage, read_write> buffer0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> buffer1: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> buffer2: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> buffer3: array<vec4<u32>>;
fn pass0(at: u32, x0: f32) -> f32 {
    let t0 = x0;
    return t0;
}
struct Element {
    y0: f32,
}
fn element_of(at: u32, x0: f32, row0: f32) -> Element {
    let t0 = x0;
    let t1 = t0 - row0;
    return Element(t1);
}
struct Row {
    y1: f32,
}
fn row_of(at: u32, row0: f32) -> Row {
    return Row(row0);
}
var<workgroup> shared_float32: array<f32, 256>;
fn f32_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn f32_max(a: f32, b: f32) -> f32 { return select(max(a, b), a + b, f32_isnan(a) || f32_isnan(b)); }
fn f32_of_bits(bits: u32) -> f32 { return bitcast<f32>(bits); }
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let tasks = launch.size0 * launch.size2;
    let segments = (launch.size1 + 8191u) / 8192u;
    let segment = group % segments;
    let walker = lane % 256u;
    let column = lane / 256u;
    let task = min((group / segments) * 1u + column, tasks - 1u);
    let present = (group / segments) * 1u + column < tasks;
    let o = task / launch.size2;
    let i = task % launch.size2;
    let base0 = o * launch.stride0_0 + i * launch.stride0_2;
    let base1 = o * launch.stride1_0 + i * launch.stride1_2;
    let base2 = o * launch.stride2_0 + i * launch.stride2_2;
    let begin = segment * 8192u;
    let limit = min(begin + 8192u, launch.size1);
    var sum0 = f32_of_bits(0xff800000u);
    for (var start = begin; start < limit; start += 1024u) {
        let at0 = start + (0u + walker) * 4u;
        let w0_0_0 = buffer2[((launch.offset2 + base2 + min(at0, limit - 4u)) >> 2u) + 0u];
        if (at0 < limit) {
            sum0 = f32_max(sum0, pass0(at0 + 0u, bitcast<f32>(w0_0_0.x)));
            sum0 = f32_max(sum0, pass0(at0 + 1u, bitcast<f32>(w0_0_0.y)));
            sum0 = f32_max(sum0, pass0(at0 + 2u, bitcast<f32>(w0_0_0.z)));
            sum0 = f32_max(sum0, pass0(at0 + 3u, bitcast<f32>(w0_0_0.w)));
        }
    }
    var row0 = sum0;
    shared_float32[lane] = row0;
    workgroupBarrier();
    for (var half = 128u; half >= 1u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half]); }
        workgroupBarrier();
    }
    row0 = shared_float32[column * 256u];
    workgroupBarrier();
    if (present && walker == 0u) { buffer3[((1u * tasks + (0u * tasks + task) * segments + segment) * 2u) >> 2u][((1u * tasks + (0u * tasks + task) * segments + segment) * 2u) & 3u] = bitcast<u32>(row0); }
}
