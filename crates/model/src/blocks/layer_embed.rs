//! Embeddings per layer: a small vector of each token for every layer, let into the residual stream
//! by a gate.
//!
//! ```text
//! p = norm(Wm x / sqrt(d_model))              two regions, once for all layers; x: the embedding
//! p = (p + table[token] * sqrt(d)) / sqrt(2)  serial: rows of the table are read from the file
//! y = Wo (act(Wg x) * p[l])                   three regions, at the end of layer l
//! x += post(y)                                residual.rs; or to other streams, alt_up.rs
//! ```

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::{Pass, mlp::act};
use crate::{Error, Phase, Role, spec::LayerEmbed};

/// Rows of the table that are read at once.
const TABLE_ROWS: usize = 32;

/// `p`, the inputs of all layers, of the token ids of all rows.
pub(crate) fn layer_inputs(p: &mut Pass<'_>, embed: &LayerEmbed, ids: &[u32]) -> Result<(), Error> {
    project(p, embed)?;
    let d_all = p.model.spec().layers.len() * embed.d;
    let token_scale = (embed.d as f32).sqrt();
    let kernels = p.kernels;
    let mut rows = p.s.layer_inputs.chunks_exact_mut(d_all);
    for ids in ids.chunks(TABLE_ROWS) {
        p.observer.enter(Phase::Weights);
        let group = WeightGroup::LayerEmbedRows(ids);
        let table = p.model.weights().chunk(group, 0)?;
        p.observer.enter(Phase::Other);
        for (i, row) in rows.by_ref().take(ids.len()).enumerate() {
            let token = &mut p.s.layer_token[..];
            kernels.decode_row(p.model.layer_embedding(&table, i), 0, token);
            row.iter_mut().zip(token).for_each(|(p, token)| {
                *p = (*p + token_scale * *token) * std::f32::consts::FRAC_1_SQRT_2;
            });
        }
    }
    Ok(())
}

/// `p = norm(Wm x / sqrt(d_model))`.
fn project(p: &mut Pass<'_>, embed: &LayerEmbed) -> Result<(), Error> {
    let n = p.rows.len();
    let spec = p.model.spec();
    let d = spec.d_model;
    let d_all = spec.layers.len() * embed.d;
    let t = p.model.globals();
    let kernels = p.kernels;
    let s = &mut *p.s;
    let x = &s.x;
    let layout = t.layouts(&[Role::PerLayerModelProj]);
    s.act.fill(kernels, p.pool, (n, d), layout, |row, out| {
        out.copy_from_slice(&x[row * d..(row + 1) * d]);
    });
    p.each_chunk(
        WeightGroup::Layer(0, Projection::LayerInputs),
        |p, chunk| {
            let job = Job {
                w: t.matrix(Role::PerLayerModelProj, chunk),
                bias: None,
                out: &mut p.s.layer_inputs[..n * d_all],
                mode: Store::Set,
            };
            p.products.matmul(&p.s.act, [job])
        },
    )?;
    // A factor of all elements is a factor of the epsilon.
    let eps = embed.eps * d as f32;
    let weight = t.vector(Role::PerLayerProjNorm);
    let inputs = &mut p.s.layer_inputs[..n * d_all];
    p.pool.for_each_row(inputs, embed.d, |_, part| {
        kernels.rms_norm_inplace(part, weight, eps);
    });
    Ok(())
}

/// `y = Wo (act(Wg x) * p[l])` for layer `l`.
pub(crate) fn layer_embedding(p: &mut Pass<'_>, l: usize, embed: &LayerEmbed) -> Result<(), Error> {
    let n = p.rows.len();
    let spec = p.model.spec();
    let d = spec.d_model;
    let d_all = spec.layers.len() * embed.d;
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let x = &s.x;
    let layout = t.layouts(&[Role::InpGate]);
    s.act.fill(kernels, p.pool, (n, d), layout, |row, out| {
        out.copy_from_slice(&x[row * d..(row + 1) * d]);
    });
    p.observe_inputs(l, &[Role::InpGate]);
    p.each_chunk(WeightGroup::Layer(l, Projection::EmbedGate), |p, chunk| {
        let job = Job {
            w: t.matrix(Role::InpGate, chunk),
            bias: None,
            out: &mut p.s.ff[..n * embed.d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })?;
    let activation = act(embed.activation);
    let s = &mut *p.s;
    let gates = &s.ff;
    let inputs = &s.layer_inputs;
    let layout = t.layouts(&[Role::Proj]);
    s.act
        .fill(kernels, p.pool, (n, embed.d), layout, |row, out| {
            out.copy_from_slice(&gates[row * embed.d..(row + 1) * embed.d]);
            let own = &inputs[row * d_all + l * embed.d..][..embed.d];
            kernels.gate_row(activation, out, own);
        });
    p.observe_inputs(l, &[Role::Proj]);
    p.each_chunk(WeightGroup::Layer(l, Projection::EmbedOut), |p, chunk| {
        let job = Job {
            w: t.matrix(Role::Proj, chunk),
            bias: None,
            out: &mut p.s.y[..n * d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}

/// `x *= out_scale` behind layer `l`, if the layer has one.
pub(crate) fn scale_residual(p: &mut Pass<'_>, l: usize) {
    let Some([scale]) = p.model.layer(l).vector_opt(Role::LayerOutputScale) else {
        return;
    };
    let d = p.model.spec().d_model;
    let x = &mut p.s.x[..p.rows.len() * d];
    p.pool
        .for_each_row(x, d, |_, x| x.iter_mut().for_each(|x| *x *= scale));
}
