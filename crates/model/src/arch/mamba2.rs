//! Mamba 2, such as Codestral Mamba: layers of selective state spaces, with nothing between them.
//!
//! Source: Transformers are SSMs (Dao & Gu 2024), section 7, and the model's code in Hugging Face
//! transformers (`mamba2`).

use super::{llama_like::mixers, meta::Meta, ssm};
use crate::{
    Error,
    spec::{Mixer, ModelSpec, Norm},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let eps = m.positive("attention.layer_norm_rms_epsilon")?;
    let mamba = ssm::mamba2(m, eps)?;
    mixers(m, Norm::Rms { eps }, Mixer::Mamba2(mamba))?.build()
}
