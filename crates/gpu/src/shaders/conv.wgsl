// A causal convolution over the last few positions, every channel by itself (`conv.rs` of atta-model).
//
//     y = bias + Σ_j taps_j·x[pos − (n_taps − 1 − j)]      from the oldest on
//     y = act(y)

struct Params {
    zero: u32,
    d: u32,
    x_at: u32,
    sources_at: u32,
    n_sources: u32,
    // Vectors of a state, one less than taps.
    len: u32,
    state_at: u32,
    taps_at: u32,
    bias_at: u32,
    out_at: u32,
    out_d: u32,
    activation: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.y;
    let i = 64u * group.x + t;
    if i >= p.d {
        return;
    }
    var y = 0.0;
    if p.bias_at != NONE {
        y = vector(p.bias_at + i);
    }
    for (var j = 0u; j <= p.len; j++) {
        let source = source_of(row, p.len - j);
        if source.back != NONE {
            y = add(y, mul(element_of(source, i), vector(p.taps_at + j * p.d + i)));
        }
    }
    if p.activation != NONE {
        y = activate(p.activation, y, vec4<f32>(0.0));
    }
    values[p.out_at + row * p.out_d + i] = y;
}
