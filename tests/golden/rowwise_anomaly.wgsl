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
@group(0) @binding(4) var<storage, read_write> buffer3: array<atomic<u32>>;
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
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[here]);
}
fn note_met(magnitude: u32, infinity: u32, bit: u32) {
    if (magnitude >= infinity) {
        atomicOr(&buffer3[launch.offset3], select(bit, bit * 2u, magnitude == infinity));
    }
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    note_met(bitcast<u32>(value) & 0x7fffffffu, 0x7f800000u, 1u);
    buffer0[here] = bitcast<u32>(value);
}
fn store1(at: u32, value: f32) {
    let here = launch.offset1 + at;
    note_met(bitcast<u32>(value) & 0x7fffffffu, 0x7f800000u, 1u);
    buffer1[here] = bitcast<u32>(value);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let tasks = launch.size0 * launch.size2;
    let walker = lane % 32u;
    let column = lane / 32u;
    let task = min(group * 8u + column, tasks - 1u);
    let present = group * 8u + column < tasks;
    let o = task / launch.size2;
    let i = task % launch.size2;
    let base0 = o * launch.stride0_0 + i * launch.stride0_2;
    let base1 = o * launch.stride1_0 + i * launch.stride1_2;
    let base2 = o * launch.stride2_0 + i * launch.stride2_2;
    let at0 = 0u + (0u + walker) * 4u;
    var h0_0_0: f32;
    var h0_0_1: f32;
    var h0_0_2: f32;
    var h0_0_3: f32;
    if (at0 < launch.size1) {
        if (at0 + 0u < launch.size1) { h0_0_0 = load2(base2 + (at0 + 0u) * launch.stride2_1); }
        if (at0 + 1u < launch.size1) { h0_0_1 = load2(base2 + (at0 + 1u) * launch.stride2_1); }
        if (at0 + 2u < launch.size1) { h0_0_2 = load2(base2 + (at0 + 2u) * launch.stride2_1); }
        if (at0 + 3u < launch.size1) { h0_0_3 = load2(base2 + (at0 + 3u) * launch.stride2_1); }
    }
    var sum0 = f32_of_bits(0xff800000u);
    if (at0 + 0u < launch.size1) { sum0 = f32_max(sum0, pass0(at0 + 0u, h0_0_0)); }
    if (at0 + 1u < launch.size1) { sum0 = f32_max(sum0, pass0(at0 + 1u, h0_0_1)); }
    if (at0 + 2u < launch.size1) { sum0 = f32_max(sum0, pass0(at0 + 2u, h0_0_2)); }
    if (at0 + 3u < launch.size1) { sum0 = f32_max(sum0, pass0(at0 + 3u, h0_0_3)); }
    var row0 = sum0;
    shared_float32[lane] = row0;
    workgroupBarrier();
    for (var half = 16u; half >= 1u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half]); }
        workgroupBarrier();
    }
    row0 = shared_float32[column * 32u];
    workgroupBarrier();
    let mine = row_of(0u, row0);
    if (present && at0 + 0u < launch.size1) { let y = element_of(at0 + 0u, h0_0_0, row0); store0(base0 + (at0 + 0u) * launch.stride0_1, y.y0); }
    if (present && at0 + 1u < launch.size1) { let y = element_of(at0 + 1u, h0_0_1, row0); store0(base0 + (at0 + 1u) * launch.stride0_1, y.y0); }
    if (present && at0 + 2u < launch.size1) { let y = element_of(at0 + 2u, h0_0_2, row0); store0(base0 + (at0 + 2u) * launch.stride0_1, y.y0); }
    if (present && at0 + 3u < launch.size1) { let y = element_of(at0 + 3u, h0_0_3, row0); store0(base0 + (at0 + 3u) * launch.stride0_1, y.y0); }
    workgroupBarrier();
    if (present && walker == 0u) {
        store1(base1, mine.y1);
    }
}
