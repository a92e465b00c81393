//! ModernBERT: an encoder with norms before the blocks, none before the first attention, a rope and
//! a GELU-gated MLP; two of three layers see a window around each position.
//!
//! Source: Warner et al. 2024, section 2.1.

use super::{
    bert_like::{encoder, mlp, windowed},
    llama_like::no_experts,
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        Activation, Ffn, ModelSpec, Norm, Outputs, Presence, ScoreActivation, ScoreHead,
        ScoreInput, Wiring,
    },
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let norm = Norm::LayerNoBias {
        eps: m.positive("attention.layer_norm_epsilon")?,
    };
    no_experts(m)?;
    let outputs = outputs(m, norm)?;
    let activation = match m.text_opt("hidden_activation")? {
        None | Some("gelu") => Activation::Gelu,
        Some("silu") => Activation::Silu,
        Some(other) => return Err(m.unsupported("hidden_activation", other)),
    };
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let every = m.size_opt("attention.sliding_window_pattern")?.unwrap_or(3);
    let is_windowed: Vec<bool> = (0..m.n_layers()?).map(|l| l % every != 0).collect();
    let mlp = mlp(m, activation, Presence::Absent)?;
    let builder = encoder(m, norm, Ffn::Gated(mlp))?.model(|model| {
        model.embed_norm = Some(norm);
        model.head.outputs = outputs;
    });
    let mut spec = windowed(m, builder, &is_windowed, base)?;
    if let Wiring::Sequential { pre, .. } = &mut spec.layers[0].wiring {
        pre[0] = None;
    }
    Ok(spec)
}

/// `classifier.pooling_type` (llama.cpp, `enum llama_pooling_type`).
const POOLING_MEAN: u64 = 1;
const POOLING_CLS: u64 = 2;

/// A classifier in files that name labels: of the mean, unless the file says otherwise.
fn outputs(m: &Meta<'_>, norm: Norm) -> Result<Outputs, Error> {
    let Some(n) = m.list_len_opt("classifier.output_labels")? else {
        return Ok(Outputs::Hidden);
    };
    let reads = match m.count("classifier.pooling_type")? {
        0 | POOLING_MEAN => ScoreInput::Mean,
        POOLING_CLS => ScoreInput::First,
        other => return Err(m.unsupported("classifier.pooling_type", other)),
    };
    Ok(Outputs::Scores(ScoreHead {
        n,
        reads,
        activation: ScoreActivation::Gelu,
        bias: Presence::Absent,
        norm: Some(norm),
    }))
}
