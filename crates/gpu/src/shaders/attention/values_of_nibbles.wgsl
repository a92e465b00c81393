// Values of groups of nibbles, whose scales and minima become codes of the scale of the row:
//
//     s = m / 8183,  m = the largest of │min│ and │min + 15·scale│;   code = rne(min/s) + rne(scale/s)·nibble

const VALUE_GROUP: u32 = 32u;
// Groups of the 256 elements that are added at once.
const GROUPS_AT_ONCE: u32 = 8u;

var<workgroup> row_scales: array<f32, 128>;
// Codes of scale and minimum, of each position.
var<workgroup> group_codes: array<u32, 1024>;

fn scale_of_value(row: Row, head: u32, position: u32, t: u32) -> f32 {
    let at = nibble_row(row, p.v_at, head, position);
    var largest = 0u;
    for (var g = 0u; g * NIBBLE_GROUP < p.d_head; g++) {
        let both = kv[at + g * GROUP_WORDS];
        let minimum = from_f16(both >> 16u);
        let end = add(minimum, mul(15.0, from_f16(both & 0xffffu)));
        largest = max(largest, max(bitcast<u32>(magnitude(minimum)), bitcast<u32>(magnitude(end))));
    }
    let scale = div(bitcast<f32>(largest), 8183.0);
    row_scales[t] = scale;
    return scale;
}

fn over_scale(x: f32, scale: f32) -> i32 {
    if scale > 0.0 {
        return code16(div(x, scale));
    }
    return 0;
}

// All threads call it, each for a position.
fn prepare_values(row: Row, head: u32, position: u32, first: u32, t: u32) {
    workgroupBarrier();
    if sees(row, position) {
        let at = nibble_row(row, p.v_at, head, position);
        let first_group = 2u * first / NIBBLE_GROUP;
        let n_groups = (p.d_head + NIBBLE_GROUP - 1u) / NIBBLE_GROUP;
        for (var g = first_group; g < min(n_groups, first_group + GROUPS_AT_ONCE); g++) {
            let both = kv[at + g * GROUP_WORDS];
            let step = over_scale(from_f16(both & 0xffffu), row_scales[t]);
            let minimum = over_scale(from_f16(both >> 16u), row_scales[t]);
            group_codes[GROUPS_AT_ONCE * t + g - first_group] = pair(step, minimum);
        }
    }
    workgroupBarrier();
}

fn value_pair(row: Row, head: u32, position: u32, i: u32) -> vec2<i32> {
    let g = 2u * i / NIBBLE_GROUP;
    let half = group_len(p.d_head, g) / 2u;
    let inside = 2u * i % NIBBLE_GROUP;
    let is_high = inside >= half;
    let byte = inside - select(0u, half, is_high);
    let word = kv[nibble_row(row, p.v_at, head, position) + g * GROUP_WORDS + 1u + byte / 4u];
    let nibbles = word >> (8u * (byte & 3u) + select(0u, 4u, is_high));
    let codes = group_codes[GROUPS_AT_ONCE * (position % CHUNK) + (g % GROUPS_AT_ONCE)];
    let both = vec2<i32>(i32(nibbles & 15u), i32((nibbles >> 8u) & 15u));
    return vec2<i32>(second_of(codes)) + first_of(codes) * both;
}
