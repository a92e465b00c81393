//! Embeddings in every layer in the forward pass on a GPU, and the rows that bring them.
//!
//! ```text
//! x += post(Wo (act(Wg x) * p[l]))                        at the end of layer l
//! ```
//! The executor with the tokens computes `p`, the inputs of all layers: they come behind the
//! residual of a row, and lie here layer by layer, so that a gate reads those of its layer.

use super::pass::{Made, Recorded};
use crate::support::activation;
use crate::{AddNormed, Normed, ProductEnd, RowFunction};
use atta_model::spec::{LayerEmbed, ModelSpec, Norm};
use atta_model::{Batch, Input, Role};
use std::ops::Range;

impl Recorded<'_> {
    /// Adds the embedding of a layer.
    pub(super) fn layer_embedding(&mut self, l: usize, embed: &LayerEmbed) {
        let layout = self.parts.layout;
        let gate = (Role::InpGate, Some(l));
        let out = (Role::Proj, Some(l));
        self.enter_by(l, None, &[Role::InpGate]);
        self.product(gate, layout.input, layout.gate, ProductEnd::Set);
        let before = l - self.parts.weights.part().layers.start;
        let made = Made {
            function: RowFunction::Gate {
                activation: activation(embed.activation),
                up: layout.inputs + before as u32 * self.n_rows * embed.d as u32,
            },
            x: layout.gate,
            d: embed.d,
            n_rows: self.n_rows,
        };
        self.make(&made, layout.hidden, &[out]);
        self.product(out, layout.hidden, layout.y, ProductEnd::Set);
        let norm = Norm::Rms { eps: embed.eps };
        self.add(&AddNormed {
            norm: self.row_norm(norm, [Role::PostNorm; 2], Some(l)),
            normed: Normed::Result,
            n_rows: self.n_rows,
            d: self.spec().d_model as u32,
            n_weights: 1,
            x: layout.x,
            y: layout.y,
            factor: 1.0,
        });
    }
}

/// The hidden states of the rows of a batch, of width `d`.
fn hidden(batch: &Batch, d: usize) -> impl Iterator<Item = &[f32]> {
    batch.rows.iter().filter_map(move |row| match row.input {
        Input::Hidden(i) => Some(&batch.hidden[i * d..(i + 1) * d]),
        _ => None,
    })
}

fn bytes_of<'a>(floats: impl Iterator<Item = &'a f32>) -> Vec<u8> {
    floats.flat_map(|x| x.to_le_bytes()).collect()
}

/// The bytes of the residuals of all rows, `[n_rows, d_model]`.
pub(super) fn residuals_of(batch: &Batch, spec: &ModelSpec) -> Vec<u8> {
    let rows = hidden(batch, spec.d_residual());
    bytes_of(rows.flat_map(|row| &row[..spec.d_model]))
}

/// Those of the inputs of some layers, `[n_layers, n_rows, d]`; empty if layers have none.
pub(super) fn inputs_of(batch: &Batch, spec: &ModelSpec, layers: Range<usize>) -> Vec<u8> {
    let Some(LayerEmbed { d, .. }) = spec.layer_embed else {
        return Vec::new();
    };
    let of_layer = |l: usize| {
        let rows = hidden(batch, spec.d_residual());
        rows.flat_map(move |row| &row[spec.d_model + l * d..][..d])
    };
    bytes_of(layers.flat_map(of_layer))
}

/// What lies behind the residual in the hidden state of row `t`, which passes through unchanged.
pub(super) fn behind_residual<'a>(batch: &'a Batch, spec: &ModelSpec, t: usize) -> &'a [f32] {
    let d = spec.d_residual();
    match batch.rows[t].input {
        Input::Hidden(i) => &batch.hidden[i * d + spec.d_model..(i + 1) * d],
        _ => &[],
    }
}
