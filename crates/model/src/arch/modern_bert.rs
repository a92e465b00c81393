//! ModernBERT: an encoder with norms before the blocks, none before the first attention, a rope and
//! a GELU-gated MLP; two of three layers see a window around each position.
//!
//! Source: Warner et al. 2024, section 2.1.

use super::{
    bert_like::{encoder, mlp, windowed},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Norm, Presence, Wiring},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let norm = Norm::LayerNoBias {
        eps: m.positive("attention.layer_norm_epsilon")?,
    };
    // Its classifier has a norm, and pools as the file says.
    if let Some(n) = m.list_len_opt("classifier.output_labels")? {
        return Err(m.unsupported("classifier.output_labels", format!("a list of {n}")));
    }
    let activation = match m.text_opt("hidden_activation")? {
        None | Some("gelu") => Activation::Gelu,
        Some("silu") => Activation::Silu,
        Some(other) => return Err(m.unsupported("hidden_activation", other)),
    };
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let every = m.size_opt("attention.sliding_window_pattern")?.unwrap_or(3);
    let is_windowed: Vec<bool> = (0..m.n_layers()?).map(|l| l % every != 0).collect();
    let mlp = mlp(m, activation, Presence::Absent)?;
    let builder = encoder(m, norm, Ffn::Gated(mlp))?.model(|model| model.embed_norm = Some(norm));
    let mut spec = windowed(m, builder, &is_windowed, base)?;
    if let Wiring::Sequential { pre, .. } = &mut spec.layers[0].wiring {
        pre[0] = None;
    }
    Ok(spec)
}
