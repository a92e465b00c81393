// Codes of four bits: 4 words for each group of 32, its first half in low nibbles.

const GROUP_WORDS: u32 = 4u;

fn nibbles_of(w: u32) -> Codes {
    let bytes = vec4<u32>(weights[w], weights[w + 1u], weights[w + 2u], weights[w + 3u]);
    return Codes(bytes & vec4<u32>(0x0f0f0f0fu), (bytes >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}
