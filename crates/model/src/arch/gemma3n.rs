//! Gemma 3n (text): four streams of the residual, one for layers to read, a low-rank layer
//! beside attention, embeddings in every layer, gates that are mostly closed in the first layers,
//! and keys and values that the last layers read from earlier ones.
//!
//! Source: the model's code in Hugging Face transformers (`gemma3n`).

use super::{
    gemma4::{kv_sources, layer_embed},
    llama_like::backbone_of,
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        Activation, AltUp, Attention, Ffn, KvSource, Laurel, LayerSpec, Mask, ModelSpec, Norm,
        Presence, RopeScaling, SparseMlp,
    },
};

/// What differs from layer to layer.
struct OfLayers {
    d_ff: Vec<usize>,
    pattern: Vec<bool>,
    sources: Vec<Option<usize>>,
    deviations: Vec<Option<f32>>,
    window: usize,
    /// Of the rotation in layers with a window.
    base: f32,
    rank: usize,
}

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let each = of_layers(m)?;
    let cap = m.cap_opt("final_logit_softcapping", None)?;
    let layers = backbone_of(m, each.d_ff[0])?;
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("a backbone has RMS norms")
    };
    let embed = layer_embed(m, eps)?;
    let alt_up = alt_up(m, eps)?;
    let gemma = layers
        .activation(Activation::GeluTanh)
        .scale_embedding_by_width()
        .post_norms()
        .qk_norm_per_head()
        .attention(|a| a.scale = 1.0)
        .model(|model| {
            model.head.softcap = cap;
            model.layer_embed = embed;
            model.alt_up = Some(alt_up);
        });
    gemma.build_each(|l, layer| each.change(l, layer, eps))
}

fn of_layers(m: &Meta<'_>) -> Result<OfLayers, Error> {
    let pattern = m.window_pattern(5)?;
    Ok(OfLayers {
        d_ff: m
            .sizes_opt("feed_forward_length")?
            .ok_or_else(|| m.missing("feed_forward_length"))?,
        sources: kv_sources(m, &pattern)?,
        pattern,
        deviations: deviations(m)?,
        window: m.size("attention.sliding_window")?,
        base: m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0),
        // Files of other programs have no such key.
        rank: m.size_opt("laurel.rank")?.unwrap_or(64),
    })
}

impl OfLayers {
    fn change(&self, l: usize, layer: &mut LayerSpec, eps: f32) {
        let rank = self.rank;
        layer.laurel = Some(Laurel { rank, eps });
        set_mlp(layer, self.d_ff[l], self.deviations[l]);
        let a = layer.attention_mut();
        a.kv = kv(self.sources[l], eps);
        if self.pattern[l] {
            set_window(a, self.window, self.base);
        }
    }
}

/// Its own keys and values, or those of another layer.
fn kv(source: Option<usize>, eps: f32) -> KvSource {
    match source {
        Some(source) => KvSource::Layer(source),
        None => KvSource::Own {
            v_proj: Presence::Required,
            v_norm: Some(eps),
        },
    }
}

fn set_window(a: &mut Attention, window: usize, base: f32) {
    a.mask = Mask::Window(window);
    if let Some(rope) = &mut a.rope {
        rope.base = base;
        rope.scaling = RopeScaling::None;
        rope.magnitude = 1.0;
    }
}

fn set_mlp(layer: &mut LayerSpec, d_ff: usize, deviations: Option<f32>) {
    layer.mlp_mut().d_ff = d_ff;
    if let Some(deviations) = deviations {
        let mlp = layer.mlp_mut().clone();
        layer.ffn = Ffn::Sparse(SparseMlp { mlp, deviations });
    }
}

/// Standard deviations of the gates between their mean and the smallest open one, in layers where
/// some are closed; minus infinity in the others.
fn deviations(m: &Meta<'_>) -> Result<Vec<Option<f32>>, Error> {
    let key = "activation_sparsity_scale";
    let of_layer = |deviations: f32| match deviations {
        f32::NEG_INFINITY => Ok(None),
        _ if deviations.is_finite() => Ok(Some(deviations)),
        _ => Err(m.unsupported(key, deviations)),
    };
    m.layer_numbers(key)?.into_iter().map(of_layer).collect()
}

fn alt_up(m: &Meta<'_>, eps: f32) -> Result<AltUp, Error> {
    let n = m.size("altup.num_inputs")?;
    let key = "altup.active_idx";
    let active = m.count(key)?;
    match usize::try_from(active) {
        Ok(active) if active < n => Ok(AltUp { n, active, eps }),
        _ => Err(m.unsupported(key, active)),
    }
}
