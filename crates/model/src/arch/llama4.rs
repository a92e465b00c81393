//! Llama 4 (text): layers that see their chunk of positions only, and after every third of them one
//! that sees all, does not rotate, and multiplies far queries; experts in every nth layer.
//!
//! An expert reads its input times the sigmoid of its logit, and a shared one is added. Where
//! queries and keys are normalized, norm and rotation may change places, because neither has
//! weights. Source: the model's code in Hugging Face transformers (`llama4`), and for
//! the constants without keys llama.cpp's.

use super::{
    experts::{expert_layers, gating, perceptron, routed},
    llama_like::{Builder, backbone},
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        Attention, Ffn, Gating, Mask, ModelSpec, Moe, Pairing, Presence, QkNorm, SharedExpert,
        Temperature, WeightedSide,
    },
};

/// Chunks, and positions after which queries first grow, of all released models.
const CHUNK: usize = 8192;

/// How fast queries grow in all released models.
const SLOPE: f32 = 0.1;

/// The model with so many experts (Maverick) does without norms of queries and keys.
const N_EXPERTS_WITHOUT_NORMS: usize = 128;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let chunk = m.size_opt("attention.sliding_window")?.unwrap_or(CHUNK);
    let temperature = temperature(m)?;
    let has_experts = expert_layers(m)?;
    let moe = experts(m)?;
    let spec = layers(m, &moe)?.build_each(|l, layer| {
        if has_experts[l] {
            layer.ffn = Ffn::Moe(moe.clone());
        }
        let a = layer.attention_mut();
        if (l + 1).is_multiple_of(4) {
            see_all(a, temperature);
        } else {
            a.mask = Mask::Chunk(chunk);
        }
    })?;
    // A norm behind the rotation would undo its factor, one before it does not.
    let factor = spec.ropes().map(|rope| rope.magnitude).find(|f| *f != 1.0);
    match factor {
        Some(factor) => Err(m.unsupported("rope.scaling.attn_factor", factor)),
        None => Ok(spec),
    }
}

fn see_all(a: &mut Attention, temperature: Option<Temperature>) {
    a.rope = None;
    a.qk_norm = QkNorm::None;
    a.temperature = temperature;
}

/// Layers without experts that rotate.
fn layers(m: &Meta<'_>, moe: &Moe) -> Result<Builder, Error> {
    let layers = backbone(m)?
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional);
    Ok(match moe.n_experts {
        N_EXPERTS_WITHOUT_NORMS => layers,
        _ => layers.unit_qk_norm(),
    })
}

fn experts(m: &Meta<'_>) -> Result<Moe, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    Ok(Moe {
        gating: gating(m, Gating::Sigmoid)?,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(false),
        weighted: WeightedSide::Input,
        shared: Some(SharedExpert {
            mlp: perceptron(d_expert),
            is_gated: false,
        }),
        ..routed(m, d_expert)?
    })
}

/// The growth of queries in layers that see all; 0 means none.
fn temperature(m: &Meta<'_>) -> Result<Option<Temperature>, Error> {
    let slope = m.number_opt("attention.temperature_scale")?;
    let n_ctx_orig = m.size_opt("attention.temperature_length")?;
    let slope = Some(slope.unwrap_or(SLOPE)).filter(|slope| *slope != 0.0);
    Ok(slope.map(|slope| Temperature {
        slope,
        n_ctx_orig: n_ctx_orig.unwrap_or(CHUNK),
        offset: 1,
    }))
}
