//! DeepSeek-V2 and V3, GLM-4.7-Flash, and Youtu-LLM (dense): multi-head latent attention; dense
//! layers first and experts in the others, some of them shared without a gate.
//!
//! Experts are chosen from the best groups; V3 has sigmoids and a bias for the choice. YaRN also
//! multiplies scores: by the square of `1 + 0.1 m ln factor`, where the file has `m / 10`. Sources:
//! the reports (DeepSeek-AI 2024), and the models' code in Hugging Face transformers.

use super::{
    experts::{expert_layers, gating, groups, routed, shared},
    latent::{Heads, latent_like},
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        Attention, Gating, GroupScore, LatentUp, ModelSpec, Moe, Pairing, Presence, RopeScaling,
        yarn_magnitude,
    },
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    if let Some(scale) = m.number_opt("attention.temperature_scale")? {
        return Err(m.unsupported("attention.temperature_scale", scale));
    }
    let yarn = YarnFactors::read(m)?;
    let layers = latent_like(m, &heads(m)?)?
        .pairing(Pairing::Adjacent)
        .attention(|a| yarn.apply(a));
    let d_expert = m.size("expert_feed_forward_length")?;
    let shared = shared(m, d_expert)?;
    let has_experts = expert_layers(m)?;
    if !has_experts.contains(&true) {
        return layers.build();
    }
    let moe = Moe {
        shared,
        ..experts(m, d_expert)?
    };
    layers.build_experts(&moe, &has_experts)
}

/// What YaRN multiplies by, where the file says what scores are multiplied by.
struct YarnFactors {
    /// Of the logarithm in the factor of scores.
    scores: Option<f32>,
    /// Of rotated elements.
    rotated: f32,
}

impl YarnFactors {
    fn read(m: &Meta<'_>) -> Result<Self, Error> {
        // The file has a tenth of it.
        let tenth = m.number_opt("rope.scaling.yarn_log_multiplier")?;
        let given = m.positive_opt("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let own = m.positive_opt("rope.scaling.yarn_attn_factor")?;
        Ok(Self {
            scores: tenth.map(|tenth| 10.0 * tenth),
            rotated: given * own.unwrap_or(1.0),
        })
    }

    fn apply(&self, a: &mut Attention) {
        let (Some(rope), Some(weight)) = (&mut a.rope, self.scores) else {
            return;
        };
        if let RopeScaling::Yarn(yarn) = rope.scaling {
            let magnitude = yarn_magnitude(yarn.factor, weight);
            a.scale = (f64::from(a.scale) * magnitude * magnitude) as f32;
            rope.magnitude = self.rotated;
        }
    }
}

/// The widths of heads. Files from before April 2025 count them before matrices are absorbed, and
/// have the projections of keys and values in one tensor.
fn heads(m: &Meta<'_>) -> Result<Heads, Error> {
    let d_key = m.size("attention.key_length")?;
    let d_value = m.size("attention.value_length")?;
    let Some(d_head) = m.size_opt("attention.key_length_mla")? else {
        return Ok(Heads {
            d_head: d_key,
            d_value,
            up: LatentUp::Joint,
        });
    };
    let d_latent = m.size("attention.kv_lora_rank")?;
    if d_value != d_latent {
        return Err(m.unsupported("attention.value_length", d_value));
    }
    if d_key != d_latent + m.size("rope.dimension_count")? {
        return Err(m.unsupported("attention.key_length", d_key));
    }
    Ok(Heads {
        d_head,
        d_value: m.size("attention.value_length_mla")?,
        up: LatentUp::Split,
    })
}

fn experts(m: &Meta<'_>, d_expert: usize) -> Result<Moe, Error> {
    // Files of GLM-4.7-Flash do not say it.
    let is_flash = m.n_vocab()? == 154_880 && [47, 48].contains(&m.n_layers()?);
    let gating = match is_flash {
        true => gating(m, Gating::Sigmoid)?,
        false => gating(m, Gating::Softmax)?,
    };
    let score = match gating {
        Gating::Softmax => GroupScore::Best,
        _ => GroupScore::BestTwo,
    };
    Ok(Moe {
        gating,
        selection_bias: Presence::Optional,
        groups: groups(m, score)?,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(false),
        ..routed(m, d_expert)?
    })
}
