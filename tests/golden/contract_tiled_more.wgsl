struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    size0: u32,
    size1: u32,
    size2: u32,
    size3: u32,
    size4: u32,
    stride0_0: u32,
    stride0_1: u32,
    stride0_2: u32,
    stride0_3: u32,
    stride1_0: u32,
    stride1_1: u32,
    stride1_2: u32,
    stride1_3: u32,
    stride2_0: u32,
    stride2_1: u32,
    stride2_2: u32,
    stride2_3: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
var<workgroup> tile_a: array<vec4<f32>, 272>;
var<workgroup> tile_b: array<vec4<f32>, 272>;
fn a_at(batch_a: u32, m: u32, k: u32) -> f32 {
    if (m < launch.size2 && k < launch.size4) { return load1(batch_a + m * launch.stride1_2 + k * launch.stride1_3); }
    return 0.0f;
}
fn b_at(batch_b: u32, k: u32, n: u32) -> f32 {
    if (n < launch.size3 && k < launch.size4) { return load2(batch_b + k * launch.stride2_2 + n * launch.stride2_3); }
    return 0.0f;
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[here]);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[here]);
}
fn load0(at: u32) -> f32 {
    let here = launch.offset0 + at;
    return bitcast<f32>(buffer0[here]);
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
    let across = (launch.size3 + 63u) / 64u;
    let down = (launch.size2 + 63u) / 64u;
    let batch = group / (across * down);
    let x = batch / launch.size1;
    let y = batch % launch.size1;
    if (x >= launch.size0) { return; }
    let batch_o = x * launch.stride0_0 + y * launch.stride0_1;
    let batch_a = x * launch.stride1_0 + y * launch.stride1_1;
    let batch_b = x * launch.stride2_0 + y * launch.stride2_1;
    let first_m = ((group / across) % down) * 64u;
    let first_n = (group % across) * 64u;
    // Neighbouring invocations read along the dimension of stride 1.
    let by_k_a = launch.stride1_3 == 1u;
    let by_k_b = launch.stride2_2 == 1u && launch.stride2_3 != 1u;
    let k_a = select(lane / 16u, lane % 16u, by_k_a);
    let g_a = select(lane % 16u, lane / 16u, by_k_a);
    let k_b = select(lane / 16u, lane % 16u, by_k_b);
    let g_b = select(lane % 16u, lane / 16u, by_k_b);
    let m_a = first_m + g_a * 4u;
    let n_b = first_n + g_b * 4u;
    var sum0 = vec4<f32>(0.0f);
    var sum1 = vec4<f32>(0.0f);
    var sum2 = vec4<f32>(0.0f);
    var sum3 = vec4<f32>(0.0f);
    for (var start = 0u; start < launch.size4; start += 16u) {
        let ka = start + k_a;
        let kb = start + k_b;
        tile_a[k_a * 17u + g_a] = vec4<f32>(
            a_at(batch_a, m_a, ka), a_at(batch_a, m_a + 1u, ka),
            a_at(batch_a, m_a + 2u, ka), a_at(batch_a, m_a + 3u, ka));
        tile_b[k_b * 17u + g_b] = vec4<f32>(
            b_at(batch_b, kb, n_b), b_at(batch_b, kb, n_b + 1u),
            b_at(batch_b, kb, n_b + 2u), b_at(batch_b, kb, n_b + 3u));
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 1u) {
            let a = tile_a[k * 17u + lane / 16u];
            let b = tile_b[k * 17u + lane % 16u];
            sum0 = fma(vec4<f32>(a.x), b, sum0);
            sum1 = fma(vec4<f32>(a.y), b, sum1);
            sum2 = fma(vec4<f32>(a.z), b, sum2);
            sum3 = fma(vec4<f32>(a.w), b, sum3);
        }
        workgroupBarrier();
    }
    let m = first_m + (lane / 16u) * 4u;
    let n = first_n + (lane % 16u) * 4u;
    if (m + 0u < launch.size2) {
        if (n + 0u < launch.size3) { store0(batch_o + (m + 0u) * launch.stride0_2 + (n + 0u) * launch.stride0_3, (load0(batch_o + (m + 0u) * launch.stride0_2 + (n + 0u) * launch.stride0_3) + sum0.x)); }
        if (n + 1u < launch.size3) { store0(batch_o + (m + 0u) * launch.stride0_2 + (n + 1u) * launch.stride0_3, (load0(batch_o + (m + 0u) * launch.stride0_2 + (n + 1u) * launch.stride0_3) + sum0.y)); }
        if (n + 2u < launch.size3) { store0(batch_o + (m + 0u) * launch.stride0_2 + (n + 2u) * launch.stride0_3, (load0(batch_o + (m + 0u) * launch.stride0_2 + (n + 2u) * launch.stride0_3) + sum0.z)); }
        if (n + 3u < launch.size3) { store0(batch_o + (m + 0u) * launch.stride0_2 + (n + 3u) * launch.stride0_3, (load0(batch_o + (m + 0u) * launch.stride0_2 + (n + 3u) * launch.stride0_3) + sum0.w)); }
    }
    if (m + 1u < launch.size2) {
        if (n + 0u < launch.size3) { store0(batch_o + (m + 1u) * launch.stride0_2 + (n + 0u) * launch.stride0_3, (load0(batch_o + (m + 1u) * launch.stride0_2 + (n + 0u) * launch.stride0_3) + sum1.x)); }
        if (n + 1u < launch.size3) { store0(batch_o + (m + 1u) * launch.stride0_2 + (n + 1u) * launch.stride0_3, (load0(batch_o + (m + 1u) * launch.stride0_2 + (n + 1u) * launch.stride0_3) + sum1.y)); }
        if (n + 2u < launch.size3) { store0(batch_o + (m + 1u) * launch.stride0_2 + (n + 2u) * launch.stride0_3, (load0(batch_o + (m + 1u) * launch.stride0_2 + (n + 2u) * launch.stride0_3) + sum1.z)); }
        if (n + 3u < launch.size3) { store0(batch_o + (m + 1u) * launch.stride0_2 + (n + 3u) * launch.stride0_3, (load0(batch_o + (m + 1u) * launch.stride0_2 + (n + 3u) * launch.stride0_3) + sum1.w)); }
    }
    if (m + 2u < launch.size2) {
        if (n + 0u < launch.size3) { store0(batch_o + (m + 2u) * launch.stride0_2 + (n + 0u) * launch.stride0_3, (load0(batch_o + (m + 2u) * launch.stride0_2 + (n + 0u) * launch.stride0_3) + sum2.x)); }
        if (n + 1u < launch.size3) { store0(batch_o + (m + 2u) * launch.stride0_2 + (n + 1u) * launch.stride0_3, (load0(batch_o + (m + 2u) * launch.stride0_2 + (n + 1u) * launch.stride0_3) + sum2.y)); }
        if (n + 2u < launch.size3) { store0(batch_o + (m + 2u) * launch.stride0_2 + (n + 2u) * launch.stride0_3, (load0(batch_o + (m + 2u) * launch.stride0_2 + (n + 2u) * launch.stride0_3) + sum2.z)); }
        if (n + 3u < launch.size3) { store0(batch_o + (m + 2u) * launch.stride0_2 + (n + 3u) * launch.stride0_3, (load0(batch_o + (m + 2u) * launch.stride0_2 + (n + 3u) * launch.stride0_3) + sum2.w)); }
    }
    if (m + 3u < launch.size2) {
        if (n + 0u < launch.size3) { store0(batch_o + (m + 3u) * launch.stride0_2 + (n + 0u) * launch.stride0_3, (load0(batch_o + (m + 3u) * launch.stride0_2 + (n + 0u) * launch.stride0_3) + sum3.x)); }
        if (n + 1u < launch.size3) { store0(batch_o + (m + 3u) * launch.stride0_2 + (n + 1u) * launch.stride0_3, (load0(batch_o + (m + 3u) * launch.stride0_2 + (n + 1u) * launch.stride0_3) + sum3.y)); }
        if (n + 2u < launch.size3) { store0(batch_o + (m + 3u) * launch.stride0_2 + (n + 2u) * launch.stride0_3, (load0(batch_o + (m + 3u) * launch.stride0_2 + (n + 2u) * launch.stride0_3) + sum3.z)); }
        if (n + 3u < launch.size3) { store0(batch_o + (m + 3u) * launch.stride0_2 + (n + 3u) * launch.stride0_3, (load0(batch_o + (m + 3u) * launch.stride0_2 + (n + 3u) * launch.stride0_3) + sum3.w)); }
    }
}
