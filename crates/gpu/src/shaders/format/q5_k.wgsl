// Q5_K, 44 words a block as in GGUF: as Q4_K, with the fifth bits of all codes in 32 bytes before the others: bit s of a
// byte belongs to sub-block s.

const BLOCK_WORDS: u32 = 44u;

// Half of the bytes of two sub-blocks, and the minimum of sub-block `t`.
fn part_of_block(w: u32, t: u32) -> Part {
    let pair = t >> 1u;
    let inside = 4u * (t & 1u);
    let first = w + 12u + 8u * pair + inside;
    let bytes = vec4<u32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]);
    let top = w + 4u + inside;
    let bits = vec4<u32>(weights[top], weights[top + 1u], weights[top + 2u], weights[top + 3u]) >> vec4<u32>(2u * pair);
    let at = 16u * pair + inside;
    let low = scale_of(w, 2u * pair);
    let high = scale_of(w, 2u * pair + 1u);
    return Part(
        (bytes & vec4<u32>(0x0f0f0f0fu)) | ((bits & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
        ((bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | ((bits & vec4<u32>(0x02020202u)) << vec4<u32>(3u)),
        vec4<u32>(at, at + 2u, at + 8u, at + 10u),
        vec4<i32>(low, low, high, high),
        minima_of(w, t),
    );
}
