// Q2_K, 21 words a block as in GGUF: 16 bytes of a scale and a minimum; codes; f16 d and dmin.

const BLOCK_WORDS: u32 = 21u;

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[w + 20u] & 0xffffu), from_f16(weights[w + 20u] >> 16u));
}

fn byte_of(w: u32, s: u32) -> u32 {
    return weights[w + (s >> 2u)] >> (8u * (s & 3u));
}

fn scale_of(w: u32, s: u32) -> i32 {
    return i32(byte_of(w, s) & 15u);
}

fn part_of_block(w: u32, t: u32) -> Part {
    let place = place_of_part(t);
    let codes = codes_of_part(w + 4u, t);
    return Part(
        vec4<u32>(two_bits(codes, 0u), two_bits(codes, 1u)),
        vec4<u32>(two_bits(codes, 2u), two_bits(codes, 3u)),
        vec4<u32>(place.x, place.x + 8u, place.x + 16u, place.x + 24u),
        scales_of_part(w, place.y),
        vec2<i32>(i32((byte_of(w, 2u * t) >> 4u) & 15u), i32((byte_of(w, 2u * t + 1u) >> 4u) & 15u)),
    );
}
