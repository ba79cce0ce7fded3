struct Launch {
    base: u32,
    hidden: u32,
    offset0: u32,
    offset1: u32,
    offset2: u32,
    size0: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> buffer2: array<vec4<u32>>;
fn bfloat16_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
fn f32_of_bfloat16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let first = (group * 256u + lane) * 8u;
    if (first >= launch.size0) { return; }
    let at0 = launch.offset0 + first;
    let at1 = launch.offset1 + first;
    let at2 = launch.offset2;
    let v1_0 = buffer1[(at1 >> 2u) + 0u];
    let v1_1 = buffer1[(at1 >> 2u) + 1u];
    let a2 = f32_of_bfloat16((buffer2[(at2 >> 1u) >> 2u][(at2 >> 1u) & 3u] >> ((at2 & 1u) * 16u)) & 0xffffu);
    let a1_0 = bitcast<f32>(v1_0.x);
    let t0_0 = a1_0;
    let t0_1 = a2;
    let t0_2 = t0_0 + t0_1;
    let a1_1 = bitcast<f32>(v1_0.y);
    let t1_0 = a1_1;
    let t1_1 = a2;
    let t1_2 = t1_0 + t1_1;
    let a1_2 = bitcast<f32>(v1_0.z);
    let t2_0 = a1_2;
    let t2_1 = a2;
    let t2_2 = t2_0 + t2_1;
    let a1_3 = bitcast<f32>(v1_0.w);
    let t3_0 = a1_3;
    let t3_1 = a2;
    let t3_2 = t3_0 + t3_1;
    let a1_4 = bitcast<f32>(v1_1.x);
    let t4_0 = a1_4;
    let t4_1 = a2;
    let t4_2 = t4_0 + t4_1;
    let a1_5 = bitcast<f32>(v1_1.y);
    let t5_0 = a1_5;
    let t5_1 = a2;
    let t5_2 = t5_0 + t5_1;
    let a1_6 = bitcast<f32>(v1_1.z);
    let t6_0 = a1_6;
    let t6_1 = a2;
    let t6_2 = t6_0 + t6_1;
    let a1_7 = bitcast<f32>(v1_1.w);
    let t7_0 = a1_7;
    let t7_1 = a2;
    let t7_2 = t7_0 + t7_1;
    buffer0[(at0 >> 3u) + 0u] = vec4<u32>(bfloat16_of_f32(t0_2) | (bfloat16_of_f32(t1_2) << 16u), bfloat16_of_f32(t2_2) | (bfloat16_of_f32(t3_2) << 16u), bfloat16_of_f32(t4_2) | (bfloat16_of_f32(t5_2) << 16u), bfloat16_of_f32(t6_2) | (bfloat16_of_f32(t7_2) << 16u));
}
