// What a norm behind a sublayer does with its result `y`: `x = x + factor·norm(y)`, `x = norm(x + factor·y)`,
// or `x = norm(x)`.

struct Params {
    zero: u32,
    kind: u32,
    d: u32,
    x_at: u32,
    y_at: u32,
    weight_at: u32,
    bias_at: u32,
    eps: f32,
    factor: f32,
    operand: u32,
    // Weights that rows have in turn.
    n_weights: u32,
}

const RESULT: u32 = 0u;
const SUM: u32 = 1u;

fn input(row: u32, i: u32) -> f32 {
    let at = row * p.d + i;
    switch p.operand {
        case RESULT: { return values[p.y_at + at]; }
        case SUM: { return add(values[p.x_at + at], mul(p.factor, values[p.y_at + at])); }
        default: { return values[p.x_at + at]; }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    let norm = norm_of(row, p.kind, t);
    for (var i = t; i < p.d; i += 64u) {
        let at = p.x_at + row * p.d + i;
        let y = normed(input(row, i), row % p.n_weights * p.d + i, norm);
        if p.operand == RESULT {
            values[at] = add(values[at], mul(p.factor, y));
        } else {
            values[at] = y;
        }
    }
}
