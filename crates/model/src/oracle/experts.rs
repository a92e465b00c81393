//! The oracle's mixture of experts: each position alone, all experts at hand, as the papers have
//! it.

use atta_store::{ChunkGuard, WeightGroup};

use super::{Rows, activate, decode, dot, gated, map_rows, matrix, normalized, project, sigmoid};
use crate::{
    Error, Model, Role,
    bind::Tensors,
    spec::{
        Activation, ExpertGroups, Gating, GroupScore, Moe, Norm, Presence, SharedExpert,
        WeightedSide,
    },
};

/// The sum of the chosen experts' results and of the shared one's, for every row of `h`; a router
/// with a norm reads the residuals `x`.
pub(super) fn moe(model: &Model, l: usize, m: &Moe, x: &Rows, h: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let router = matrix(model, l, Role::FfnGateInp)?;
    let all: Vec<u32> = (0..m.n_experts as u32).collect();
    let experts = model.weights().chunk(WeightGroup::Experts(l, &all), 0)?;
    let shared = m
        .shared
        .as_ref()
        .map(|shared| Shared::new(model, l, shared, m.has_gates));
    let shared = shared.transpose()?;
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
            let (x, factor) = match m.weighted {
                WeightedSide::Output => (x.clone(), weight),
                WeightedSide::Input => (scaled(x, weight), 1.0),
            };
            add(&mut sum, factor, &expert(m, t, (e, &experts), &x));
        }
        if let Some(bias) = t.vector_opt(Role::FfnDownBias) {
            let bias = bias.iter().filter(|_| m.sum_bias != Presence::Absent);
            sum.iter_mut()
                .zip(bias)
                .for_each(|(y, b)| *y += f64::from(*b));
        }
        if let Some(shared) = &shared {
            shared.add_to(&mut sum, x);
        }
        sum.into_iter().map(|y| y as f32).collect()
    };
    Ok(x.iter().zip(h).map(row).collect())
}

fn scaled(x: &[f32], factor: f64) -> Vec<f32> {
    x.iter().map(|x| (f64::from(*x) * factor) as f32).collect()
}

/// A shared expert and its matrices.
struct Shared<'a> {
    spec: &'a SharedExpert,
    /// Of experts with gates.
    gate: Option<Rows>,
    up: Rows,
    down: Rows,
    /// A matrix of one row, if the expert is gated.
    open: Option<Rows>,
}

impl<'a> Shared<'a> {
    fn new(
        model: &Model,
        l: usize,
        spec: &'a SharedExpert,
        has_gates: bool,
    ) -> Result<Self, Error> {
        let gate = has_gates.then_some(Role::FfnGateShexp);
        let open = spec.is_gated.then_some(Role::FfnGateInpShexp);
        Ok(Self {
            spec,
            gate: gate.map(|role| matrix(model, l, role)).transpose()?,
            up: matrix(model, l, Role::FfnUpShexp)?,
            down: matrix(model, l, Role::FfnDownShexp)?,
            open: open.map(|role| matrix(model, l, role)).transpose()?,
        })
    }

    fn add_to(&self, sum: &mut [f64], x: &[f32]) {
        let rows = vec![x.to_vec()];
        let gate = self.gate.as_ref().map(|gate| project(gate, None, &rows));
        let up = project(&self.up, None, &rows);
        let inner = hidden(self.spec.mlp.activation, gate, up);
        let open = self
            .open
            .as_ref()
            .map_or(1.0, |open| sigmoid(dot(&open[0], x)));
        add(sum, open, &project(&self.down, None, &inner)[0]);
    }
}

/// The experts of a position and the factors of their results.
fn chosen(m: &Moe, t: &Tensors, router: &Rows, x: &[f32]) -> Vec<(usize, f64)> {
    let bias = |role, e: usize| t.vector_opt(role).map_or(0.0, |b| f64::from(b[e]));
    let logits: Vec<f64> = router
        .iter()
        .enumerate()
        .map(|(e, w)| dot(w, x) + bias(Role::FfnGateInpBias, e))
        .collect();
    if let Gating::SparseMixer { tolerance } = m.gating {
        return mixed(m, tolerance.into(), &logits);
    }
    let weights = weights(m.gating, &logits);
    let scores: Vec<f64> = weights
        .iter()
        .enumerate()
        .map(|(e, weight)| weight + bias(Role::ExpProbsBias, e))
        .collect();
    let mut experts: Vec<usize> = (0..m.n_experts).collect();
    if let Some(groups) = &m.groups {
        let allowed = allowed(groups, &scores);
        experts.retain(|e| allowed[*e]);
    }
    experts.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
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
        Gating::Sigmoid => logits.iter().map(|z| sigmoid(*z)).collect(),
        Gating::SparseMixer { .. } => unreachable!("its weights depend on what was chosen before"),
    }
}

/// Whether each expert is in one of the groups in use.
fn allowed(groups: &ExpertGroups, scores: &[f64]) -> Vec<bool> {
    let n_each = scores.len() / groups.n_groups;
    let score = |group: usize| {
        let mut scores = scores[group * n_each..][..n_each].to_vec();
        scores.sort_by(|a, b| b.total_cmp(a));
        match groups.score {
            GroupScore::Best => scores[0],
            GroupScore::BestTwo => scores[0] + scores[1],
        }
    };
    let mut best: Vec<usize> = (0..groups.n_groups).collect();
    best.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
    best.truncate(groups.n_used);
    (0..scores.len())
        .map(|e| best.contains(&(e / n_each)))
        .collect()
}

/// The experts that a sparse mixer chooses one after another, and their factors.
fn mixed(m: &Moe, tolerance: f64, logits: &[f64]) -> Vec<(usize, f64)> {
    let mut left: Vec<usize> = (0..logits.len()).collect();
    left.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let share = |first: usize| {
        let z = logits[left[first]];
        let near = left[first..].iter().map(|&e| logits[e]);
        let near = near.filter(|y| z - y <= tolerance * y.abs().max(z));
        1.0 / near.map(|y| (y - z).exp()).sum::<f64>()
    };
    let shares: Vec<f64> = (0..m.n_used).map(share).collect();
    let sum = if m.renormalize {
        shares.iter().sum()
    } else {
        1.0
    };
    let factor = |share: f64| share / sum * f64::from(m.weights_scale);
    left.iter()
        .zip(shares)
        .map(|(&e, s)| (e, factor(s)))
        .collect()
}

fn expert(m: &Moe, t: &Tensors, (e, experts): (usize, &ChunkGuard<'_>), x: &[f32]) -> Vec<f32> {
    let product = |role, bias, x: &Rows| {
        let w = decode(t.expert(role, e, e, experts));
        project(&w, t.expert_bias(bias, e, w.len()), x)
    };
    let x = vec![x.to_vec()];
    let gate = || product(Role::FfnGateExps, Role::FfnGateExpsBias, &x);
    let up = product(Role::FfnUpExps, Role::FfnUpExpsBias, &x);
    let inner = hidden(m.expert.activation, m.has_gates.then(gate), up);
    product(Role::FfnDownExps, Role::FfnDownExpsBias, &inner).remove(0)
}

/// `activation(gate) * up`, or `activation(up)` without a gate.
fn hidden(activation: Activation, gate: Option<Rows>, up: Rows) -> Rows {
    match gate {
        Some(gate) => gated(activation, &gate, up),
        None => map_rows(&up, |up| {
            up.iter().map(|u| activate(activation, *u)).collect()
        }),
    }
}

fn add(sum: &mut [f64], factor: f64, y: &[f32]) {
    sum.iter_mut()
        .zip(y)
        .for_each(|(sum, y)| *sum += factor * f64::from(*y));
}
