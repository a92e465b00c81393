// F32: a weight a word.

fn row_words(d: u32) -> u32 {
    return d;
}

fn weight(row: u32, i: u32) -> f32 {
    return vector(row + i);
}
