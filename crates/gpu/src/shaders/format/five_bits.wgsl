// Codes of five bits: 5 words for each group of 32, fifth bits first, then nibbles.

const GROUP_WORDS: u32 = 5u;

// Four bits as the fifth ones of four bytes.
fn spread(bits: u32) -> u32 {
    return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4u;
}

fn fifths_of(bits: u32) -> vec4<u32> {
    return vec4<u32>(spread(bits), spread(bits >> 4u), spread(bits >> 8u), spread(bits >> 12u));
}

fn five_bits_of(w: u32) -> Codes {
    let bytes = vec4<u32>(weights[w + 1u], weights[w + 2u], weights[w + 3u], weights[w + 4u]);
    return Codes(
        (bytes & vec4<u32>(0x0f0f0f0fu)) | fifths_of(weights[w]),
        ((bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | fifths_of(weights[w] >> 16u),
    );
}
