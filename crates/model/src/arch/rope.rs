//! The rotation that the usual keys describe.
//!
//! Sources: the GGUF specification, and for what the YaRN keys mean `_compute_yarn_parameters` of
//! Hugging Face transformers, from whose configuration converters copy them.

use super::meta::Meta;
use crate::{
    Error,
    spec::{Pairing, Presence, RampEnds, Rope, RopeScaling, Yarn, yarn_magnitude},
};

/// The rotation of heads of `d_head`.
pub(super) fn rope(m: &Meta<'_>, d_head: usize) -> Result<Rope, Error> {
    let scaling = scaling(m, n_ctx_orig(m)?)?;
    Ok(Rope {
        d_rope: m.size_opt("rope.dimension_count")?.unwrap_or(d_head),
        base: m.positive_opt("rope.freq_base")?.unwrap_or(10_000.0),
        pairing: Pairing::Halves,
        magnitude: magnitude(m, scaling)?,
        scaling,
        factors: Presence::Absent,
    })
}

fn scaling(m: &Meta<'_>, n_ctx_orig: usize) -> Result<RopeScaling, Error> {
    // `rope.scale_linear` is how files of 2023 say it.
    let legacy = m.positive_opt("rope.scale_linear")?;
    let factor = m.positive_opt("rope.scaling.factor")?.or(legacy);
    let demanded = || factor.ok_or_else(|| m.missing("rope.scaling.factor"));
    match m.text_opt("rope.scaling.type")? {
        Some("none") => Ok(RopeScaling::None),
        None | Some("linear") => match factor {
            None | Some(1.0) => Ok(RopeScaling::None),
            Some(factor) => Ok(RopeScaling::Linear { factor }),
        },
        Some("dynamic") => Ok(RopeScaling::Dynamic {
            factor: demanded()?,
            n_ctx_orig,
        }),
        Some("yarn") => yarn(m, demanded()?, n_ctx_orig),
        Some("longrope") => Ok(RopeScaling::Long {
            n_ctx_orig,
            factors: Presence::Required,
        }),
        Some(other) => Err(m.unsupported("rope.scaling.type", other)),
    }
}

/// Positions of the original training.
pub(super) fn n_ctx_orig(m: &Meta<'_>) -> Result<usize, Error> {
    match m.size_opt("rope.scaling.original_context_length")? {
        Some(n) => Ok(n),
        None => m.size("context_length"),
    }
}

fn yarn(m: &Meta<'_>, factor: f32, n_ctx_orig: usize) -> Result<RopeScaling, Error> {
    match m.number_opt("rope.scaling.yarn_ext_factor")? {
        None | Some(1.0) => {}
        Some(other) => return Err(m.unsupported("rope.scaling.yarn_ext_factor", other)),
    }
    Ok(RopeScaling::Yarn(Yarn {
        factor,
        n_ctx_orig,
        beta_fast: m
            .positive_opt("rope.scaling.yarn_beta_fast")?
            .unwrap_or(32.0),
        beta_slow: m
            .positive_opt("rope.scaling.yarn_beta_slow")?
            .unwrap_or(1.0),
        ends: RampEnds::Whole,
    }))
}

/// What the rotated elements are multiplied by: given, or for YaRN computed from the factor.
fn magnitude(m: &Meta<'_>, scaling: RopeScaling) -> Result<f32, Error> {
    let given = m.positive_opt("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let RopeScaling::Yarn(Yarn { factor, .. }) = scaling else {
        return Ok(given);
    };
    let own = match m.positive_opt("rope.scaling.yarn_attn_factor")? {
        Some(own) => f64::from(own),
        None => {
            let all_dims = m
                .number_opt("rope.scaling.yarn_log_multiplier")?
                .unwrap_or(0.0);
            yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, all_dims)
        }
    };
    Ok((own * f64::from(given)) as f32)
}
