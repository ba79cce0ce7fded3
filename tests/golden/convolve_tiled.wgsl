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
    size11: u32,
    size12: u32,
    size13: u32,
    size14: u32,
    size15: u32,
    size16: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@group(0) @binding(2) var<storage, read> buffer1: array<u32>;
@group(0) @binding(3) var<storage, read> buffer2: array<u32>;
const FAR = -0x40000000;
const NONE = 0xffffffffu;
struct Place { at: vec4<i32>, weight: u32 }
struct Phase { remainder: vec3<u32>, first: vec3<u32>, step: vec3<u32>, count: vec3<u32> }
fn z(column: vec4<i32>, k: vec4<i32>) -> f32 {
    let at = column + k;
    if (u32(at.x) < launch.size8 && u32(at.y) < launch.size9) { return load1(bitcast<u32>(at.w) + (u32(at.x) * launch.size9 + u32(at.y))); }
    return 0.0f;
}
fn weight_at(row: u32, weight: u32) -> f32 {
    if (row != NONE && weight != NONE) { return load2(row + weight); }
    return 0.0f;
}
const FAR_PLACE = vec4<i32>(FAR, 0, 0, 0);
fn phase_of(number: u32) -> Phase { return Phase(vec3<u32>(), vec3<u32>(), vec3<u32>(), vec3<u32>()); }
fn rows() -> u32 { return launch.size2; }
fn columns() -> u32 { return launch.size0 * launch.size4 * launch.size5; }
fn depth(phase: Phase) -> u32 { return launch.size3 * launch.size6 * launch.size7; }
fn row_at(g: u32, row: u32) -> u32 { return (g * launch.size2 + row) * launch.size3 * launch.size6 * launch.size7; }
fn column_at(g: u32, column: u32, phase: Phase) -> vec4<i32> {
    if (column >= columns()) { return FAR_PLACE; }
    var left = column;
    let i1 = left % (launch.size5); left = left / (launch.size5);
    let i0 = left % (launch.size4); left = left / (launch.size4);
    let image = left;
    return vec4<i32>(i32(i0 * launch.size10) - i32(launch.size14), i32(i1 * launch.size11) - i32(launch.size15), 0, bitcast<i32>((image * launch.size1 + g) * launch.size3 * launch.size8 * launch.size9));
}
fn tap_at(k: u32, end: u32) -> vec4<i32> {
    if (k >= end) { return FAR_PLACE; }
    var left = k;
    let p1 = left % (launch.size7); left = left / (launch.size7);
    let p0 = left % (launch.size6); left = left / (launch.size6);
    let channel = left;
    return vec4<i32>(i32(p0 * launch.size12), i32(p1 * launch.size13), 0, bitcast<i32>(channel * launch.size8 * launch.size9));
}
fn k_at(k: u32, end: u32, phase: Phase) -> Place {
    return Place(tap_at(k, end), select(NONE, k, k < end));
}
fn out_at(g: u32, column: u32, phase: Phase) -> u32 {
    let image = column / (launch.size4 * launch.size5);
    return (image * launch.size1 + g) * launch.size2 * launch.size4 * launch.size5 + column % (launch.size4 * launch.size5);
}
fn out_step() -> u32 { return launch.size4 * launch.size5; }
const ROWS = 64u;
const COLUMNS = 128u;
const DOWN = 16u;
const ACROSS = 16u;
const LANES = 256u;
const WIDE = 32u;
var<workgroup> tile_a: array<vec4<f32>, 272>;
var<workgroup> tile_z: array<vec4<f32>, 528>;
var<workgroup> places: array<vec4<i32>, 32>;
var<workgroup> weights: array<u32, 32>;
fn load1(at: u32) -> f32 {
    let here = launch.offset1 + at;
    return bitcast<f32>(buffer1[here]);
}
fn load2(at: u32) -> f32 {
    let here = launch.offset2 + at;
    return bitcast<f32>(buffer2[here]);
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
    let down = (rows() + ROWS - 1u) / ROWS;
    let across = (columns() + COLUMNS - 1u) / COLUMNS;
    let matrix = group / (down * across);
    let g = matrix % launch.size1;
    let number = matrix / launch.size1;
    if (number >= 1u) { return; }
    let first_row = group % down * ROWS;
    let first_column = group / down % across * COLUMNS;
    let phase = phase_of(number);
    let first = 0u;
    let end = depth(phase);
    let row = first_row + lane / ACROSS * 4u;
    let read_row = first_row + lane / 16u * 4u;
    let row0 = select(NONE, row_at(g, read_row), read_row < rows());
    let row1 = select(NONE, row_at(g, read_row + 1u), read_row + 1u < rows());
    let row2 = select(NONE, row_at(g, read_row + 2u), read_row + 2u < rows());
    let row3 = select(NONE, row_at(g, read_row + 3u), read_row + 3u < rows());
    let column = first_column + lane % WIDE * 4u;
    let column0 = column_at(g, column, phase);
    let column1 = column_at(g, column + 1u, phase);
    let column2 = column_at(g, column + 2u, phase);
    let column3 = column_at(g, column + 3u, phase);
    if (lane < 16u) {
        let place = k_at(first + lane, end, phase);
        places[lane] = place.at;
        weights[lane] = place.weight;
    }
    workgroupBarrier();
    var side = 0u;
    var sum0_0 = vec4<f32>(0.0f);
    var sum0_1 = vec4<f32>(0.0f);
    var sum1_0 = vec4<f32>(0.0f);
    var sum1_1 = vec4<f32>(0.0f);
    var sum2_0 = vec4<f32>(0.0f);
    var sum2_1 = vec4<f32>(0.0f);
    var sum3_0 = vec4<f32>(0.0f);
    var sum3_1 = vec4<f32>(0.0f);
    for (var start = first; start < end; start += 16u) {
        let weight = weights[side + lane % 16u];
        tile_a[lane % 16u * (DOWN + 1u) + lane / 16u] = vec4<f32>(
            weight_at(row0, weight), weight_at(row1, weight),
            weight_at(row2, weight), weight_at(row3, weight));
        for (var e = lane / WIDE; e < 16u; e += LANES / WIDE) {
            let k = places[side + e];
            tile_z[e * (WIDE + 1u) + lane % WIDE] = vec4<f32>(
                z(column0, k), z(column1, k), z(column2, k), z(column3, k));
        }
        side = 16u - side;
        if (lane < 16u) {
            let place = k_at(start + 16u + lane, end, phase);
            places[side + lane] = place.at;
            weights[side + lane] = place.weight;
        }
        workgroupBarrier();
        var at_a = lane / ACROSS;
        var at_z = lane % ACROSS;
        for (var k = 0u; k < 16u; k += 4u) {
            {
            let a = tile_a[at_a];
            let z0 = tile_z[at_z + 0u * ACROSS];
            let z1 = tile_z[at_z + 1u * ACROSS];
            sum0_0 = fma(vec4<f32>(a.x), z0, sum0_0);
            sum0_1 = fma(vec4<f32>(a.x), z1, sum0_1);
            sum1_0 = fma(vec4<f32>(a.y), z0, sum1_0);
            sum1_1 = fma(vec4<f32>(a.y), z1, sum1_1);
            sum2_0 = fma(vec4<f32>(a.z), z0, sum2_0);
            sum2_1 = fma(vec4<f32>(a.z), z1, sum2_1);
            sum3_0 = fma(vec4<f32>(a.w), z0, sum3_0);
            sum3_1 = fma(vec4<f32>(a.w), z1, sum3_1);
            at_a += DOWN + 1u; at_z += WIDE + 1u;
            }
            {
            let a = tile_a[at_a];
            let z0 = tile_z[at_z + 0u * ACROSS];
            let z1 = tile_z[at_z + 1u * ACROSS];
            sum0_0 = fma(vec4<f32>(a.x), z0, sum0_0);
            sum0_1 = fma(vec4<f32>(a.x), z1, sum0_1);
            sum1_0 = fma(vec4<f32>(a.y), z0, sum1_0);
            sum1_1 = fma(vec4<f32>(a.y), z1, sum1_1);
            sum2_0 = fma(vec4<f32>(a.z), z0, sum2_0);
            sum2_1 = fma(vec4<f32>(a.z), z1, sum2_1);
            sum3_0 = fma(vec4<f32>(a.w), z0, sum3_0);
            sum3_1 = fma(vec4<f32>(a.w), z1, sum3_1);
            at_a += DOWN + 1u; at_z += WIDE + 1u;
            }
            {
            let a = tile_a[at_a];
            let z0 = tile_z[at_z + 0u * ACROSS];
            let z1 = tile_z[at_z + 1u * ACROSS];
            sum0_0 = fma(vec4<f32>(a.x), z0, sum0_0);
            sum0_1 = fma(vec4<f32>(a.x), z1, sum0_1);
            sum1_0 = fma(vec4<f32>(a.y), z0, sum1_0);
            sum1_1 = fma(vec4<f32>(a.y), z1, sum1_1);
            sum2_0 = fma(vec4<f32>(a.z), z0, sum2_0);
            sum2_1 = fma(vec4<f32>(a.z), z1, sum2_1);
            sum3_0 = fma(vec4<f32>(a.w), z0, sum3_0);
            sum3_1 = fma(vec4<f32>(a.w), z1, sum3_1);
            at_a += DOWN + 1u; at_z += WIDE + 1u;
            }
            {
            let a = tile_a[at_a];
            let z0 = tile_z[at_z + 0u * ACROSS];
            let z1 = tile_z[at_z + 1u * ACROSS];
            sum0_0 = fma(vec4<f32>(a.x), z0, sum0_0);
            sum0_1 = fma(vec4<f32>(a.x), z1, sum0_1);
            sum1_0 = fma(vec4<f32>(a.y), z0, sum1_0);
            sum1_1 = fma(vec4<f32>(a.y), z1, sum1_1);
            sum2_0 = fma(vec4<f32>(a.z), z0, sum2_0);
            sum2_1 = fma(vec4<f32>(a.z), z1, sum2_1);
            sum3_0 = fma(vec4<f32>(a.w), z0, sum3_0);
            sum3_1 = fma(vec4<f32>(a.w), z1, sum3_1);
            at_a += DOWN + 1u; at_z += WIDE + 1u;
            }
        }
        workgroupBarrier();
    }
    let there0_0 = out_at(g, first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 0u, phase);
    if (first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 0u < columns() && there0_0 != NONE) {
        if (row + 0u < rows()) { store0(there0_0 + (row + 0u) * out_step(), sum0_0.x); }
        if (row + 1u < rows()) { store0(there0_0 + (row + 1u) * out_step(), sum1_0.x); }
        if (row + 2u < rows()) { store0(there0_0 + (row + 2u) * out_step(), sum2_0.x); }
        if (row + 3u < rows()) { store0(there0_0 + (row + 3u) * out_step(), sum3_0.x); }
    }
    let there0_1 = out_at(g, first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 1u, phase);
    if (first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 1u < columns() && there0_1 != NONE) {
        if (row + 0u < rows()) { store0(there0_1 + (row + 0u) * out_step(), sum0_0.y); }
        if (row + 1u < rows()) { store0(there0_1 + (row + 1u) * out_step(), sum1_0.y); }
        if (row + 2u < rows()) { store0(there0_1 + (row + 2u) * out_step(), sum2_0.y); }
        if (row + 3u < rows()) { store0(there0_1 + (row + 3u) * out_step(), sum3_0.y); }
    }
    let there0_2 = out_at(g, first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 2u, phase);
    if (first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 2u < columns() && there0_2 != NONE) {
        if (row + 0u < rows()) { store0(there0_2 + (row + 0u) * out_step(), sum0_0.z); }
        if (row + 1u < rows()) { store0(there0_2 + (row + 1u) * out_step(), sum1_0.z); }
        if (row + 2u < rows()) { store0(there0_2 + (row + 2u) * out_step(), sum2_0.z); }
        if (row + 3u < rows()) { store0(there0_2 + (row + 3u) * out_step(), sum3_0.z); }
    }
    let there0_3 = out_at(g, first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 3u, phase);
    if (first_column + (lane % ACROSS + 0u * ACROSS) * 4u + 3u < columns() && there0_3 != NONE) {
        if (row + 0u < rows()) { store0(there0_3 + (row + 0u) * out_step(), sum0_0.w); }
        if (row + 1u < rows()) { store0(there0_3 + (row + 1u) * out_step(), sum1_0.w); }
        if (row + 2u < rows()) { store0(there0_3 + (row + 2u) * out_step(), sum2_0.w); }
        if (row + 3u < rows()) { store0(there0_3 + (row + 3u) * out_step(), sum3_0.w); }
    }
    let there1_0 = out_at(g, first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 0u, phase);
    if (first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 0u < columns() && there1_0 != NONE) {
        if (row + 0u < rows()) { store0(there1_0 + (row + 0u) * out_step(), sum0_1.x); }
        if (row + 1u < rows()) { store0(there1_0 + (row + 1u) * out_step(), sum1_1.x); }
        if (row + 2u < rows()) { store0(there1_0 + (row + 2u) * out_step(), sum2_1.x); }
        if (row + 3u < rows()) { store0(there1_0 + (row + 3u) * out_step(), sum3_1.x); }
    }
    let there1_1 = out_at(g, first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 1u, phase);
    if (first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 1u < columns() && there1_1 != NONE) {
        if (row + 0u < rows()) { store0(there1_1 + (row + 0u) * out_step(), sum0_1.y); }
        if (row + 1u < rows()) { store0(there1_1 + (row + 1u) * out_step(), sum1_1.y); }
        if (row + 2u < rows()) { store0(there1_1 + (row + 2u) * out_step(), sum2_1.y); }
        if (row + 3u < rows()) { store0(there1_1 + (row + 3u) * out_step(), sum3_1.y); }
    }
    let there1_2 = out_at(g, first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 2u, phase);
    if (first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 2u < columns() && there1_2 != NONE) {
        if (row + 0u < rows()) { store0(there1_2 + (row + 0u) * out_step(), sum0_1.z); }
        if (row + 1u < rows()) { store0(there1_2 + (row + 1u) * out_step(), sum1_1.z); }
        if (row + 2u < rows()) { store0(there1_2 + (row + 2u) * out_step(), sum2_1.z); }
        if (row + 3u < rows()) { store0(there1_2 + (row + 3u) * out_step(), sum3_1.z); }
    }
    let there1_3 = out_at(g, first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 3u, phase);
    if (first_column + (lane % ACROSS + 1u * ACROSS) * 4u + 3u < columns() && there1_3 != NONE) {
        if (row + 0u < rows()) { store0(there1_3 + (row + 0u) * out_step(), sum0_1.w); }
        if (row + 1u < rows()) { store0(there1_3 + (row + 1u) * out_step(), sum1_1.w); }
        if (row + 2u < rows()) { store0(there1_3 + (row + 2u) * out_step(), sum2_1.w); }
        if (row + 3u < rows()) { store0(there1_3 + (row + 3u) * out_step(), sum3_1.w); }
    }
}
