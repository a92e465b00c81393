// Codes of int8: 8 words for each group of 32.

const GROUP_WORDS: u32 = 8u;

fn codes_of(w: u32) -> Codes {
    return Codes(
        vec4<u32>(weights[w], weights[w + 1u], weights[w + 2u], weights[w + 3u]),
        vec4<u32>(weights[w + 4u], weights[w + 5u], weights[w + 6u], weights[w + 7u]),
    );
}
