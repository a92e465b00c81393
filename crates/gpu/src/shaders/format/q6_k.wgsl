// Q6_K, 53 words a block: 128 bytes of low nibbles, 64 of upper bits, 16 scales, f16 d; GGUF's 210 bytes and two more.

const BLOCK_WORDS: u32 = 53u;

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[w + 52u] & 0xffffu), 0.0);
}

// The codes of `quarter` of half a block, less 32.
fn codes_of(low: vec2<u32>, high: vec2<u32>, quarter: u32) -> vec2<u32> {
    let nibbles = (low >> vec2<u32>(4u * (quarter >> 1u))) & vec2<u32>(0x0f0f0f0fu);
    let bits = ((high >> vec2<u32>(2u * quarter)) & vec2<u32>(0x03030303u)) << vec2<u32>(4u);
    return (((nibbles | bits) | vec2<u32>(0x80808080u)) - vec2<u32>(0x20202020u)) ^ vec2<u32>(0x80808080u);
}

fn scale_of(w: u32, s: u32) -> i32 {
    return i32(weights[w + 48u + (s >> 2u)] << (24u - 8u * (s & 3u))) >> 24u;
}

// Eight codes of each of the four quarters of half a block.
fn part_of_block(w: u32, t: u32) -> Part {
    let second = t >> 2u;
    let inside = 2u * (t & 3u);
    let low_at = w + 16u * second + inside;
    let high_at = w + 32u + 8u * second + inside;
    let low = vec2<u32>(weights[low_at], weights[low_at + 1u]);
    let next = vec2<u32>(weights[low_at + 8u], weights[low_at + 9u]);
    let high = vec2<u32>(weights[high_at], weights[high_at + 1u]);
    let at = 32u * second + inside;
    let s = 8u * second + ((t & 3u) >> 1u);
    return Part(
        vec4<u32>(codes_of(low, high, 0u), codes_of(next, high, 1u)),
        vec4<u32>(codes_of(low, high, 2u), codes_of(next, high, 3u)),
        vec4<u32>(at, at + 8u, at + 16u, at + 24u),
        vec4<i32>(scale_of(w, s), scale_of(w, s + 2u), scale_of(w, s + 4u), scale_of(w, s + 6u)),
        vec2<i32>(0),
    );
}
