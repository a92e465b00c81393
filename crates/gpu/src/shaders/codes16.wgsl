// 16-bit codes of queries, keys and values (`codes16.rs` of atta-kernels). Parameters have `d_head` and `value_from`, the
// first element of the value in a key that is one; NONE: values are apart.

const KEY_SECTION: u32 = 128u;
// The bits of 2^-56 and 2^56: rows below have no codes but zeros, rows above have no scale.
const TINY: u32 = 0x23800000u;
const HUGE: u32 = 0x5b800000u;

// The elements of a key that share scales by 128; those behind them have one, which is that of the value.
fn keys_end() -> u32 {
    return min(p.d_head, p.value_from);
}

fn n_sections_by_128() -> u32 {
    return (keys_end() + KEY_SECTION - 1u) / KEY_SECTION;
}

// Scales of a key.
fn n_key_sections() -> u32 {
    return n_sections_by_128() + select(0u, 1u, keys_end() < p.d_head);
}

// First and end of the elements that share scale `j` of a key.
fn key_section(j: u32) -> vec2<u32> {
    if j == n_sections_by_128() {
        return vec2<u32>(keys_end(), p.d_head);
    }
    return vec2<u32>(j * KEY_SECTION, min(keys_end(), (j + 1u) * KEY_SECTION));
}

// The scale of element `i` of a key.
fn section_with(i: u32) -> u32 {
    return select(i / KEY_SECTION, n_sections_by_128(), i >= keys_end());
}

fn scale_or_none(peak: u32, scale: f32) -> f32 {
    let found = select(bitcast<u32>(scale), 0u, peak < TINY);
    return bitcast<f32>(select(found, NAN, peak >= HUGE));
}

fn key_scale(peak: u32, sum_of_squares: f32) -> f32 {
    let of_norm = div(sqrt_of(sum_of_squares), 46000.0);
    let of_peak = div(bitcast<f32>(peak), 32639.0);
    return scale_or_none(peak, select(of_peak, of_norm, of_norm > of_peak));
}

fn value_scale(peak: u32) -> f32 {
    return scale_or_none(peak, div(bitcast<f32>(peak), 8191.0));
}

// `1/s`; 0 if there are no codes.
fn inverse_of(scale: f32) -> f32 {
    if scale > 0.0 {
        return div(1.0, scale);
    }
    return 0.0;
}

fn code16(x: f32) -> i32 {
    let above = select(-32639.0, x, x > -32639.0);
    return nearest(select(32639.0, above, above < 32639.0));
}

fn encoded(x: f32, inverse: f32) -> i32 {
    if inverse == 0.0 {
        return 0;
    }
    return code16(mul(x, inverse));
}

fn pair(first: i32, second: i32) -> u32 {
    return (bitcast<u32>(first) & 0xffffu) | (bitcast<u32>(second) << 16u);
}

fn first_of(both: u32) -> i32 {
    return bitcast<i32>(both << 16u) >> 16u;
}

fn second_of(both: u32) -> i32 {
    return bitcast<i32>(both) >> 16u;
}
