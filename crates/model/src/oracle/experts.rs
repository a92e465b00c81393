//! The oracle's mixture of experts: each position alone, all experts at hand, as the papers have
//! it.

use atta_store::{ChunkGuard, WeightGroup};

use super::{Rows, decode, dot, gated, matrix, normalized, project};
use crate::{
    Error, Model, Role,
    bind::Tensors,
    spec::{Gating, Moe, Norm},
};

/// The sum of the chosen experts' results and of the shared one's, for every row of `h`; a router
/// with a norm reads the residuals `x`.
pub(super) fn moe(model: &Model, l: usize, m: &Moe, x: &Rows, h: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let router = matrix(model, l, Role::FfnGateInp)?;
    let all: Vec<u32> = (0..m.n_experts as u32).collect();
    let experts = model.weights().chunk(WeightGroup::Experts(l, &all), 0)?;
    let shared_roles = [
        Role::FfnGateShexp,
        Role::FfnUpShexp,
        Role::FfnDownShexp,
        Role::FfnGateInpShexp,
    ];
    let shared = m
        .shared
        .iter()
        .flat_map(|_| shared_roles)
        .map(|role| matrix(model, l, role));
    let shared = shared.collect::<Result<Vec<_>, _>>()?;
    let d_model = model.spec().d_model;
    let routed = |residual: &[f32], h: &[f32]| match m.router_norm {
        Some(eps) => {
            let weight = t.vector(Role::FfnGateInpScale);
            let mut y = normalized(Norm::Rms { eps }, residual, weight, None);
            y.iter_mut().for_each(|y| *y /= (d_model as f32).sqrt());
            y
        }
        None => h.to_vec(),
    };
    let row = |(residual, x): (&Vec<f32>, &Vec<f32>)| {
        let mut sum = vec![0.0; x.len()];
        let inputs = routed(residual, x);
        for (e, weight) in chosen(m, t, &router, &inputs) {
            add(&mut sum, weight, &expert(m, t, (e, &experts), x));
        }
        if let (Some(mlp), [gate, up, down, open]) = (&m.shared, &shared[..]) {
            let x = vec![x.clone()];
            let inner = gated(
                mlp.activation,
                &project(gate, None, &x),
                project(up, None, &x),
            );
            let open = 1.0 / (1.0 + (-dot(&open[0], &x[0])).exp());
            add(&mut sum, open, &project(down, None, &inner)[0]);
        }
        sum.into_iter().map(|y| y as f32).collect()
    };
    Ok(x.iter().zip(h).map(row).collect())
}

/// The experts of a position and the factors of their results.
fn chosen(m: &Moe, t: &Tensors, router: &Rows, x: &[f32]) -> Vec<(usize, f64)> {
    let bias = |role, e: usize| t.vector_opt(role).map_or(0.0, |b| f64::from(b[e]));
    let logits: Vec<f64> = router
        .iter()
        .enumerate()
        .map(|(e, w)| dot(w, x) + bias(Role::FfnGateInpBias, e))
        .collect();
    let weights = weights(m.gating, &logits);
    let score = |e: usize| weights[e] + bias(Role::ExpProbsBias, e);
    let mut experts: Vec<usize> = (0..m.n_experts).collect();
    experts.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
    experts.truncate(m.n_used);
    let sum: f64 = if m.renormalize {
        experts.iter().map(|&e| weights[e]).sum()
    } else {
        1.0
    };
    experts
        .iter()
        .map(|&e| (e, weights[e] / sum * f64::from(m.weights_scale)))
        .collect()
}

/// From a router's logits to weights.
fn weights(gating: Gating, logits: &[f64]) -> Vec<f64> {
    match gating {
        Gating::Softmax => {
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = logits.iter().map(|z| (z - max).exp()).sum();
            logits.iter().map(|z| (z - max).exp() / all).collect()
        }
        Gating::Sigmoid => logits.iter().map(|z| 1.0 / (1.0 + (-z).exp())).collect(),
    }
}

fn expert(m: &Moe, t: &Tensors, (e, experts): (usize, &ChunkGuard<'_>), x: &[f32]) -> Vec<f32> {
    let product = |role, bias, x: &Rows| {
        let w = decode(t.expert(role, e, e, experts));
        project(&w, t.expert_bias(bias, e, w.len()), x)
    };
    let x = vec![x.to_vec()];
    let gate = product(Role::FfnGateExps, Role::FfnGateExpsBias, &x);
    let inner = gated(
        m.expert.activation,
        &gate,
        product(Role::FfnUpExps, Role::FfnUpExpsBias, &x),
    );
    product(Role::FfnDownExps, Role::FfnDownExpsBias, &inner).remove(0)
}

fn add(sum: &mut [f64], factor: f64, y: &[f32]) {
    sum.iter_mut()
        .zip(y)
        .for_each(|(sum, y)| *sum += factor * f64::from(*y));
}
