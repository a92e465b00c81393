// Blocks of the KV cache, for kernels whose workgroups may have halves of the same word: rows of int8 have an odd number
// of halves.

@group(0) @binding(1) var<storage, read_write> kv: array<atomic<u32>>;

fn kv_word(at: u32) -> u32 {
    return atomicLoad(&kv[at]);
}

fn set_word(at: u32, word: u32) {
    atomicStore(&kv[at], word);
}

// Sets the bits of a mask; the others are another workgroup's.
fn set_bits(at: u32, word: u32, mask: u32) {
    if mask == 0xffffffffu {
        set_word(at, word);
    } else {
        atomicAnd(&kv[at], ~mask);
        atomicOr(&kv[at], word & mask);
    }
}
