//! The oracle's multi-head latent attention, as in the paper: keys and values of every head are
//! computed, and nothing is absorbed.

use super::{Rows, map_rows, matrix, normalized, project, rotate, score};
use crate::{
    Error, Model, Role,
    spec::{Attention, Latent, LatentUp, Norm},
};

/// The result of the mixer for every position.
pub(super) fn attention(
    model: &Model,
    l: usize,
    a: &Attention,
    latent: &Latent,
    h: &Rows,
) -> Result<Rows, Error> {
    let t = model.layer(l);
    let norm = Norm::Rms { eps: latent.eps };
    let kv = project(&matrix(model, l, Role::AttnKvA)?, None, h);
    let weight = t.vector(Role::AttnKvANorm);
    let c = map_rows(&kv, |kv| {
        normalized(norm, &kv[..latent.d_latent], weight, None)
    });
    let [up_k, up_v] = up(model, l, a, latent)?;
    let all = Heads {
        model,
        a,
        latent,
        sinks: t.vector_opt(Role::AttnSinks),
        q: queries(model, l, latent, h)?,
        k_rope: map_rows(&kv, |kv| kv[latent.d_latent..].to_vec()),
    };
    let mut y = vec![Vec::new(); h.len()];
    for (i, (up_k, up_v)) in up_k.iter().zip(&up_v).enumerate() {
        let head = all.attend(i, &project(up_k, None, &c), &project(up_v, None, &c));
        y.iter_mut().zip(head).for_each(|(y, head)| y.extend(head));
    }
    let bias = t.vector_opt(Role::AttnOutputBias);
    Ok(project(&matrix(model, l, Role::AttnOutput)?, bias, &y))
}

/// Queries of all heads, `[n_heads, d_key + d_rope]` of a position.
fn queries(model: &Model, l: usize, latent: &Latent, h: &Rows) -> Result<Rows, Error> {
    if latent.d_query.is_none() {
        return Ok(project(&matrix(model, l, Role::AttnQ)?, None, h));
    }
    let norm = Norm::Rms { eps: latent.eps };
    let weight = model.layer(l).vector(Role::AttnQANorm);
    let q = project(&matrix(model, l, Role::AttnQA)?, None, h);
    let q = map_rows(&q, |q| normalized(norm, q, weight, None));
    Ok(project(&matrix(model, l, Role::AttnQB)?, None, &q))
}

/// The projections of keys and of values from a latent vector, a matrix for each head.
fn up(model: &Model, l: usize, a: &Attention, latent: &Latent) -> Result<[Vec<Rows>; 2], Error> {
    let heads = |role| Ok::<_, Error>(per_head(&matrix(model, l, role)?, a.n_heads));
    if latent.up == LatentUp::Split {
        let k = heads(Role::AttnKB)?;
        return Ok([k.iter().map(transposed).collect(), heads(Role::AttnVB)?]);
    }
    let both = heads(Role::AttnKvB)?.into_iter().map(|mut k| {
        let v = k.split_off(latent.d_key);
        (k, v)
    });
    let (k, v) = both.unzip();
    Ok([k, v])
}

fn per_head(rows: &Rows, n_heads: usize) -> Vec<Rows> {
    let n = rows.len() / n_heads;
    rows.chunks(n).map(<[_]>::to_vec).collect()
}

fn transposed(rows: &Rows) -> Rows {
    let column = |i: usize| rows.iter().map(|row| row[i]).collect();
    (0..rows[0].len()).map(column).collect()
}

/// What the heads of a layer attend with.
struct Heads<'a> {
    model: &'a Model,
    a: &'a Attention,
    latent: &'a Latent,
    sinks: Option<&'a [f32]>,
    /// Queries of all heads.
    q: Rows,
    /// The part of keys that is rotated, the same for all heads.
    k_rope: Rows,
}

impl Heads<'_> {
    /// The results of head `i`, whose keys before the rotated part and values are `k` and `v`.
    fn attend(&self, i: usize, k: &Rows, v: &Rows) -> Rows {
        let n = k.len();
        let d = self.latent.d_key + self.a.d_rotatable();
        let keys: Rows = (0..n)
            .map(|pos| [&k[pos][..], &self.turned(&self.k_rope[pos], pos)].concat())
            .collect();
        let row = |pos: usize| {
            let (q, q_rope) = self.q[pos][i * d..(i + 1) * d].split_at(self.latent.d_key);
            let mut q = [q, &self.turned(q_rope, pos)].concat();
            if let Some(temperature) = self.a.temperature {
                q.iter_mut().for_each(|q| *q *= temperature.at(pos));
            }
            self.mix(i, &q, &keys, v, pos)
        };
        (0..n).map(row).collect()
    }

    fn turned(&self, part: &[f32], pos: usize) -> Vec<f32> {
        let mut part = part.to_vec();
        if let Some(rope) = &self.a.rope {
            let factors = self.model.globals().rope_factors();
            rotate(rope, factors, &mut part, (pos, self.q.len()));
        }
        part
    }

    /// `softmax(scale * q · K, sink) V` of the query at `pos`.
    fn mix(&self, i: usize, q: &[f32], keys: &Rows, values: &Rows, pos: usize) -> Vec<f32> {
        let first = self.a.first_visible(pos);
        let last = self.a.last_visible(pos, keys.len());
        let visible = keys[first..=last].iter();
        let scores: Vec<f64> = visible.map(|k| score(self.a, q, k)).collect();
        let sink = self.sinks.map(|sinks| f64::from(sinks[i]));
        let weights = softmax(&scores, sink);
        let mut y = vec![0.0; self.latent.d_value];
        for (value, weight) in values[first..=last].iter().zip(weights) {
            let value = value.iter().map(|&v| weight * f64::from(v));
            y.iter_mut().zip(value).for_each(|(y, v)| *y += v);
        }
        y.into_iter().map(|y| y as f32).collect()
    }
}

/// The weights of scores beside that of a sink.
fn softmax(scores: &[f64], sink: Option<f64>) -> Vec<f64> {
    let all = scores.iter().copied().chain(sink);
    let max = all.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = all.map(|s| (s - max).exp()).sum();
    scores.iter().map(|s| (s - max).exp() / sum).collect()
}
