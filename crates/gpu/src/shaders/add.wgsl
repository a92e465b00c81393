// What a norm behind a sublayer does with its result `y`: `x = x + factor·norm(y)`, or `x = norm(x + factor·y)`.

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
    norms_the_sum: u32,
}

fn input(row: u32, i: u32) -> f32 {
    let y = values[p.y_at + row * p.d + i];
    if p.norms_the_sum == 0u {
        return y;
    }
    return add(values[p.x_at + row * p.d + i], mul(p.factor, y));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x;
    let norm = norm_of(row, p.kind, t);
    for (var i = t; i < p.d; i += 64u) {
        let at = p.x_at + row * p.d + i;
        let y = normed(input(row, i), i, norm);
        if p.norms_the_sum == 0u {
            values[at] = add(values[at], mul(p.factor, y));
        } else {
            values[at] = y;
        }
    }
}
