//! JinaBERT 2: BERT whose attention falls with distance in place of positions, with a GELU-gated
//! MLP.
//!
//! Norms of queries and keys, which the model for code has, are not supported: its file has tensors
//! that this spec does not use.
//!
//! Source: Guenther et al. 2023, section 2; slopes as of Press et al. 2022.

use super::{
    bert_like::{bert_like, mlp},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Presence},
};

/// Files do not say it: the steepest slope is `2^(-8 / n_heads)`.
const MAX_SLOPE: f32 = 8.0;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mlp = mlp(m, Activation::Gelu, Presence::Optional)?;
    bert_like(m, Ffn::Gated, mlp)?
        .qkv_bias(Presence::Required)
        .out_bias(Presence::Required)
        .attention(|a| {
            a.rope = None;
            a.slopes = Some(MAX_SLOPE);
        })
        .build()
}
