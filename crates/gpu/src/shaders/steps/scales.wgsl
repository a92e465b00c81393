// The f32 steps of a group with a scale for each 16: `out = out + (d·dx)·isum`, of the first half and then of the last.

fn terms_of(w: Codes, x: Codes, d: vec2<f32>, dx: f32) -> vec2<f32> {
    let low = mul(mul(d.x, dx), to_float(dot_of_four(w.low, x.low)));
    return vec2<f32>(low, mul(mul(d.y, dx), to_float(dot_of_four(w.high, x.high))));
}

fn with_terms(out: f32, terms: vec2<f32>) -> f32 {
    return add(add(out, terms.x), terms.y);
}
