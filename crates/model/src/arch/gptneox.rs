//! GPT-NeoX and Pythia: a GPT with attention and MLP in parallel, behind a norm each; part of each
//! head rotates.
//!
//! Source: GPT-NeoX-20B (Black et al. 2022), section 2.1; Pythia (Biderman et al. 2023).

use super::{llama_like::gpt_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let is_parallel = m.flag_opt("use_parallel_residual")?;
    let is_parallel = is_parallel.ok_or_else(|| m.missing("use_parallel_residual"))?;
    let layers = gpt_like(m)?
        .activation(Activation::Gelu)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional);
    match is_parallel {
        true => layers.parallel_with_two_norms().build(),
        false => layers.build(),
    }
}
