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
    let segments = (launch.size1 + 255u) / 256u;
    let segment = group % segments;
    let walker = lane / 32u;
    let column = lane % 32u;
    let own = ((group / segments) * 32u + column) * 4u;
    let task = min(own, tasks - 4u);
    let present = own < tasks;
    let o = task / launch.size2;
    let i = task % launch.size2;
    let base0 = o * launch.stride0_0 + i * launch.stride0_2;
    let base1 = o * launch.stride1_0 + i * launch.stride1_2;
    let base2 = o * launch.stride2_0 + i * launch.stride2_2;
    let begin = segment * 256u + walker;
    let limit = min((segment + 1u) * 256u, launch.size1);
    var sum0_0 = f32_of_bits(0xff800000u);
    var sum0_1 = f32_of_bits(0xff800000u);
    var sum0_2 = f32_of_bits(0xff800000u);
    var sum0_3 = f32_of_bits(0xff800000u);
    {
    var a = begin;
    for (; a + 24u < limit; a += 32u) {
        let v0_0 = buffer2[(launch.offset2 + base2 + (a + 0u) * launch.stride2_1) >> 2u];
        let x0_0_0 = bitcast<f32>(v0_0.x);
        let x0_0_1 = bitcast<f32>(v0_0.y);
        let x0_0_2 = bitcast<f32>(v0_0.z);
        let x0_0_3 = bitcast<f32>(v0_0.w);
        let v0_1 = buffer2[(launch.offset2 + base2 + (a + 8u) * launch.stride2_1) >> 2u];
        let x0_1_0 = bitcast<f32>(v0_1.x);
        let x0_1_1 = bitcast<f32>(v0_1.y);
        let x0_1_2 = bitcast<f32>(v0_1.z);
        let x0_1_3 = bitcast<f32>(v0_1.w);
        let v0_2 = buffer2[(launch.offset2 + base2 + (a + 16u) * launch.stride2_1) >> 2u];
        let x0_2_0 = bitcast<f32>(v0_2.x);
        let x0_2_1 = bitcast<f32>(v0_2.y);
        let x0_2_2 = bitcast<f32>(v0_2.z);
        let x0_2_3 = bitcast<f32>(v0_2.w);
        let v0_3 = buffer2[(launch.offset2 + base2 + (a + 24u) * launch.stride2_1) >> 2u];
        let x0_3_0 = bitcast<f32>(v0_3.x);
        let x0_3_1 = bitcast<f32>(v0_3.y);
        let x0_3_2 = bitcast<f32>(v0_3.z);
        let x0_3_3 = bitcast<f32>(v0_3.w);
        sum0_0 = f32_max(sum0_0, pass0((a + 0u), x0_0_0));
        sum0_1 = f32_max(sum0_1, pass0((a + 0u), x0_0_1));
        sum0_2 = f32_max(sum0_2, pass0((a + 0u), x0_0_2));
        sum0_3 = f32_max(sum0_3, pass0((a + 0u), x0_0_3));
        sum0_0 = f32_max(sum0_0, pass0((a + 8u), x0_1_0));
        sum0_1 = f32_max(sum0_1, pass0((a + 8u), x0_1_1));
        sum0_2 = f32_max(sum0_2, pass0((a + 8u), x0_1_2));
        sum0_3 = f32_max(sum0_3, pass0((a + 8u), x0_1_3));
        sum0_0 = f32_max(sum0_0, pass0((a + 16u), x0_2_0));
        sum0_1 = f32_max(sum0_1, pass0((a + 16u), x0_2_1));
        sum0_2 = f32_max(sum0_2, pass0((a + 16u), x0_2_2));
        sum0_3 = f32_max(sum0_3, pass0((a + 16u), x0_2_3));
        sum0_0 = f32_max(sum0_0, pass0((a + 24u), x0_3_0));
        sum0_1 = f32_max(sum0_1, pass0((a + 24u), x0_3_1));
        sum0_2 = f32_max(sum0_2, pass0((a + 24u), x0_3_2));
        sum0_3 = f32_max(sum0_3, pass0((a + 24u), x0_3_3));
    }
    for (; a < limit; a += 8u) {
        let v0_0 = buffer2[(launch.offset2 + base2 + a * launch.stride2_1) >> 2u];
        let x0_0_0 = bitcast<f32>(v0_0.x);
        let x0_0_1 = bitcast<f32>(v0_0.y);
        let x0_0_2 = bitcast<f32>(v0_0.z);
        let x0_0_3 = bitcast<f32>(v0_0.w);
        sum0_0 = f32_max(sum0_0, pass0(a, x0_0_0));
        sum0_1 = f32_max(sum0_1, pass0(a, x0_0_1));
        sum0_2 = f32_max(sum0_2, pass0(a, x0_0_2));
        sum0_3 = f32_max(sum0_3, pass0(a, x0_0_3));
    }
    }
    shared_float32[lane] = sum0_0;
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half * 32u]); }
        workgroupBarrier();
    }
    let row0_0 = shared_float32[column];
    workgroupBarrier();
    shared_float32[lane] = sum0_1;
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half * 32u]); }
        workgroupBarrier();
    }
    let row0_1 = shared_float32[column];
    workgroupBarrier();
    shared_float32[lane] = sum0_2;
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half * 32u]); }
        workgroupBarrier();
    }
    let row0_2 = shared_float32[column];
    workgroupBarrier();
    shared_float32[lane] = sum0_3;
    workgroupBarrier();
    for (var half = 4u; half > 0u; half = half / 2u) {
        if (walker < half) { shared_float32[lane] = f32_max(shared_float32[lane], shared_float32[lane + half * 32u]); }
        workgroupBarrier();
    }
    let row0_3 = shared_float32[column];
    workgroupBarrier();
    if (present && walker == 0u) {
        buffer3[((1u * tasks + (0u * tasks + (task + 0u)) * segments + segment) * 2u) >> 2u][((1u * tasks + (0u * tasks + (task + 0u)) * segments + segment) * 2u) & 3u] = bitcast<u32>(row0_0);
        buffer3[((1u * tasks + (0u * tasks + (task + 1u)) * segments + segment) * 2u) >> 2u][((1u * tasks + (0u * tasks + (task + 1u)) * segments + segment) * 2u) & 3u] = bitcast<u32>(row0_1);
        buffer3[((1u * tasks + (0u * tasks + (task + 2u)) * segments + segment) * 2u) >> 2u][((1u * tasks + (0u * tasks + (task + 2u)) * segments + segment) * 2u) & 3u] = bitcast<u32>(row0_2);
        buffer3[((1u * tasks + (0u * tasks + (task + 3u)) * segments + segment) * 2u) >> 2u][((1u * tasks + (0u * tasks + (task + 3u)) * segments + segment) * 2u) & 3u] = bitcast<u32>(row0_3);
    }
}
