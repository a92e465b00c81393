//! The oracle's embeddings per layer.

use atta_store::{Projection, WeightGroup};

use super::{Rows, decode, gated, map_rows, matrix, normalized, project};
use crate::{Error, Model, Role, spec::Norm};

/// What each layer gets of every position, `[n_layers * d]` each, from the embeddings `x`; empty
/// for a model without.
pub(super) fn inputs(model: &Model, tokens: &[u32], x: &Rows) -> Result<Rows, Error> {
    let spec = model.spec();
    let Some(embed) = &spec.layer_embed else {
        return Ok(Rows::new());
    };
    let t = model.globals();
    let group = WeightGroup::Layer(0, Projection::LayerInputs);
    let mut w = Rows::new();
    for i in 0..model.weights().n_chunks(group) {
        let chunk = model.weights().chunk(group, i)?;
        w.extend(decode(t.matrix(Role::PerLayerModelProj, &chunk)));
    }
    let table = WeightGroup::LayerEmbedRows(tokens);
    let table = model.weights().chunk(table, 0)?;
    let mut projected = project(&w, None, x);
    for (i, row) in projected.iter_mut().enumerate() {
        let token = decode(model.layer_embedding(&table, i)).concat();
        for (part, token) in row
            .chunks_exact_mut(embed.d)
            .zip(token.chunks_exact(embed.d))
        {
            part.iter_mut()
                .for_each(|p| *p /= (spec.d_model as f32).sqrt());
            let weight = t.vector(Role::PerLayerProjNorm);
            let normed = normalized(Norm::Rms { eps: embed.eps }, part, weight, None);
            for (p, (n, token)) in part.iter_mut().zip(normed.iter().zip(token)) {
                let sum = f64::from(*n) + f64::from(*token) * (embed.d as f64).sqrt();
                *p = (sum / 2_f64.sqrt()) as f32;
            }
        }
    }
    Ok(projected)
}

/// `post(W_out (act(W_gate x) * p))` for layer `l`, where `p` is its part of `inputs`; `None` for a
/// model without embeddings per layer.
pub(super) fn of_layer(
    model: &Model,
    l: usize,
    inputs: &Rows,
    x: &Rows,
) -> Result<Option<Rows>, Error> {
    let Some(embed) = &model.spec().layer_embed else {
        return Ok(None);
    };
    let t = model.layer(l);
    let gate = project(&matrix(model, l, Role::InpGate)?, None, x);
    let own = map_rows(inputs, |row| row[l * embed.d..(l + 1) * embed.d].to_vec());
    let y = gated(embed.activation, &gate, own);
    let y = project(&matrix(model, l, Role::Proj)?, None, &y);
    let norm = Norm::Rms { eps: embed.eps };
    let weight = t.vector(Role::PostNorm);
    Ok(Some(map_rows(&y, |y| normalized(norm, y, weight, None))))
}
