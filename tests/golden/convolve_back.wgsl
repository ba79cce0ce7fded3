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
    size5: u32,
    size6: u32,
    size7: u32,
    size8: u32,
    size9: u32,
    size10: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
const FAR = -0x40000000;
const NONE = 0xffffffffu;
struct Place { at: vec4<i32>, weight: u32 }
struct Phase { remainder: vec3<u32>, first: vec3<u32>, step: vec3<u32>, count: vec3<u32> }
fn z(column: vec4<i32>, k: vec4<i32>) -> f32 {
    let at = column + k;
    if (u32(at.x) < launch.size4) { return load1(bitcast<u32>(at.w) + u32(at.x)); }
    return 0.0f;
}
fn weight_at(row: u32, weight: u32) -> f32 {
    if (row != NONE && weight != NONE) { return load2(row + weight); }
    return 0.0f;
}
const FAR_PLACE = vec4<i32>(FAR, 0, 0, 0);
fn phase_of(number: u32) -> Phase {
    var phase: Phase;
    var left = number;
    phase.remainder.x = left % launch.size7; left = left / launch.size7;
    let want0 = (phase.remainder.x + launch.size9) % launch.size7;
    let by0 = launch.size8 % launch.size7;
    var first0 = 0u;
    while (first0 < launch.size7 && first0 * by0 % launch.size7 != want0) { first0 += 1u; }
    var step0 = 1u;
    while (step0 * by0 % launch.size7 != 0u) { step0 += 1u; }
    phase.first.x = first0;
    phase.step.x = step0;
    if (first0 < min(launch.size7, launch.size5)) {
        phase.count.x = (launch.size5 - 1u - first0) / step0 + 1u;
    }
    return phase;
}
fn rows() -> u32 { return launch.size3; }
fn columns() -> u32 { return launch.size0 * ((launch.size6 + launch.size7 - 1u) / launch.size7); }
fn row_at(g: u32, row: u32) -> u32 {
    return (g * launch.size2 * launch.size3 + row) * launch.size5;
}
fn column_at(g: u32, column: u32, phase: Phase) -> vec4<i32> {
    if (column >= columns()) { return FAR_PLACE; }
    var left = column;
    let q0 = left % (((launch.size6 + launch.size7 - 1u) / launch.size7)); left = left / (((launch.size6 + launch.size7 - 1u) / launch.size7));
    let image = left;
    if (phase.remainder.x + launch.size7 * q0 >= launch.size6) { return FAR_PLACE; }
    return vec4<i32>(i32(q0), 0, 0, bitcast<i32>((image * launch.size1 + g) * launch.size2 * launch.size4));
}
fn depth(phase: Phase) -> u32 { return launch.size2 * phase.count.x; }
fn k_at(k: u32, end: u32, phase: Phase) -> Place {
    if (k >= end) { return Place(FAR_PLACE, NONE); }
    var left = k;
    let j0 = left % (phase.count.x); left = left / (phase.count.x);
    let channel = left;
    let p0 = phase.first.x + phase.step.x * j0;
    return Place(vec4<i32>((i32(phase.remainder.x + launch.size9) - i32(p0 * launch.size8)) / i32(launch.size7), 0, 0, bitcast<i32>(channel * launch.size4)), channel * launch.size3 * launch.size5 + p0);
}
fn out_at(g: u32, column: u32, phase: Phase) -> u32 {
    if (column >= columns()) { return NONE; }
    var left = column;
    let q0 = left % (((launch.size6 + launch.size7 - 1u) / launch.size7)); left = left / (((launch.size6 + launch.size7 - 1u) / launch.size7));
    let image = left;
    if (phase.remainder.x + launch.size7 * q0 >= launch.size6) { return NONE; }
    return (image * launch.size1 + g) * launch.size3 * launch.size6 + phase.remainder.x + launch.size7 * q0;
}
fn out_step() -> u32 { return launch.size6; }
fn f32_of_float16(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let low = bits & 0x7fffu;
    let normal = (low << 13u) + 0x38000000u;
    let special = (low << 13u) | 0x7f800000u;
    // Small ones are a whole number of 2^-24, which float32 holds as a normal number.
    let small = bitcast<u32>(f32(low) * 5.96046448e-08f);
    return bitcast<f32>(sign | select(select(normal, special, low >= 0x7c00u), small, low < 0x400u));
}
fn float16_of_f32(x: f32) -> u32 {
    let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits > 0x7f800000u) { return sign | 0x7e00u | ((bits >> 13u) & 0x1ffu); }
    if (bits >= 0x477ff000u) { return sign | 0x7c00u; }
    if (bits >= 0x38800000u) { return sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13u) & 1u)) >> 13u); }
    let shift = min(126u - (bits >> 23u), 31u);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (whole + select(0u, 1u, rest > half || (rest == half && (whole & 1u) == 1u)));
}
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return f32_of_float16((buffer1[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return f32_of_float16((buffer2[here >> 1u] >> ((here & 1u) * 16u)) & 0xffffu);
}
fn store0(at: u32, value: f32) {
    let here = launch.offset0 + at;
    let word = here >> 1u;
    let shift = (here & 1u) * 16u;
    let old = atomicLoad(&buffer0[word]) >> shift;
    atomicXor(&buffer0[word], ((old ^ float16_of_f32(value)) & 0xffffu) << shift);
}
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
    let here = group * 256u + lane;
    let column = here % columns();
    let row = here / columns() % rows();
    let matrix = here / (columns() * rows());
    let g = matrix % launch.size1;
    let number = matrix / launch.size1;
    if (number >= launch.size7) { return; }
    let phase = phase_of(number);
    let first = 0u;
    let end = depth(phase);
    let from_row = row_at(g, row);
    let from_column = column_at(g, column, phase);
    var sum = 0.0f;
    for (var k = first; k < end; k += 1u) {
        let place = k_at(k, end, phase);
        sum = fma(weight_at(from_row, place.weight), z(from_column, place.at), sum);
    }
    let there = out_at(g, column, phase);
    if (there != NONE) { store0(there + row * out_step(), sum); }
}
