// Q4_0: of a row, 4 words of codes for each group of 32, low nibbles first, then the f16 scales of all groups.

const GROUP_WORDS: u32 = 4u;

fn less_eight(codes: vec4<u32>) -> vec4<u32> {
    return ((codes | vec4<u32>(0x80808080u)) - vec4<u32>(0x08080808u)) ^ vec4<u32>(0x80808080u);
}

fn codes_of(w: u32) -> Codes {
    let bytes = vec4<u32>(weights[w], weights[w + 1u], weights[w + 2u], weights[w + 3u]);
    let low = bytes & vec4<u32>(0x0f0f0f0fu);
    let high = (bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    return Codes(less_eight(low), less_eight(high));
}
