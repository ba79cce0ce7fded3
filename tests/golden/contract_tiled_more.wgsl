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
@group(0) @binding(1) var<storage, read_write> buffer0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> buffer2: array<vec4<u32>>;
var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[(here) >> 2u][(here) & 3u]);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[(here) >> 2u][(here) & 3u]);
}
fn load0(at: u32) -> f32 {
    let here = launch.offset0 + at;
    return bitcast<f32>(buffer0[(here) >> 2u][(here) & 3u]);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    buffer0[(here) >> 2u][(here) & 3u] = bitcast<u32>(value);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let across = (launch.size3 + 64u - 1u) / 64u;
    let down = (launch.size2 + 64u - 1u) / 64u;
    let batch = group / (across * down);
    let x = batch / launch.size1;
    let y = batch % launch.size1;
    if (x >= launch.size0) { return; }
    let batch_o = x * launch.stride0_0 + y * launch.stride0_1;
    let batch_a = x * launch.stride1_0 + y * launch.stride1_1;
    let batch_b = x * launch.stride2_0 + y * launch.stride2_1;
    let first_m = ((group / across) % down) * 64u;
    let first_n = (group % across) * 64u;
    let by_k_a = launch.stride1_3 == 1u;
    let k_a0 = select((lane + 0u) / 64u, (lane + 0u) % 16u, by_k_a);
    let m_a0 = select((lane + 0u) % 64u, (lane + 0u) / 16u, by_k_a);
    let from_a0 = batch_a + (first_m + m_a0) * launch.stride1_2 + k_a0 * launch.stride1_3;
    let in_a0 = first_m + m_a0 < launch.size2;
    var held_a0 = f32(0.0f);
    let k_a1 = select((lane + 256u) / 64u, (lane + 256u) % 16u, by_k_a);
    let m_a1 = select((lane + 256u) % 64u, (lane + 256u) / 16u, by_k_a);
    let from_a1 = batch_a + (first_m + m_a1) * launch.stride1_2 + k_a1 * launch.stride1_3;
    let in_a1 = first_m + m_a1 < launch.size2;
    var held_a1 = f32(0.0f);
    let k_a2 = select((lane + 512u) / 64u, (lane + 512u) % 16u, by_k_a);
    let m_a2 = select((lane + 512u) % 64u, (lane + 512u) / 16u, by_k_a);
    let from_a2 = batch_a + (first_m + m_a2) * launch.stride1_2 + k_a2 * launch.stride1_3;
    let in_a2 = first_m + m_a2 < launch.size2;
    var held_a2 = f32(0.0f);
    let k_a3 = select((lane + 768u) / 64u, (lane + 768u) % 16u, by_k_a);
    let m_a3 = select((lane + 768u) % 64u, (lane + 768u) / 16u, by_k_a);
    let from_a3 = batch_a + (first_m + m_a3) * launch.stride1_2 + k_a3 * launch.stride1_3;
    let in_a3 = first_m + m_a3 < launch.size2;
    var held_a3 = f32(0.0f);
    let by_k_b = launch.stride2_2 == 1u;
    let k_b0 = select((lane + 0u) / 64u, (lane + 0u) % 16u, by_k_b);
    let n_b0 = select((lane + 0u) % 64u, (lane + 0u) / 16u, by_k_b);
    let from_b0 = batch_b + (first_n + n_b0) * launch.stride2_3 + k_b0 * launch.stride2_2;
    let in_b0 = first_n + n_b0 < launch.size3;
    var held_b0 = f32(0.0f);
    let k_b1 = select((lane + 256u) / 64u, (lane + 256u) % 16u, by_k_b);
    let n_b1 = select((lane + 256u) % 64u, (lane + 256u) / 16u, by_k_b);
    let from_b1 = batch_b + (first_n + n_b1) * launch.stride2_3 + k_b1 * launch.stride2_2;
    let in_b1 = first_n + n_b1 < launch.size3;
    var held_b1 = f32(0.0f);
    let k_b2 = select((lane + 512u) / 64u, (lane + 512u) % 16u, by_k_b);
    let n_b2 = select((lane + 512u) % 64u, (lane + 512u) / 16u, by_k_b);
    let from_b2 = batch_b + (first_n + n_b2) * launch.stride2_3 + k_b2 * launch.stride2_2;
    let in_b2 = first_n + n_b2 < launch.size3;
    var held_b2 = f32(0.0f);
    let k_b3 = select((lane + 768u) / 64u, (lane + 768u) % 16u, by_k_b);
    let n_b3 = select((lane + 768u) % 64u, (lane + 768u) / 16u, by_k_b);
    let from_b3 = batch_b + (first_n + n_b3) * launch.stride2_3 + k_b3 * launch.stride2_2;
    let in_b3 = first_n + n_b3 < launch.size3;
    var held_b3 = f32(0.0f);
    if (in_a0 && k_a0 + 0u < launch.size4) { held_a0 = load1(from_a0 + 0u * launch.stride1_3); } else { held_a0 = 0.0f; }
    if (in_a1 && k_a1 + 0u < launch.size4) { held_a1 = load1(from_a1 + 0u * launch.stride1_3); } else { held_a1 = 0.0f; }
    if (in_a2 && k_a2 + 0u < launch.size4) { held_a2 = load1(from_a2 + 0u * launch.stride1_3); } else { held_a2 = 0.0f; }
    if (in_a3 && k_a3 + 0u < launch.size4) { held_a3 = load1(from_a3 + 0u * launch.stride1_3); } else { held_a3 = 0.0f; }
    if (in_b0 && k_b0 + 0u < launch.size4) { held_b0 = load2(from_b0 + 0u * launch.stride2_2); } else { held_b0 = 0.0f; }
    if (in_b1 && k_b1 + 0u < launch.size4) { held_b1 = load2(from_b1 + 0u * launch.stride2_2); } else { held_b1 = 0.0f; }
    if (in_b2 && k_b2 + 0u < launch.size4) { held_b2 = load2(from_b2 + 0u * launch.stride2_2); } else { held_b2 = 0.0f; }
    if (in_b3 && k_b3 + 0u < launch.size4) { held_b3 = load2(from_b3 + 0u * launch.stride2_2); } else { held_b3 = 0.0f; }
    var sum0_0 = vec4<f32>(0.0f);
    var sum1_0 = vec4<f32>(0.0f);
    var sum2_0 = vec4<f32>(0.0f);
    var sum3_0 = vec4<f32>(0.0f);
    for (var start = 0u; start < launch.size4; start += 16u) {
        tile_a[k_a0 * 16u + ((m_a0 / 4u) ^ (k_a0 / 4u))][m_a0 % 4u] = held_a0;
        tile_a[k_a1 * 16u + ((m_a1 / 4u) ^ (k_a1 / 4u))][m_a1 % 4u] = held_a1;
        tile_a[k_a2 * 16u + ((m_a2 / 4u) ^ (k_a2 / 4u))][m_a2 % 4u] = held_a2;
        tile_a[k_a3 * 16u + ((m_a3 / 4u) ^ (k_a3 / 4u))][m_a3 % 4u] = held_a3;
        tile_b[k_b0 * 16u + ((n_b0 / 4u) ^ (k_b0 / 4u))][n_b0 % 4u] = held_b0;
        tile_b[k_b1 * 16u + ((n_b1 / 4u) ^ (k_b1 / 4u))][n_b1 % 4u] = held_b1;
        tile_b[k_b2 * 16u + ((n_b2 / 4u) ^ (k_b2 / 4u))][n_b2 % 4u] = held_b2;
        tile_b[k_b3 * 16u + ((n_b3 / 4u) ^ (k_b3 / 4u))][n_b3 % 4u] = held_b3;
        workgroupBarrier();
        let next = start + 16u;
        if (in_a0 && k_a0 + next < launch.size4) { held_a0 = load1(from_a0 + next * launch.stride1_3); } else { held_a0 = 0.0f; }
        if (in_a1 && k_a1 + next < launch.size4) { held_a1 = load1(from_a1 + next * launch.stride1_3); } else { held_a1 = 0.0f; }
        if (in_a2 && k_a2 + next < launch.size4) { held_a2 = load1(from_a2 + next * launch.stride1_3); } else { held_a2 = 0.0f; }
        if (in_a3 && k_a3 + next < launch.size4) { held_a3 = load1(from_a3 + next * launch.stride1_3); } else { held_a3 = 0.0f; }
        if (in_b0 && k_b0 + next < launch.size4) { held_b0 = load2(from_b0 + next * launch.stride2_2); } else { held_b0 = 0.0f; }
        if (in_b1 && k_b1 + next < launch.size4) { held_b1 = load2(from_b1 + next * launch.stride2_2); } else { held_b1 = 0.0f; }
        if (in_b2 && k_b2 + next < launch.size4) { held_b2 = load2(from_b2 + next * launch.stride2_2); } else { held_b2 = 0.0f; }
        if (in_b3 && k_b3 + next < launch.size4) { held_b3 = load2(from_b3 + next * launch.stride2_2); } else { held_b3 = 0.0f; }
        let at_a0 = (lane / 16u) ^ 0u;
        let at_b0 = (lane % 16u) ^ 0u;
        let a0_0 = tile_a[0u + at_a0];
        let b0_0 = tile_b[0u + at_b0];
        sum0_0 = fma(vec4<f32>(a0_0.x), b0_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a0_0.y), b0_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a0_0.z), b0_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a0_0.w), b0_0, sum3_0);
        let a1_0 = tile_a[16u + at_a0];
        let b1_0 = tile_b[16u + at_b0];
        sum0_0 = fma(vec4<f32>(a1_0.x), b1_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a1_0.y), b1_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a1_0.z), b1_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a1_0.w), b1_0, sum3_0);
        let a2_0 = tile_a[32u + at_a0];
        let b2_0 = tile_b[32u + at_b0];
        sum0_0 = fma(vec4<f32>(a2_0.x), b2_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a2_0.y), b2_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a2_0.z), b2_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a2_0.w), b2_0, sum3_0);
        let a3_0 = tile_a[48u + at_a0];
        let b3_0 = tile_b[48u + at_b0];
        sum0_0 = fma(vec4<f32>(a3_0.x), b3_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a3_0.y), b3_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a3_0.z), b3_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a3_0.w), b3_0, sum3_0);
        let at_a4 = (lane / 16u) ^ 1u;
        let at_b4 = (lane % 16u) ^ 1u;
        let a4_0 = tile_a[64u + at_a4];
        let b4_0 = tile_b[64u + at_b4];
        sum0_0 = fma(vec4<f32>(a4_0.x), b4_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a4_0.y), b4_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a4_0.z), b4_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a4_0.w), b4_0, sum3_0);
        let a5_0 = tile_a[80u + at_a4];
        let b5_0 = tile_b[80u + at_b4];
        sum0_0 = fma(vec4<f32>(a5_0.x), b5_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a5_0.y), b5_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a5_0.z), b5_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a5_0.w), b5_0, sum3_0);
        let a6_0 = tile_a[96u + at_a4];
        let b6_0 = tile_b[96u + at_b4];
        sum0_0 = fma(vec4<f32>(a6_0.x), b6_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a6_0.y), b6_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a6_0.z), b6_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a6_0.w), b6_0, sum3_0);
        let a7_0 = tile_a[112u + at_a4];
        let b7_0 = tile_b[112u + at_b4];
        sum0_0 = fma(vec4<f32>(a7_0.x), b7_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a7_0.y), b7_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a7_0.z), b7_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a7_0.w), b7_0, sum3_0);
        let at_a8 = (lane / 16u) ^ 2u;
        let at_b8 = (lane % 16u) ^ 2u;
        let a8_0 = tile_a[128u + at_a8];
        let b8_0 = tile_b[128u + at_b8];
        sum0_0 = fma(vec4<f32>(a8_0.x), b8_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a8_0.y), b8_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a8_0.z), b8_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a8_0.w), b8_0, sum3_0);
        let a9_0 = tile_a[144u + at_a8];
        let b9_0 = tile_b[144u + at_b8];
        sum0_0 = fma(vec4<f32>(a9_0.x), b9_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a9_0.y), b9_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a9_0.z), b9_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a9_0.w), b9_0, sum3_0);
        let a10_0 = tile_a[160u + at_a8];
        let b10_0 = tile_b[160u + at_b8];
        sum0_0 = fma(vec4<f32>(a10_0.x), b10_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a10_0.y), b10_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a10_0.z), b10_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a10_0.w), b10_0, sum3_0);
        let a11_0 = tile_a[176u + at_a8];
        let b11_0 = tile_b[176u + at_b8];
        sum0_0 = fma(vec4<f32>(a11_0.x), b11_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a11_0.y), b11_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a11_0.z), b11_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a11_0.w), b11_0, sum3_0);
        let at_a12 = (lane / 16u) ^ 3u;
        let at_b12 = (lane % 16u) ^ 3u;
        let a12_0 = tile_a[192u + at_a12];
        let b12_0 = tile_b[192u + at_b12];
        sum0_0 = fma(vec4<f32>(a12_0.x), b12_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a12_0.y), b12_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a12_0.z), b12_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a12_0.w), b12_0, sum3_0);
        let a13_0 = tile_a[208u + at_a12];
        let b13_0 = tile_b[208u + at_b12];
        sum0_0 = fma(vec4<f32>(a13_0.x), b13_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a13_0.y), b13_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a13_0.z), b13_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a13_0.w), b13_0, sum3_0);
        let a14_0 = tile_a[224u + at_a12];
        let b14_0 = tile_b[224u + at_b12];
        sum0_0 = fma(vec4<f32>(a14_0.x), b14_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a14_0.y), b14_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a14_0.z), b14_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a14_0.w), b14_0, sum3_0);
        let a15_0 = tile_a[240u + at_a12];
        let b15_0 = tile_b[240u + at_b12];
        sum0_0 = fma(vec4<f32>(a15_0.x), b15_0, sum0_0);
        sum1_0 = fma(vec4<f32>(a15_0.y), b15_0, sum1_0);
        sum2_0 = fma(vec4<f32>(a15_0.z), b15_0, sum2_0);
        sum3_0 = fma(vec4<f32>(a15_0.w), b15_0, sum3_0);
        workgroupBarrier();
    }
    if ((first_m + 0u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at0_0 = batch_o + (first_m + 0u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        if ((first_n + 0u + lane % 16u * 4u) + 0u < launch.size3) { store0(at0_0 + 0u * launch.stride0_3, load0(at0_0 + 0u * launch.stride0_3) + sum0_0.x); }
        if ((first_n + 0u + lane % 16u * 4u) + 1u < launch.size3) { store0(at0_0 + 1u * launch.stride0_3, load0(at0_0 + 1u * launch.stride0_3) + sum0_0.y); }
        if ((first_n + 0u + lane % 16u * 4u) + 2u < launch.size3) { store0(at0_0 + 2u * launch.stride0_3, load0(at0_0 + 2u * launch.stride0_3) + sum0_0.z); }
        if ((first_n + 0u + lane % 16u * 4u) + 3u < launch.size3) { store0(at0_0 + 3u * launch.stride0_3, load0(at0_0 + 3u * launch.stride0_3) + sum0_0.w); }
    }
    if ((first_m + 1u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at1_0 = batch_o + (first_m + 1u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        if ((first_n + 0u + lane % 16u * 4u) + 0u < launch.size3) { store0(at1_0 + 0u * launch.stride0_3, load0(at1_0 + 0u * launch.stride0_3) + sum1_0.x); }
        if ((first_n + 0u + lane % 16u * 4u) + 1u < launch.size3) { store0(at1_0 + 1u * launch.stride0_3, load0(at1_0 + 1u * launch.stride0_3) + sum1_0.y); }
        if ((first_n + 0u + lane % 16u * 4u) + 2u < launch.size3) { store0(at1_0 + 2u * launch.stride0_3, load0(at1_0 + 2u * launch.stride0_3) + sum1_0.z); }
        if ((first_n + 0u + lane % 16u * 4u) + 3u < launch.size3) { store0(at1_0 + 3u * launch.stride0_3, load0(at1_0 + 3u * launch.stride0_3) + sum1_0.w); }
    }
    if ((first_m + 2u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at2_0 = batch_o + (first_m + 2u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        if ((first_n + 0u + lane % 16u * 4u) + 0u < launch.size3) { store0(at2_0 + 0u * launch.stride0_3, load0(at2_0 + 0u * launch.stride0_3) + sum2_0.x); }
        if ((first_n + 0u + lane % 16u * 4u) + 1u < launch.size3) { store0(at2_0 + 1u * launch.stride0_3, load0(at2_0 + 1u * launch.stride0_3) + sum2_0.y); }
        if ((first_n + 0u + lane % 16u * 4u) + 2u < launch.size3) { store0(at2_0 + 2u * launch.stride0_3, load0(at2_0 + 2u * launch.stride0_3) + sum2_0.z); }
        if ((first_n + 0u + lane % 16u * 4u) + 3u < launch.size3) { store0(at2_0 + 3u * launch.stride0_3, load0(at2_0 + 3u * launch.stride0_3) + sum2_0.w); }
    }
    if ((first_m + 3u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at3_0 = batch_o + (first_m + 3u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        if ((first_n + 0u + lane % 16u * 4u) + 0u < launch.size3) { store0(at3_0 + 0u * launch.stride0_3, load0(at3_0 + 0u * launch.stride0_3) + sum3_0.x); }
        if ((first_n + 0u + lane % 16u * 4u) + 1u < launch.size3) { store0(at3_0 + 1u * launch.stride0_3, load0(at3_0 + 1u * launch.stride0_3) + sum3_0.y); }
        if ((first_n + 0u + lane % 16u * 4u) + 2u < launch.size3) { store0(at3_0 + 2u * launch.stride0_3, load0(at3_0 + 2u * launch.stride0_3) + sum3_0.z); }
        if ((first_n + 0u + lane % 16u * 4u) + 3u < launch.size3) { store0(at3_0 + 3u * launch.stride0_3, load0(at3_0 + 3u * launch.stride0_3) + sum3_0.w); }
    }
}
