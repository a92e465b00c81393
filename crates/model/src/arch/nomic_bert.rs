//! Nomic BERT: BERT with a rope, a SiLU-gated MLP, and biases of its norms only.
//!
//! Source: Nussbaum et al. 2024, section 3.1.

use super::{
    bert_like::{bert_like, mlp},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mlp = mlp(m, Activation::Silu, Presence::Absent)?;
    bert_like(m, Ffn::Gated, mlp)?.build()
}
