struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
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
fn store1(at: u32, value: f32) {
    let here = launch.offset1 + at;
    buffer1[(here) >> 2u][(here) & 3u] = bitcast<u32>(value);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let tasks = launch.size0 * launch.size2;
    let walker = lane % 64u;
    let column = lane / 64u;
    let task = min(group * 4u + column, tasks - 1u);
    let present = group * 4u + column < tasks;
    let o = task / launch.size2;
    let i = task % launch.size2;
    let base0 = o * launch.stride0_0 + i * launch.stride0_2;
    let base1 = o * launch.stride1_0 + i * launch.stride1_2;
    let base2 = o * launch.stride2_0 + i * launch.stride2_2;
    let at0 = 0u + (0u + walker) * 4u;
    let w0_0_0 = buffer2[((launch.offset2 + base2 + min(at0, launch.size1 - 4u)) >> 2u) + 0u];
    var sum0 = f32_of_bits(0xff800000u);
    if (at0 < launch.size1) {
        sum0 = f32_max(sum0, pass0(at0 + 0u, bitcast<f32>(w0_0_0.x)));
        sum0 = f32_max(sum0, pass0(at0 + 1u, bitcast<f32>(w0_0_0.y)));
        sum0 = f32_max(sum0, pass0(at0 + 2u, bitcast<f32>(w0_0_0.z)));
        sum0 = f32_max(sum0, pass0(at0 + 3u, bitcast<f32>(w0_0_0.w)));
    }
    var row0 = sum0;
    shared_float32[lane] = row0;
    workgroupBarrier();
    for (var half = 32u; half >= 32u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half]); }
        workgroupBarrier();
    }
    row0 = shared_float32[column * 64u + walker % 32u];
    workgroupBarrier();
    row0 = f32_max(row0, subgroupShuffleXor(row0, 16u));
    row0 = f32_max(row0, subgroupShuffleXor(row0, 8u));
    row0 = f32_max(row0, subgroupShuffleXor(row0, 4u));
    row0 = f32_max(row0, subgroupShuffleXor(row0, 2u));
    row0 = f32_max(row0, subgroupShuffleXor(row0, 1u));
    let mine = row_of(0u, row0);
    if (present && at0 < launch.size1) {
        let y0 = element_of(at0 + 0u, bitcast<f32>(w0_0_0.x), row0);
        let y1 = element_of(at0 + 1u, bitcast<f32>(w0_0_0.y), row0);
        let y2 = element_of(at0 + 2u, bitcast<f32>(w0_0_0.z), row0);
        let y3 = element_of(at0 + 3u, bitcast<f32>(w0_0_0.w), row0);
        buffer0[(((launch.offset0 + base0 + at0) >> 0u) >> 2u) + 0u] = vec4<u32>(bitcast<u32>(y0.y0), bitcast<u32>(y1.y0), bitcast<u32>(y2.y0), bitcast<u32>(y3.y0));
    }
    workgroupBarrier();
    if (present && walker == 0u) {
        store1(base1, mine.y1);
    }
}
