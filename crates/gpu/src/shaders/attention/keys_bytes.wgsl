// Keys of int8: `score = (Σ code·x)·(scale_q·scale_k)·scale`.

// Four codes from a half of a word on.
fn codes_at(at: u32) -> u32 {
    let word = kv[at / 2u];
    if (at & 1u) == 0u {
        return word;
    }
    return (word >> 16u) | (kv[at / 2u + 1u] << 16u);
}

fn score_of(row: Row, head: u32, position: u32) -> f32 {
    let key = byte_row(row, p.k_at, head, position);
    var sum = 0;
    for (var i = 0u; i < p.d_head / 4u; i++) {
        sum += dot4I8Packed(codes[i], codes_at(key + 1u + 2u * i));
    }
    let both = mul(query_scale, from_f16(kv_half(key)));
    return mul(mul(to_float(sum), both), p.scale);
}
