// Behind the codes of a row: a byte e for each group, whose scale is 2^(e - 128).

fn groups_of(d: u32) -> u32 {
    return d / 32u;
}

fn factor_words(n_groups: u32) -> u32 {
    return (n_groups + 3u) / 4u;
}

fn factors_of(at: u32, g: u32) -> vec2<f32> {
    let e = (weights[at + (g >> 2u)] >> (8u * (g & 3u))) & 255u;
    let small = ((e & 1u) + 1u) << 21u;
    return vec2<f32>(bitcast<f32>(select((e - 1u) << 23u, small, e < 2u)), 0.0);
}
