// Nibbles that stand for the values of a table.

// Byte `i`, a nibble, as the byte that it stands for.
fn value_of(nibbles: u32, i: u32) -> u32 {
    let code = (nibbles >> (8u * i)) & 15u;
    return ((VALUES[code >> 2u] >> (8u * (code & 3u))) & 255u) << (8u * i);
}

fn values_of(nibbles: u32) -> u32 {
    return value_of(nibbles, 0u) | value_of(nibbles, 1u) | value_of(nibbles, 2u) | value_of(nibbles, 3u);
}

fn values_of_four(nibbles: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(values_of(nibbles.x), values_of(nibbles.y), values_of(nibbles.z), values_of(nibbles.w));
}
