//! Gemma 4 (text): E2B and E4B with embeddings in every layer, and keys and values that the last
//! layers read from earlier ones; 12B and 31B, whose keys are the values in layers without a
//! window; 26B-A4B, which has experts beside the MLP.
//!
//! Layers with a window have narrower heads and a rope of their own. The other layers turn the
//! first quarter of their pairs only: the factors in the file slow the rest down to nothing.
//! Source: the model's code in Hugging Face transformers (`gemma4`).

use super::{experts, llama_like::backbone_of, meta::Meta};
use crate::{
    Error,
    spec::{
        Activation, Attention, Ffn, KvSource, LayerEmbed, Mask, MlpAndMoe, ModelSpec, Moe, Norm,
        Presence, RopeScaling,
    },
};

/// What layers with a window have instead.
struct Windowed {
    window: usize,
    d_head: usize,
    d_rope: usize,
    base: f32,
}

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_ff = m
        .sizes_opt("feed_forward_length")?
        .ok_or_else(|| m.missing("feed_forward_length"))?;
    let windowed = windowed(m)?;
    let pattern = m.window_pattern(6)?;
    let cap = m.cap_opt("final_logit_softcapping", None)?;
    let sources = kv_sources(m, &pattern)?;
    let layers = backbone_of(m, d_ff[0])?;
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("a backbone has RMS norms")
    };
    let embed = layer_embed(m, eps)?;
    let moe = match m.count("expert_count")? {
        0 => None,
        _ => Some(experts(m, eps)?),
    };
    let gemma = layers
        .activation(Activation::GeluTanh)
        .scale_embedding_by_width()
        .post_norms()
        .qk_norm_per_head()
        .layer(|layer| layer.out_scale = Presence::Required)
        .attention(|a| a.scale = 1.0)
        .rope_factors(Presence::Required)
        .model(|model| {
            model.head.softcap = cap;
            model.layer_embed = embed;
        });
    gemma.build_each(|l, layer| {
        layer.mlp_mut().d_ff = d_ff[l];
        if let Some(moe) = &moe {
            layer.ffn = Ffn::MlpAndMoe(MlpAndMoe {
                mlp: layer.mlp_mut().clone(),
                moe: moe.clone(),
                eps,
            });
        }
        let a = layer.attention_mut();
        a.kv = match sources[l] {
            Some(source) => KvSource::Layer(source),
            None => KvSource::Own {
                v_proj: if pattern[l] {
                    Presence::Required
                } else {
                    Presence::Optional
                },
                v_norm: Some(eps),
            },
        };
        if pattern[l] {
            windowed.change(a);
        }
    })
}

impl Windowed {
    fn change(&self, a: &mut Attention) {
        a.mask = Mask::Window(self.window);
        a.d_head = self.d_head;
        if let Some(rope) = &mut a.rope {
            rope.d_rope = self.d_rope;
            rope.base = self.base;
            rope.scaling = RopeScaling::None;
            rope.magnitude = 1.0;
            rope.factors = Presence::Absent;
        }
    }
}

fn windowed(m: &Meta<'_>) -> Result<Windowed, Error> {
    let d_head = m.size("attention.key_length_swa")?;
    if let Some(d_v) = m.size_opt("attention.value_length_swa")?
        && d_v != d_head
    {
        return Err(m.unsupported("attention.value_length_swa", d_v));
    }
    Ok(Windowed {
        window: m.size("attention.sliding_window")?,
        d_head,
        d_rope: m.size_opt("rope.dimension_count_swa")?.unwrap_or(d_head),
        base: m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0),
    })
}

/// The layer whose keys and values each layer reads, if they are not its own: the last layers read
/// those of the last one before them with the same kind of window.
pub(super) fn kv_sources(m: &Meta<'_>, pattern: &[bool]) -> Result<Vec<Option<usize>>, Error> {
    let key = "attention.shared_kv_layers";
    let n_shared = m.count(key)?;
    let n_own = usize::try_from(n_shared)
        .ok()
        .and_then(|n| pattern.len().checked_sub(n))
        .ok_or_else(|| m.unsupported(key, n_shared))?;
    let source = |l: usize| match l < n_own {
        true => Ok(None),
        false => pattern[..n_own]
            .iter()
            .rposition(|windowed| *windowed == pattern[l])
            .map(Some)
            .ok_or_else(|| m.unsupported(key, n_shared)),
    };
    (0..pattern.len()).map(source).collect()
}

/// The experts beside the MLP.
fn experts(m: &Meta<'_>, eps: f32) -> Result<Moe, Error> {
    let mut moe = experts::experts(m, m.size("expert_feed_forward_length")?)?;
    moe.expert.activation = Activation::GeluTanh;
    moe.router_norm = Some(eps);
    Ok(moe)
}

/// Embeddings in every layer, if the model has them.
pub(super) fn layer_embed(m: &Meta<'_>, eps: f32) -> Result<Option<LayerEmbed>, Error> {
    let key = "embedding_length_per_layer_input";
    if m.count(key)? == 0 {
        return Ok(None);
    }
    Ok(Some(LayerEmbed {
        d: m.size(key)?,
        activation: Activation::GeluTanh,
        eps,
    }))
}
