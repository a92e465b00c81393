// Keys of groups of nibbles:
//
//     score = scale_q·(0 + (scale_0·Σ code·x + min_0·Σ x) + (scale_1·Σ code·x + min_1·Σ x) + …)·scale

// Σ code·x of a group of `n` elements.
fn dot_of_group(at: u32, g: u32, n: u32) -> i32 {
    var sum = 0;
    for (var i = 0u; i < n / 8u; i++) {
        let word = kv[at + 1u + i];
        sum += dot4I8Packed(word & 0x0f0f0f0fu, codes[8u * g + i]);
        sum += dot4I8Packed((word >> 4u) & 0x0f0f0f0fu, codes[8u * g + n / 8u + i]);
    }
    return sum;
}

fn score_of(row: Row, head: u32, position: u32) -> f32 {
    let key = nibble_row(row, p.k_at, head, position);
    var score = 0.0;
    for (var g = 0u; g * NIBBLE_GROUP < p.d_head; g++) {
        let at = key + g * GROUP_WORDS;
        let sum = dot_of_group(at, g, group_len(p.d_head, g));
        let scaled = mul(from_f16(kv[at] & 0xffffu), to_float(sum));
        let minima = mul(from_f16(kv[at] >> 16u), to_float(code_sums[g]));
        score = add(score, add(scaled, minima));
    }
    return mul(mul(query_scale, score), p.scale);
}
