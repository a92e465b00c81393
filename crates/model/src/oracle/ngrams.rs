//! The oracle's embeddings of n-grams.

use atta_store::WeightGroup;

use super::{Rows, activate, add, decode, dot, map_rows, matrix, normalized, project, sigmoid};
use crate::{
    Error, Model, Role,
    spec::{Activation, NgramEmbed, Norm},
};

/// `x += u + silu(conv(norm(u)))` before the mixer of layer `l`.
pub(super) fn add_to(
    model: &Model,
    l: usize,
    embed: &NgramEmbed,
    tokens: &[u32],
    x: &mut Rows,
) -> Result<(), Error> {
    let d = model.spec().d_model;
    let e = (0..tokens.len())
        .map(|pos| rows_at(model, embed, tokens, pos))
        .collect::<Result<Rows, Error>>()?;
    let keys = project(&matrix(model, l, Role::PleKey)?, None, &e);
    let values = project(&matrix(model, l, Role::PleValue)?, None, &e);
    let norms = Norms { model, l, embed };
    let gated = |pos: usize| {
        let queries = norms.of(Role::PleNormQuery, &x[pos]);
        let keys = norms.of(Role::PleNormKey, &keys[pos]);
        let scores = queries.iter().zip(&keys);
        let gates = scores.map(|(q, k)| gate(dot(q, k) / (d as f64).sqrt()));
        let scaled = |gate: f64| {
            values[pos]
                .iter()
                .map(move |&v| (gate * f64::from(v)) as f32)
        };
        gates.flat_map(scaled).collect::<Vec<f32>>()
    };
    let u: Rows = (0..tokens.len()).map(gated).collect();
    let inputs = map_rows(&u, |u| norms.of(Role::PleNormConv, u).concat());
    add(x, &u, 1.0);
    let taps = model.layer(l).vector(Role::PleConv1d);
    add(x, &convolved(embed, &inputs, taps), 1.0);
    Ok(())
}

/// The norms of each stream by itself.
struct Norms<'a> {
    model: &'a Model,
    l: usize,
    embed: &'a NgramEmbed,
}

impl Norms<'_> {
    /// The normalized streams of a vector of all.
    fn of(&self, role: Role, x: &[f32]) -> Rows {
        let d = self.model.spec().d_model;
        let norm = Norm::Rms {
            eps: self.embed.eps,
        };
        let weights = self.model.layer(self.l).vector(role);
        let streams = x.chunks_exact(d).zip(weights.chunks_exact(d));
        streams
            .map(|(x, weight)| normalized(norm, x, weight, None))
            .collect()
    }
}

/// The embedding of the n-grams that end at `pos`.
fn rows_at(
    model: &Model,
    embed: &NgramEmbed,
    tokens: &[u32],
    pos: usize,
) -> Result<Vec<f32>, Error> {
    let text = &tokens[..pos];
    let start = text.iter().rposition(|&id| id == embed.eos).unwrap_or(0);
    let token = |back: usize| match pos.checked_sub(back).filter(|&at| at >= start) {
        Some(at) => tokens[at],
        None => embed.eos,
    };
    let mut e = Vec::new();
    for (i, table) in embed.tables.iter().enumerate() {
        let products = (0..embed.n_tokens_of(i))
            .map(|back| i128::from(token(back)) * i128::from(embed.multipliers[back]));
        let mix = products.fold(0, |mix, product| mix ^ product);
        let row = i128::from(table.first) + mix % i128::from(table.n_rows);
        let rows = [row as u32];
        let group = WeightGroup::LayerEmbedRows(&rows);
        let chunk = model.weights().chunk(group, 0)?;
        e.extend(decode(model.layer_embedding(&chunk, 0)).concat());
    }
    Ok(e)
}

/// `sigmoid(sign(score) sqrt(max(|score|, 1e-6)))`.
fn gate(score: f64) -> f64 {
    let sign = if score == 0.0 { 0.0 } else { score.signum() };
    sigmoid(sign * score.abs().max(1e-6).sqrt())
}

/// `silu(conv(x))`; positions before the first are 0.
fn convolved(embed: &NgramEmbed, x: &Rows, taps: &[f32]) -> Rows {
    let d = x.first().map_or(0, Vec::len);
    let element = |pos: usize, i: usize| {
        let terms = (0..embed.n_taps).filter_map(|j| {
            let at = pos.checked_sub(j * embed.dilation)?;
            let tap = taps[(embed.n_taps - 1 - j) * d + i];
            Some(f64::from(tap) * f64::from(x[at][i]))
        });
        activate(Activation::Silu, terms.sum::<f64>() as f32)
    };
    let row = |pos| (0..d).map(|i| element(pos, i)).collect();
    (0..x.len()).map(row).collect()
}
