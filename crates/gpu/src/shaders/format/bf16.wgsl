// BF16: the upper halves of f32, two a word; rows begin at words.

fn row_words(d: u32) -> u32 {
    return (d + 1u) / 2u;
}

fn weight(row: u32, i: u32) -> f32 {
    return bitcast<f32>((weights[row + (i >> 1u)] >> (16u * (i & 1u))) << 16u);
}
