// Two-bit codes of Q2_K and Q3_K: 16 words, each half of a block having four codes in each of its 32 bytes, those 32
// elements apart; and a part with eight codes of each of the four.

fn two_bits(codes: vec2<u32>, quarter: u32) -> vec2<u32> {
    return (codes >> vec2<u32>(2u * quarter)) & vec2<u32>(0x03030303u);
}

// The first word of the activations of part `t`, and its first sub-block.
fn place_of_part(t: u32) -> vec2<u32> {
    let second = t >> 2u;
    return vec2<u32>(32u * second + 2u * (t & 3u), 8u * second + ((t & 3u) >> 1u));
}

fn codes_of_part(codes_at: u32, t: u32) -> vec2<u32> {
    let at = codes_at + 8u * (t >> 2u) + 2u * (t & 3u);
    return vec2<u32>(weights[at], weights[at + 1u]);
}

fn scales_of_part(w: u32, s: u32) -> vec4<i32> {
    return vec4<i32>(scale_of(w, s), scale_of(w, s + 2u), scale_of(w, s + 4u), scale_of(w, s + 6u));
}
