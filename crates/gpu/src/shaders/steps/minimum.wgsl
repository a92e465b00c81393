// The f32 steps of a group with a minimum: `out = out + (d·dx)·isum`, then `out = out + (m·dx)·Σx`.

fn terms_of(w: Codes, x: Codes, d: vec2<f32>, dx: f32) -> vec2<f32> {
    let sum = dot_of_four(w.low, x.low) + dot_of_four(w.high, x.high);
    let ones = vec4<u32>(0x01010101u);
    let sum_of_x = dot_of_four(ones, x.low) + dot_of_four(ones, x.high);
    return vec2<f32>(mul(mul(d.x, dx), to_float(sum)), mul(mul(d.y, dx), to_float(sum_of_x)));
}

fn with_terms(out: f32, terms: vec2<f32>) -> f32 {
    return add(add(out, terms.x), terms.y);
}
