//! Selective state spaces, from the first position on.

use super::{Rows, activate, map_rows, matrix, normalized, project};
use crate::{
    Error, Model, Role,
    bind::Tensors,
    spec::{Activation, Mamba, Mamba2, Norm, StateNorms},
};

/// `W_out ((S c + d x) ⊙ silu(z))` with the state `S = exp(a step) ⊙ S + step x b` of each channel.
pub(super) fn mamba(model: &Model, l: usize, m: &Mamba, h: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let product = |role, bias, x: &Rows| Ok::<_, Error>(project(&matrix(model, l, role)?, bias, x));
    let projected = product(Role::SsmIn, None, h)?;
    let z = map_rows(&projected, |row| row[m.d_inner..].to_vec());
    let x = map_rows(&projected, |row| row[..m.d_inner].to_vec());
    let x = convolved(t, m.n_taps, &x);
    let selection = product(Role::SsmX, None, &x)?;
    let part = |from: usize, n: usize, role| {
        let weight = t.vector_opt(role);
        map_rows(&selection, |row| {
            state_norm(m, &row[from..from + n], weight)
        })
    };
    let dt = part(0, m.d_rank, Role::SsmDtNorm);
    let selected = Selected {
        steps: product(Role::SsmDt, Some(t.vector(Role::SsmDtBias)), &dt)?,
        b: part(m.d_rank, m.d_state, Role::SsmBNorm),
        c: part(m.d_rank + m.d_state, m.d_state, Role::SsmCNorm),
        x,
    };
    let y = channels(t, m, &selected);
    product(Role::SsmOut, None, &gated(&y, &z))
}

/// What channels read of each position.
struct Selected {
    /// `[d_inner]`, before the softplus.
    steps: Rows,
    /// `[d_state]`.
    b: Rows,
    /// `[d_state]`.
    c: Rows,
    /// `[d_inner]`.
    x: Rows,
}

/// `S c + d x` of all channels.
fn channels(t: &Tensors, m: &Mamba, s: &Selected) -> Rows {
    let [rates, skips] = [Role::SsmA, Role::SsmD].map(|role| t.vector(role));
    let mut state = vec![0.0; m.d_inner * m.d_state];
    let mut at = |pos: usize, i: usize| {
        let x = f64::from(s.x[pos][i]);
        let step = softplus(s.steps[pos][i]);
        let mut y = f64::from(skips[i]) * x;
        for (j, b) in s.b[pos].iter().enumerate() {
            let e = i * m.d_state + j;
            let decay = (f64::from(rates[e]) * step).exp();
            state[e] = decay * state[e] + step * x * f64::from(*b);
            y += state[e] * f64::from(s.c[pos][j]);
        }
        y as f32
    };
    (0..s.x.len())
        .map(|pos| (0..m.d_inner).map(|i| at(pos, i)).collect())
        .collect()
}

/// `dt`, `b` or `c` of a position, normalized if the model does so.
fn state_norm(m: &Mamba, x: &[f32], weight: Option<&[f32]>) -> Vec<f32> {
    let ones = vec![1.0; x.len()];
    let norm = |eps, weight| normalized(Norm::Rms { eps }, x, weight, None);
    match (m.norms, weight) {
        (StateNorms::Weighted { eps }, Some(weight)) => norm(eps, weight),
        (StateNorms::Unit { eps }, _) => norm(eps, &ones),
        _ => x.to_vec(),
    }
}

/// `W_out norm((S c + d x) ⊙ silu(z))` with the state `S = decay S + step x bᵀ` of each head.
pub(super) fn mamba2(model: &Model, l: usize, m: &Mamba2, h: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let projected = project(&matrix(model, l, Role::SsmIn)?, None, h);
    let part = |from: usize, n: usize| map_rows(&projected, |row| row[from..from + n].to_vec());
    let z = part(0, m.d_inner());
    let inputs = Inputs {
        xbc: convolved(t, m.n_taps, &part(m.d_inner(), m.d_conv())),
        dt: part(m.d_inner() + m.d_conv(), m.n_heads),
    };
    let mut y: Rows = vec![vec![0.0; m.d_inner()]; h.len()];
    (0..m.n_heads).for_each(|head| scan(t, m, head, &inputs, &mut y));
    let gated = gated(&y, &z);
    let normed = match t.vector_opt(Role::SsmNorm) {
        Some(weight) => map_rows(&gated, |y| normed_groups(m, y, weight)),
        None => gated,
    };
    Ok(project(&matrix(model, l, Role::SsmOut)?, None, &normed))
}

/// What the heads read.
struct Inputs {
    /// `[d_conv]` of a position.
    xbc: Rows,
    /// `[n_heads]` of a position.
    dt: Rows,
}

/// The results of a head, `S c + d x`.
fn scan(t: &Tensors, m: &Mamba2, head: usize, inputs: &Inputs, y: &mut Rows) {
    let Inputs { xbc, dt } = inputs;
    let mut state = vec![vec![0.0; m.d_state]; m.d_head];
    let of_head = |role| f64::from(t.vector(role)[head]);
    for (pos, y) in y.iter_mut().enumerate() {
        let step = softplus(dt[pos][head] + t.vector(Role::SsmDtBias)[head]);
        let step = step.max(m.min_step.into());
        let decay = (of_head(Role::SsmA) * step).exp();
        let [b, c] = [0, 1].map(|i| group(m, &xbc[pos], head, i));
        for (i, row) in state.iter_mut().enumerate() {
            let x = f64::from(xbc[pos][head * m.d_head + i]);
            let with = |(s, b): (&f64, &f32)| decay * s + step * x * f64::from(*b);
            *row = row.iter().zip(b).map(with).collect();
            let result: f64 = row.iter().zip(c).map(|(s, c)| s * f64::from(*c)).sum();
            y[head * m.d_head + i] = (result + of_head(Role::SsmD) * x) as f32;
        }
    }
}

/// `b` (0) or `c` (1) of a head.
fn group<'a>(m: &Mamba2, xbc: &'a [f32], head: usize, i: usize) -> &'a [f32] {
    let group = head / (m.n_heads / m.n_groups);
    let at = m.d_inner() + i * m.d_states() + group * m.d_state;
    &xbc[at..at + m.d_state]
}

/// `y ⊙ silu(z)`.
fn gated(y: &Rows, z: &Rows) -> Rows {
    let row = |(y, z): (&Vec<f32>, &Vec<f32>)| {
        let gate = |(y, z): (&f32, &f32)| y * activate(Activation::Silu, *z);
        y.iter().zip(z).map(gate).collect()
    };
    y.iter().zip(z).map(row).collect()
}

/// Groups of elements, each normalized by itself.
fn normed_groups(m: &Mamba2, y: &[f32], weight: &[f32]) -> Vec<f32> {
    let d = m.d_inner() / m.n_groups;
    let groups = y.chunks_exact(d).zip(weight.chunks_exact(d));
    let norm = Norm::Rms { eps: m.eps };
    groups
        .flat_map(|(y, weight)| normalized(norm, y, weight, None))
        .collect()
}

fn softplus(x: f32) -> f64 {
    f64::from(x).exp().ln_1p()
}

/// `silu(conv(x) + bias)`; positions before the first are 0.
fn convolved(t: &Tensors, n_taps: usize, x: &Rows) -> Rows {
    let taps = t.vector(Role::SsmConv);
    let bias = t.vector_opt(Role::SsmConvBias);
    let d = taps.len() / n_taps;
    let element = |pos: usize, i: usize| {
        let first = (pos + 1).saturating_sub(n_taps);
        let tap = |j: usize| f64::from(taps[(n_taps - 1 - (pos - j)) * d + i]);
        let sum: f64 = (first..=pos).map(|j| tap(j) * f64::from(x[j][i])).sum();
        let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
        activate(Activation::Silu, (sum + bias) as f32)
    };
    let row = |pos| (0..d).map(|i| element(pos, i)).collect();
    (0..x.len()).map(row).collect()
}
