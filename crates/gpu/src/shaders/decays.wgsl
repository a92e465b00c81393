// Of each row: the factor of states, and the numbers that are added to them.
//
//     step = max(softplus(alpha + bias), least),  decay = exp(a·step),  gain = sigmoid(beta); step without beta

struct Params {
    zero: u32,
    // Decays of a row, and how many neighbours share a rate and a gain.
    n: u32,
    n_shared: u32,
    alpha_at: u32,
    beta_at: u32,
    // NONE: there are no decays.
    a_at: u32,
    bias_at: u32,
    least: f32,
    decays_at: u32,
    gains_at: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = 64u * group.x + t;
    if i >= p.n {
        return;
    }
    let at = group.y * p.n + i;
    let own = softplus(add(values[p.alpha_at + at], vector(p.bias_at + i)));
    let step = select(own, p.least, own < p.least);
    if p.a_at != NONE {
        values[p.decays_at + at] = exp_of(mul(vector(p.a_at + i / p.n_shared), step));
    }
    if i % p.n_shared == 0u {
        let gain = at / p.n_shared;
        if p.beta_at == NONE {
            values[p.gains_at + gain] = step;
        } else {
            values[p.gains_at + gain] = sigmoid(values[p.beta_at + gain]);
        }
    }
}
