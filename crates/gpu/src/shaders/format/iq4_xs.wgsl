// IQ4_XS, 34 words a block as in GGUF: f16 d, two bits of 8 scales; four bits of them; 16 bytes of two codes each
// sub-block.

const BLOCK_WORDS: u32 = 34u;

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[w] & 0xffffu), 0.0);
}

fn part_of_block(w: u32, t: u32) -> Part {
    let first = w + 2u + 4u * t;
    let bytes = vec4<u32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]);
    let high = (weights[w] >> (16u + 2u * t)) & 3u;
    let scale = i32(((weights[w + 1u] >> (4u * t)) & 15u) | (high << 4u)) - 32;
    return Part(
        values_of_four(bytes & vec4<u32>(0x0f0f0f0fu)),
        values_of_four((bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)),
        vec4<u32>(8u * t, 8u * t + 2u, 8u * t + 4u, 8u * t + 6u),
        vec4<i32>(scale),
        vec2<i32>(0),
    );
}
