//! Draft heads of EAGLE-3: one layer of a llama, whose attention reads the embedding of a token and
//! three hidden states of the target, made one.
//!
//! Sources: Li et al. 2025 (EAGLE-3), section 3.1, and the published heads, whose files llama.cpp's
//! converter writes: with the target's vocabulary, and the tokens that the head can guess in the
//! tensor `d2t`. Its key `extract_layers` names layers of the target whose inputs the head reads.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Join, JoinKind, ModelSpec, Norm, Pairing, Presence, Tap},
};

/// `general.architecture` of its files.
pub(super) const NAME: &str = "eagle3";

pub(super) fn lower(m: &Meta<'_>, n_guessed: Option<usize>) -> Result<ModelSpec, Error> {
    let layers = llama_like(m)?;
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("a llama has RMS norms")
    };
    let taps = m.layer_list("extract_layers")?;
    let join = Join {
        kind: JoinKind::Beside {
            keeps_norm: m.flag_opt("norm_before_residual")?.unwrap_or(false),
        },
        eps,
        taps: taps.into_iter().map(Tap::Before).collect(),
        d_target: m.size("target_hidden_size")?,
        n_guessed: n_guessed.unwrap_or(m.n_vocab()?),
        first_block: 0,
    };
    layers
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .model(|model| model.join = Some(join))
        .build()
}
