//! What BERT and its kin share: every position sees all others, and the results are vectors or
//! scores of a text.

use super::{
    llama_like::{Builder, layers, no_experts},
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        Activation, Ffn, Mask, Mlp, ModelSpec, Norm, Outputs, Presence, ScoreHead, TokenTypes,
        Wiring,
    },
};

/// `pooling_type` of files for reranking (llama.cpp, `enum llama_pooling_type`).
const POOLING_RANK: u64 = 4;

/// An encoder with a norm behind each addition, LayerNorm, and the sum of a token's embeddings
/// normalized.
pub(super) fn bert_like(m: &Meta<'_>, ffn: fn(Mlp) -> Ffn, mlp: Mlp) -> Result<Builder, Error> {
    no_experts(m)?;
    bert_or_experts(m, ffn, mlp)
}

/// As [`bert_like`], of an architecture that may have experts, which the caller adds.
pub(super) fn bert_or_experts(
    m: &Meta<'_>,
    ffn: fn(Mlp) -> Ffn,
    mlp: Mlp,
) -> Result<Builder, Error> {
    let norm = Norm::Layer {
        eps: m.positive("attention.layer_norm_epsilon")?,
    };
    let token_types = match m.n_token_types()? {
        0 => TokenTypes::None,
        n => TokenTypes::Learned(n),
    };
    let outputs = outputs(m)?;
    let builder = encoder(m, norm, ffn(mlp))?
        .layer(|layer| layer.wiring = Wiring::PostNorm { norms: [norm; 2] })
        .model(|model| {
            model.token_types = token_types;
            model.embed_norm = Some(norm);
            model.head.norm = None;
            model.head.outputs = outputs;
        });
    Ok(builder)
}

/// Layers that see the whole text, and no logits.
pub(super) fn encoder(m: &Meta<'_>, norm: Norm, ffn: Ffn) -> Result<Builder, Error> {
    if m.flag_opt("attention.causal")? == Some(true) {
        return Err(m.unsupported("attention.causal", true));
    }
    let builder = layers(m, norm, ffn)?;
    Ok(builder
        .attention(|a| a.mask = Mask::Full)
        .model(|model| model.head.outputs = Outputs::Hidden))
}

/// The finished spec of an encoder. The layers that `is_windowed` names see a window around each
/// position, and rotate by `base`.
pub(super) fn windowed(
    m: &Meta<'_>,
    builder: Builder,
    is_windowed: &[bool],
    base: f32,
) -> Result<ModelSpec, Error> {
    let window = m.size_opt("attention.sliding_window")?;
    builder.build_each(|l, layer| {
        if let Some(window) = window.filter(|_| is_windowed[l]) {
            let a = layer.attention_mut();
            a.mask = Mask::Around(window / 2);
            if let Some(rope) = &mut a.rope {
                rope.base = base;
            }
        }
    })
}

/// Sizes of an MLP from the usual keys.
pub(super) fn mlp(m: &Meta<'_>, activation: Activation, bias: Presence) -> Result<Mlp, Error> {
    Ok(Mlp {
        d_ff: m.size("feed_forward_length")?,
        activation,
        bias,
        sub_norm: None,
    })
}

/// Scores where the file names labels or says that it is for reranking, which older files do.
fn outputs(m: &Meta<'_>) -> Result<Outputs, Error> {
    let n_labels = m.list_len_opt("classifier.output_labels")?;
    Ok(match n_labels {
        Some(n) => Outputs::Scores(ScoreHead::of_bert(n)),
        None if m.count("pooling_type")? == POOLING_RANK => Outputs::Scores(ScoreHead::of_bert(1)),
        None => Outputs::Hidden,
    })
}
