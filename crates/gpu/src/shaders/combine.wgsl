// The results of the experts of a row, added in the order of rank, then a bias and the result of a shared expert; a route
// without an expert adds nothing:
//
//     out = out + (factor·w_i)·y_i,   out = out + factor·b,   out = out + (factor·sigmoid(g))·y

struct Params {
    zero: u32,
    d: u32,
    n_used: u32,
    routes_at: u32,
    // Results of the slots, and where they are added; whether that is zeroed first.
    y_at: u32,
    out_at: u32,
    is_set: u32,
    factor: f32,
    // 0: the weights are in the results already.
    weighs: u32,
    bias_at: u32,
    // The result of a shared expert, and its gates; NONE: none.
    shared_at: u32,
    gates_at: u32,
}

fn with_shared(before: f32, row: u32, i: u32) -> f32 {
    if p.shared_at == NONE {
        return before;
    }
    var factor = p.factor;
    if p.gates_at != NONE {
        factor = mul(factor, sigmoid(values[p.gates_at + row]));
    }
    return add(before, mul(factor, values[p.shared_at + row * p.d + i]));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.y;
    let i = 64u * group.x + t;
    if i >= p.d {
        return;
    }
    let at = p.out_at + row * p.d + i;
    var out = 0.0;
    if p.is_set == 0u {
        out = values[at];
    }
    for (var k = 0u; k < p.n_used; k++) {
        let slot = row * p.n_used + k;
        let route = p.routes_at + 2u * slot;
        if acts[route] == NONE {
            continue;
        }
        var factor = p.factor;
        if p.weighs != 0u {
            factor = mul(factor, bitcast<f32>(acts[route + 1u]));
        }
        out = add(out, mul(factor, values[p.y_at + slot * p.d + i]));
    }
    if p.bias_at != NONE {
        out = add(out, mul(p.factor, vector(p.bias_at + i)));
    }
    values[at] = with_shared(out, row, i);
}
