// Q3_K, 28 words a block: 32 bytes of third bits, codes, 12 bytes of 6-bit scales, f16 d; GGUF's 110 bytes and two more.

const BLOCK_WORDS: u32 = 28u;

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[w + 27u] & 0xffffu), 0.0);
}

// Four bits of sub-block s in bytes 0 to 7, two in bytes 8 to 11; less 32.
fn scale_of(w: u32, s: u32) -> i32 {
    let low = (weights[w + 24u + ((s >> 2u) & 1u)] >> (8u * (s & 3u) + 4u * (s >> 3u))) & 15u;
    let high = (weights[w + 26u] >> (8u * (s & 3u) + 2u * (s >> 2u))) & 3u;
    return i32(low | (high << 4u)) - 32;
}

// The codes of a quarter of half a block, less 4; `bits` has their third bits lowest.
fn less_four(codes: vec2<u32>, bits: vec2<u32>) -> vec2<u32> {
    let both = codes | ((bits & vec2<u32>(0x01010101u)) << vec2<u32>(2u));
    return ((both | vec2<u32>(0x80808080u)) - vec2<u32>(0x04040404u)) ^ vec2<u32>(0x80808080u);
}

fn part_of_block(w: u32, t: u32) -> Part {
    let place = place_of_part(t);
    let codes = codes_of_part(w + 8u, t);
    let top = w + 2u * (t & 3u);
    let bits = vec2<u32>(weights[top], weights[top + 1u]) >> vec2<u32>(4u * (t >> 2u));
    return Part(
        vec4<u32>(less_four(two_bits(codes, 0u), bits), less_four(two_bits(codes, 1u), bits >> vec2<u32>(1u))),
        vec4<u32>(
            less_four(two_bits(codes, 2u), bits >> vec2<u32>(2u)),
            less_four(two_bits(codes, 3u), bits >> vec2<u32>(3u)),
        ),
        vec4<u32>(place.x, place.x + 8u, place.x + 16u, place.x + 24u),
        scales_of_part(w, place.y),
        vec2<i32>(0),
    );
}
