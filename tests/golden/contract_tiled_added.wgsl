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
    stride3_0: u32,
    stride3_1: u32,
    stride3_2: u32,
    stride3_3: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> buffer2: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> buffer3: array<vec4<u32>>;
var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;
fn bfloat16_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn f32_of_bfloat16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn load3(at: u32) -> f32 {
    let here = launch.offset3 + at;
    return f32_of_bfloat16((buffer3[(here >> 1u) >> 2u][(here >> 1u) & 3u] >> ((here & 1u) * 16u)) & 0xffffu);
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
    let batch_c = x * launch.stride3_0 + y * launch.stride3_1;
    let k_a0 = (lane + 0u) % 2u * 8u;
    let m_a0 = (lane + 0u) / 2u;
    let from_a0 = batch_a + (first_m + m_a0) * launch.stride1_2 + k_a0 * launch.stride1_3;
    let in_a0 = first_m + m_a0 < launch.size2;
    var held_a0 = vec4<u32>(0u);
    let k_b0 = (lane + 0u) / 8u;
    let n_b0 = (lane + 0u) % 8u * 8u;
    let from_b0 = batch_b + (first_n + n_b0) * launch.stride2_3 + k_b0 * launch.stride2_2;
    let in_b0 = first_n + n_b0 < launch.size3;
    var held_b0 = vec4<u32>(0u);
    if (in_a0 && k_a0 + 0u < launch.size4) { held_a0 = buffer1[(launch.offset1 + from_a0 + 0u * launch.stride1_3) >> 3u]; } else { held_a0 = vec4<u32>(0u); }
    if (in_b0 && k_b0 + 0u < launch.size4) { held_b0 = buffer2[(launch.offset2 + from_b0 + 0u * launch.stride2_2) >> 3u]; } else { held_b0 = vec4<u32>(0u); }
    var sum0_0 = vec4<f32>(0.0f);
    var sum1_0 = vec4<f32>(0.0f);
    var sum2_0 = vec4<f32>(0.0f);
    var sum3_0 = vec4<f32>(0.0f);
    for (var start = 0u; start < launch.size4; start += 16u) {
        if (lane < 128u) {
            tile_a[(k_a0 + 0u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 0u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.x >> 0u) & 0xffffu);
            tile_a[(k_a0 + 1u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 1u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.x >> 16u) & 0xffffu);
            tile_a[(k_a0 + 2u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 2u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.y >> 0u) & 0xffffu);
            tile_a[(k_a0 + 3u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 3u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.y >> 16u) & 0xffffu);
            tile_a[(k_a0 + 4u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 4u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.z >> 0u) & 0xffffu);
            tile_a[(k_a0 + 5u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 5u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.z >> 16u) & 0xffffu);
            tile_a[(k_a0 + 6u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 6u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.w >> 0u) & 0xffffu);
            tile_a[(k_a0 + 7u) * 16u + ((m_a0 / 4u) ^ ((k_a0 + 7u) / 4u))][m_a0 % 4u] = f32_of_bfloat16((held_a0.w >> 16u) & 0xffffu);
        }
        if (lane < 128u) {
            tile_b[k_b0 * 16u + (((n_b0 / 4u + 0u)) ^ (k_b0 / 4u))] = vec4<f32>(f32_of_bfloat16((held_b0.x >> 0u) & 0xffffu), f32_of_bfloat16((held_b0.x >> 16u) & 0xffffu), f32_of_bfloat16((held_b0.y >> 0u) & 0xffffu), f32_of_bfloat16((held_b0.y >> 16u) & 0xffffu));
            tile_b[k_b0 * 16u + (((n_b0 / 4u + 1u)) ^ (k_b0 / 4u))] = vec4<f32>(f32_of_bfloat16((held_b0.z >> 0u) & 0xffffu), f32_of_bfloat16((held_b0.z >> 16u) & 0xffffu), f32_of_bfloat16((held_b0.w >> 0u) & 0xffffu), f32_of_bfloat16((held_b0.w >> 16u) & 0xffffu));
        }
        workgroupBarrier();
        let next = start + 16u;
        if (in_a0 && k_a0 + next < launch.size4) { held_a0 = buffer1[(launch.offset1 + from_a0 + next * launch.stride1_3) >> 3u]; } else { held_a0 = vec4<u32>(0u); }
        if (in_b0 && k_b0 + next < launch.size4) { held_b0 = buffer2[(launch.offset2 + from_b0 + next * launch.stride2_2) >> 3u]; } else { held_b0 = vec4<u32>(0u); }
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
        let beside0_0 = batch_c + (first_m + 0u + lane / 16u * 4u) * launch.stride3_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride3_3;
        let wordat0_0 = (launch.offset0 + at0_0) >> 1u;
        buffer0[wordat0_0 >> 2u][(wordat0_0 + 0u) & 3u] = bfloat16_of_f32(load3(beside0_0 + 0u * launch.stride3_3) + sum0_0.x) | (bfloat16_of_f32(load3(beside0_0 + 1u * launch.stride3_3) + sum0_0.y) << 16u);
        buffer0[wordat0_0 >> 2u][(wordat0_0 + 1u) & 3u] = bfloat16_of_f32(load3(beside0_0 + 2u * launch.stride3_3) + sum0_0.z) | (bfloat16_of_f32(load3(beside0_0 + 3u * launch.stride3_3) + sum0_0.w) << 16u);
    }
    if ((first_m + 1u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at1_0 = batch_o + (first_m + 1u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        let beside1_0 = batch_c + (first_m + 1u + lane / 16u * 4u) * launch.stride3_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride3_3;
        let wordat1_0 = (launch.offset0 + at1_0) >> 1u;
        buffer0[wordat1_0 >> 2u][(wordat1_0 + 0u) & 3u] = bfloat16_of_f32(load3(beside1_0 + 0u * launch.stride3_3) + sum1_0.x) | (bfloat16_of_f32(load3(beside1_0 + 1u * launch.stride3_3) + sum1_0.y) << 16u);
        buffer0[wordat1_0 >> 2u][(wordat1_0 + 1u) & 3u] = bfloat16_of_f32(load3(beside1_0 + 2u * launch.stride3_3) + sum1_0.z) | (bfloat16_of_f32(load3(beside1_0 + 3u * launch.stride3_3) + sum1_0.w) << 16u);
    }
    if ((first_m + 2u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at2_0 = batch_o + (first_m + 2u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        let beside2_0 = batch_c + (first_m + 2u + lane / 16u * 4u) * launch.stride3_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride3_3;
        let wordat2_0 = (launch.offset0 + at2_0) >> 1u;
        buffer0[wordat2_0 >> 2u][(wordat2_0 + 0u) & 3u] = bfloat16_of_f32(load3(beside2_0 + 0u * launch.stride3_3) + sum2_0.x) | (bfloat16_of_f32(load3(beside2_0 + 1u * launch.stride3_3) + sum2_0.y) << 16u);
        buffer0[wordat2_0 >> 2u][(wordat2_0 + 1u) & 3u] = bfloat16_of_f32(load3(beside2_0 + 2u * launch.stride3_3) + sum2_0.z) | (bfloat16_of_f32(load3(beside2_0 + 3u * launch.stride3_3) + sum2_0.w) << 16u);
    }
    if ((first_m + 3u + lane / 16u * 4u) < launch.size2 && (first_n + 0u + lane % 16u * 4u) < launch.size3) {
        let at3_0 = batch_o + (first_m + 3u + lane / 16u * 4u) * launch.stride0_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride0_3;
        let beside3_0 = batch_c + (first_m + 3u + lane / 16u * 4u) * launch.stride3_2 + (first_n + 0u + lane % 16u * 4u) * launch.stride3_3;
        let wordat3_0 = (launch.offset0 + at3_0) >> 1u;
        buffer0[wordat3_0 >> 2u][(wordat3_0 + 0u) & 3u] = bfloat16_of_f32(load3(beside3_0 + 0u * launch.stride3_3) + sum3_0.x) | (bfloat16_of_f32(load3(beside3_0 + 1u * launch.stride3_3) + sum3_0.y) << 16u);
        buffer0[wordat3_0 >> 2u][(wordat3_0 + 1u) & 3u] = bfloat16_of_f32(load3(beside3_0 + 2u * launch.stride3_3) + sum3_0.z) | (bfloat16_of_f32(load3(beside3_0 + 3u * launch.stride3_3) + sum3_0.w) << 16u);
    }
}
