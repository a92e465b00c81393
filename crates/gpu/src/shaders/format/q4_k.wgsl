// Q4_K, 36 words a block as in GGUF: f16 d and dmin; 6-bit scales and minima of 8 sub-blocks; 128 bytes of two codes.

const BLOCK_WORDS: u32 = 36u;

// Half of the bytes of two sub-blocks, and the minimum of sub-block `t`.
fn part_of_block(w: u32, t: u32) -> Part {
    let pair = t >> 1u;
    let inside = 4u * (t & 1u);
    let first = w + 4u + 8u * pair + inside;
    let bytes = vec4<u32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]);
    let at = 16u * pair + inside;
    let low = scale_of(w, 2u * pair);
    let high = scale_of(w, 2u * pair + 1u);
    return Part(
        bytes & vec4<u32>(0x0f0f0f0fu),
        (bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu),
        vec4<u32>(at, at + 2u, at + 8u, at + 10u),
        vec4<i32>(low, low, high, high),
        minima_of(w, t),
    );
}
