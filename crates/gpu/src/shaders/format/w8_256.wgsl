// The integers of any format with blocks of 256 and no minima, 69 words a block: int8 codes, int8 scales of each 16, f32 d.

const BLOCK_WORDS: u32 = 69u;

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(vector(w + 68u), 0.0);
}

fn scale_of(w: u32, s: u32) -> i32 {
    return i32(weights[w + 64u + (s >> 2u)] << (24u - 8u * (s & 3u))) >> 24u;
}

fn part_of_block(w: u32, t: u32) -> Part {
    let first = w + 8u * t;
    let low = scale_of(w, 2u * t);
    let high = scale_of(w, 2u * t + 1u);
    return Part(
        vec4<u32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]),
        vec4<u32>(weights[first + 4u], weights[first + 5u], weights[first + 6u], weights[first + 7u]),
        vec4<u32>(8u * t, 8u * t + 2u, 8u * t + 4u, 8u * t + 6u),
        vec4<i32>(low, low, high, high),
        vec2<i32>(0),
    );
}
