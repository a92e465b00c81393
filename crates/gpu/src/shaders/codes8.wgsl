// Codes of 8 and 4 bits of keys, values and queries (`kv.rs` of atta-kernels).

// The bits of 1e-35: heads of queries with smaller magnitudes are zeros.
const LEAST_QUERY: u32 = 0x0554ad2eu;
// Elements that share a scale and a minimum, with 4 bits.
const NIBBLE_GROUP: u32 = 32u;
// Words of such a group: scale and minimum as f16, then nibbles.
const GROUP_WORDS: u32 = 5u;

// The finite binary16 nearest to `x`, ties to even.
fn to_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    // At most 65504.
    let size = min(bits & 0x7fffffffu, 0x477fe000u);
    let normal = ((size + 0xfffu + ((size >> 13u) & 1u)) >> 13u) - (112u << 10u);
    // Below 2^-14 in units of 2^-24.
    let shift = min(126u - min(size >> 23u, 112u), 31u);
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = rest > half || (rest == half && (whole & 1u) != 0u);
    let small = whole + select(0u, 1u, up);
    return ((bits >> 16u) & 0x8000u) | select(normal, small, size < 0x38800000u);
}

// The integer nearest to `x` between bounds, ties to even.
fn code_within(x: f32, low: f32, high: f32) -> i32 {
    let above = select(low, x, x > low);
    return nearest(select(high, above, above < high));
}

// The f16 scale of a row of int8, rounded up where a subnormal one would clip the largest element.
fn byte_scale(peak: u32) -> u32 {
    let largest = bitcast<f32>(peak);
    let bits = to_f16(div(largest, 127.0));
    let clips = mul(from_f16(bits), 127.5) < largest && bits >= 1u && bits < 0x7bffu;
    return bits + select(0u, 1u, clips);
}

// Words of a row of nibbles of width `d`, a multiple of 8.
fn nibble_words(d: u32) -> u32 {
    let rest = d % NIBBLE_GROUP;
    return d / NIBBLE_GROUP * GROUP_WORDS + select(0u, 1u + rest / 8u, rest != 0u);
}

// Elements of group `g` of a row of width `d`.
fn group_len(d: u32, g: u32) -> u32 {
    return min(NIBBLE_GROUP, d - g * NIBBLE_GROUP);
}

fn packed_bytes(codes: vec4<i32>) -> u32 {
    let bytes = vec4<u32>(codes) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}
