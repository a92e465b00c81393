// Behind the codes of a row: scale and minimum of each group, f16.

fn groups_of(d: u32) -> u32 {
    return d / 32u;
}

fn factor_words(n_groups: u32) -> u32 {
    return n_groups;
}

fn factors_of(at: u32, g: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[at + g] & 0xffffu), from_f16(weights[at + g] >> 16u));
}
