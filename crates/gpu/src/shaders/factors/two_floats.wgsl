// Behind the codes of a row: two f32 for each group; groups come in pairs.

fn groups_of(d: u32) -> u32 {
    return (d + 63u) / 64u * 2u;
}

fn factor_words(n_groups: u32) -> u32 {
    return 2u * n_groups;
}

fn factors_of(at: u32, g: u32) -> vec2<f32> {
    return vec2<f32>(vector(at + 2u * g), vector(at + 2u * g + 1u));
}
