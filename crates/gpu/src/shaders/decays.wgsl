// What remains of the states of heads, and what is added to them, of each row.
//
//     step = max(softplus(alpha + bias), least),  decay = exp(a·step),  gain = sigmoid(beta); step without beta

struct Params {
    zero: u32,
    n_heads: u32,
    alpha_at: u32,
    beta_at: u32,
    a_at: u32,
    bias_at: u32,
    least: f32,
    decays_at: u32,
    gains_at: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.x * p.n_heads;
    for (var h = t; h < p.n_heads; h += 64u) {
        let own = softplus(add(values[p.alpha_at + row + h], vector(p.bias_at + h)));
        let step = select(own, p.least, own < p.least);
        values[p.decays_at + row + h] = exp_of(mul(vector(p.a_at + h), step));
        if p.beta_at == NONE {
            values[p.gains_at + row + h] = step;
        } else {
            values[p.gains_at + row + h] = sigmoid(values[p.beta_at + row + h]);
        }
    }
}
