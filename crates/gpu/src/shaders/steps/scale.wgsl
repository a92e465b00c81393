// The f32 steps of a group with a scale: `out = out + (d·dx)·isum`.

fn terms_of(w: Codes, x: Codes, d: vec2<f32>, dx: f32) -> vec2<f32> {
    let sum = dot_of_four(w.low, x.low) + dot_of_four(w.high, x.high);
    return vec2<f32>(mul(mul(d.x, dx), to_float(sum)), 0.0);
}

fn with_terms(out: f32, terms: vec2<f32>) -> f32 {
    return add(out, terms.x);
}
