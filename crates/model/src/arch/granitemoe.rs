//! Granite 3 with experts: a Granite whose layers have experts, some models one that is shared
//! without a gate.
//!
//! The weights of a position's experts are a softmax over the logits of the chosen ones, which is
//! the same as one over all of them, renormalized. Source: the model's code in Hugging Face
//! transformers (`granitemoe`, `granitemoeshared`).

use super::{
    experts::{experts, shared},
    granite,
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Moe},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_ff = m.size("feed_forward_length")?;
    let moe = Moe {
        shared: shared(m, d_ff)?,
        ..experts(m, d_ff)?
    };
    granite::scaled(m, backbone(m)?)?.experts(moe).build()
}
