//! Mixers with a recurrent state, from the first position on.

use super::{Rows, activate, matrix, normalized, project, sigmoid};
use crate::{
    Error, Model, Role,
    spec::{Activation, DeltaNet, GateRows, NetDecay, NetGate, NetTensors, Norm},
};

/// `W_out (norm(S q) ⊙ gate(W_z h))` with the state `S = decay S; S += gain (v - S k) kᵀ`.
pub(super) fn delta_net(model: &Model, l: usize, net: &DeltaNet, h: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let z = match net.gate_rank {
        Some(_) => product_of_two(model, l, [Role::SsmGA, Role::SsmGB], h)?,
        None => project(&matrix(model, l, Role::AttnGate)?, None, h),
    };
    let (beta, alpha) = gains_and_decays(model, l, net, h)?;
    let qkv = convolved_inputs(model, l, net, h)?;
    let mut states = vec![vec![0.0; net.d_value * net.d_key]; net.n_heads];
    let mut y = Rows::new();
    for pos in 0..h.len() {
        let mut out = Vec::new();
        for (head, state) in states.iter_mut().enumerate() {
            let decays = decays(model, l, net, &alpha[pos], head);
            let gain = sigmoid(beta[pos][head].into());
            let [q, k, v] = parts(net, &qkv[pos], head);
            let result = step(state, &decays, gain, [&q, &k, &v]);
            let gates = z[pos][head * net.d_value..].iter();
            let norm = Norm::Rms { eps: net.eps };
            let normed = normalized(norm, &result, t.vector(Role::SsmNorm), None);
            out.extend(normed.iter().zip(gates).map(|(y, z)| y * gate(net, *z)));
        }
        y.push(out);
    }
    let out = match net.tensors {
        NetTensors::Joint => Role::SsmOut,
        NetTensors::Apart => Role::AttnOutput,
    };
    Ok(project(&matrix(model, l, out)?, None, &y))
}

/// `W_b W_a h`.
fn product_of_two(model: &Model, l: usize, [a, b]: [Role; 2], h: &Rows) -> Result<Rows, Error> {
    let between = project(&matrix(model, l, a)?, None, h);
    Ok(project(&matrix(model, l, b)?, None, &between))
}

/// The projections of gains and of decays.
fn gains_and_decays(
    model: &Model,
    l: usize,
    net: &DeltaNet,
    h: &Rows,
) -> Result<(Rows, Rows), Error> {
    let product = |role| Ok::<_, Error>(project(&matrix(model, l, role)?, None, h));
    Ok(match net.decay {
        NetDecay::Heads(GateRows::Apart) => (product(Role::SsmBeta)?, product(Role::SsmAlpha)?),
        NetDecay::Heads(GateRows::ByKeyHead) => apart(net, &product(Role::SsmBetaAlpha)?),
        NetDecay::Channels { .. } => {
            let alpha = product_of_two(model, l, [Role::SsmFA, Role::SsmFB], h)?;
            (product(Role::SsmBeta)?, alpha)
        }
    })
}

/// `exp(a softplus(alpha + b))` of each element of the keys of a head.
fn decays(model: &Model, l: usize, net: &DeltaNet, alpha: &[f32], head: usize) -> Vec<f64> {
    let t = model.layer(l);
    let a = f64::from(t.vector(Role::SsmA)[head]);
    let decay = |i: usize| {
        let rate = f64::from(alpha[i]) + f64::from(t.vector(Role::SsmDtBias)[i]);
        (a * rate.exp().ln_1p()).exp()
    };
    match net.decay {
        NetDecay::Heads(_) => vec![decay(head); net.d_key],
        NetDecay::Channels { .. } => (0..net.d_key)
            .map(|i| decay(head * net.d_key + i))
            .collect(),
    }
}

/// Queries, keys and values of all heads behind their convolutions.
fn convolved_inputs(model: &Model, l: usize, net: &DeltaNet, h: &Rows) -> Result<Rows, Error> {
    let roles: &[_] = match net.tensors {
        NetTensors::Joint => &[(Role::SsmQkv, Role::SsmConv)],
        NetTensors::Apart => &[
            (Role::AttnQ, Role::SsmConvQ),
            (Role::AttnK, Role::SsmConvK),
            (Role::AttnV, Role::SsmConvV),
        ],
    };
    let mut all = vec![Vec::new(); h.len()];
    for (weights, taps) in roles {
        let x = project(&matrix(model, l, *weights)?, None, h);
        let y = convolved(net.n_taps, &x, model.layer(l).vector(*taps));
        all.iter_mut().zip(y).for_each(|(all, y)| all.extend(y));
    }
    Ok(all)
}

/// Query, key and value of a head.
fn parts(net: &DeltaNet, qkv: &[f32], head: usize) -> [Vec<f64>; 3] {
    let (q, kv) = qkv.split_at(net.d_keys());
    let (k, v) = kv.split_at(net.d_keys());
    let key = net.key_head(head) * net.d_key;
    let key = key..key + net.d_key;
    let value = head * net.d_value..(head + 1) * net.d_value;
    [
        unit(net, &q[key.clone()], 1.0 / (net.d_key as f64).sqrt()),
        unit(net, &k[key], 1.0),
        v[value].iter().map(|&v| v.into()).collect(),
    ]
}

/// `S = S diag(decays); S += gain (v - S k) kᵀ`; returns `S q`.
fn step(state: &mut [f64], decays: &[f64], gain: f64, [q, k, v]: [&[f64]; 3]) -> Vec<f32> {
    let mut result = Vec::new();
    for (row, v) in state.chunks_exact_mut(k.len()).zip(v) {
        row.iter_mut()
            .zip(decays)
            .for_each(|(s, decay)| *s *= decay);
        let told: f64 = row.iter().zip(k).map(|(s, k)| s * k).sum();
        let update = gain * (v - told);
        row.iter_mut().zip(k).for_each(|(s, k)| *s += update * k);
        result.push(row.iter().zip(q).map(|(s, q)| s * q).sum::<f64>() as f32);
    }
    result
}

/// Gains and decays of each head, from rows ordered by heads of keys.
fn apart(net: &DeltaNet, both: &Rows) -> (Rows, Rows) {
    let n = net.n_heads / net.n_key_heads;
    let part = |first: usize| {
        let row = |row: &Vec<f32>| {
            let groups = row.chunks_exact(2 * n);
            groups
                .flat_map(|group| &group[first..first + n])
                .copied()
                .collect()
        };
        both.iter().map(row).collect()
    };
    (part(0), part(n))
}

/// What a result is multiplied by.
fn gate(net: &DeltaNet, z: f32) -> f32 {
    match net.gate {
        NetGate::Silu => activate(Activation::Silu, z),
        NetGate::Sigmoid => sigmoid(z.into()) as f32,
    }
}

/// `silu(conv(x))`; positions before the first are 0.
fn convolved(n_taps: usize, x: &Rows, taps: &[f32]) -> Rows {
    let d = taps.len() / n_taps;
    let element = |pos: usize, i: usize| {
        let first = (pos + 1).saturating_sub(n_taps);
        let tap = |j: usize| f64::from(taps[(n_taps - 1 - (pos - j)) * d + i]);
        let sum: f64 = (first..=pos).map(|j| tap(j) * f64::from(x[j][i])).sum();
        activate(Activation::Silu, sum as f32)
    };
    let row = |pos| (0..d).map(|i| element(pos, i)).collect();
    (0..x.len()).map(row).collect()
}

/// `scale · x / |x|`.
fn unit(net: &DeltaNet, x: &[f32], scale: f64) -> Vec<f64> {
    let square: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    let factor = scale / (square + f64::from(net.l2_eps)).sqrt();
    x.iter().map(|&x| f64::from(x) * factor).collect()
}
