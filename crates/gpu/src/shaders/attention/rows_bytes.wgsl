// Where rows of 8 and 4 bits lie.

fn kv_half(at: u32) -> u32 {
    return (kv[at / 2u] >> (16u * (at & 1u))) & 0xffffu;
}

// The first half of a word of a row of int8.
fn byte_row(row: Row, first: u32, head: u32, position: u32) -> u32 {
    let i = head * p.block_len + position % p.block_len;
    return 2u * (block_of(row, position) + first) + i * (p.d_head / 2u + 1u);
}

// The first word of a row of nibbles.
fn nibble_row(row: Row, first: u32, head: u32, position: u32) -> u32 {
    let i = head * p.block_len + position % p.block_len;
    return block_of(row, position) + first + i * nibble_words(p.d_head);
}
