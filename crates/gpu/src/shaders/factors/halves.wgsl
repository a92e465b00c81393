// Behind the codes of a row: an f16 for each group.

fn groups_of(d: u32) -> u32 {
    return d / 32u;
}

fn factor_words(n_groups: u32) -> u32 {
    return (n_groups + 1u) / 2u;
}

fn factors_of(at: u32, g: u32) -> vec2<f32> {
    return vec2<f32>(from_f16((weights[at + (g >> 1u)] >> (16u * (g & 1u))) & 0xffffu), 0.0);
}
