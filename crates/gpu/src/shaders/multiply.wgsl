// A row times a number of the model, or times other values: `x_i = x_i·w`, or `x_i = x_i·act(g_{i / n})`.

struct Params {
    zero: u32,
    d: u32,
    x_at: u32,
    weight_at: u32,
    // The other values of all rows, how many neighbours share one, and their activation; NONE: there are none.
    gates_at: u32,
    n: u32,
    activation: u32,
}

fn factor_of(row: u32, i: u32) -> f32 {
    if p.gates_at == NONE {
        return vector(p.weight_at);
    }
    let gate = values[p.gates_at + row * (p.d / p.n) + i / p.n];
    if p.activation == NONE {
        return gate;
    }
    return activate(p.activation, gate, vec4<f32>(0.0));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    for (var i = t; i < p.d; i += 64u) {
        let at = p.x_at + row * p.d + i;
        values[at] = mul(values[at], factor_of(row, i));
    }
}
