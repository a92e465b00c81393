//! Mamba and Falcon Mamba: layers of selective state spaces of channels, with nothing between them.
//!
//! Sources: Mamba (Gu & Dao 2023), section 3, and the models' code in Hugging Face transformers
//! (`mamba`, `falcon_mamba`), which has the epsilon of Falcon Mamba's norms.

use super::{llama_like::mixers, meta::Meta, ssm};
use crate::{
    Error,
    spec::{Mixer, ModelSpec, Norm, StateNorms},
};

/// Of the norms of Falcon Mamba's inputs of states. No key holds it.
const STATE_EPS: f32 = 1e-6;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let eps = m.positive("attention.layer_norm_rms_epsilon")?;
    let norms = match m.flag_opt("ssm.dt_b_c_rms")? {
        Some(true) => StateNorms::Unit { eps: STATE_EPS },
        Some(false) | None => StateNorms::None,
    };
    let mamba = ssm::mamba(m, norms)?;
    mixers(m, Norm::Rms { eps }, Mixer::Mamba(mamba))?.build()
}
