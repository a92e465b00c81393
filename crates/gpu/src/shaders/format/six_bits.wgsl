// 6-bit scales and minima of the 8 sub-blocks of Q4_K and Q5_K: three words behind d and dmin.

fn six_bits(low: u32, nibbles: u32, s: u32) -> i32 {
    let at = 8u * (s & 3u);
    let high = ((nibbles >> at) & 15u) | (((low >> at) >> 2u) & 0x30u);
    return i32(select((low >> at) & 63u, high, s >= 4u));
}

fn factors(w: u32) -> vec2<f32> {
    return vec2<f32>(from_f16(weights[w] & 0xffffu), from_f16(weights[w] >> 16u));
}

fn scale_of(w: u32, s: u32) -> i32 {
    return six_bits(weights[w + 1u], weights[w + 3u], s);
}

fn minima_of(w: u32, s: u32) -> vec2<i32> {
    return vec2<i32>(six_bits(weights[w + 2u], weights[w + 3u] >> 4u, s));
}
