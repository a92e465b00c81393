//! Nemotron-H and Nemotron Nano 2: every layer is Mamba 2, attention without a rope, or an MLP with
//! a squared ReLU.
//!
//! A layer with key-value heads is attention, one with a width of its MLP is that. Source:
//! Nemotron-H (NVIDIA 2025), section 2, and the model's code in Hugging Face transformers
//! (`nemotron_h`), which has the smallest step.

use super::{
    llama_like::{Builder, no_experts, stack},
    meta::Meta,
    ssm,
};
use crate::{
    Error,
    spec::{Activation, Ffn, LayerSpec, Mamba2, Mixer, Mlp, ModelSpec, Norm, Presence, Wiring},
};

/// No key holds it.
const MIN_STEP: f32 = 1e-3;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    no_experts(m)?;
    single_sublayers(m, |layer, d_ff| layer.mlp_mut().d_ff = d_ff)
}

/// Layers of attention, of a state space or of a feed-forward block, which `feed_forward` makes
/// from its width: a layer with key-value heads is attention, one with a width has such a block.
pub(super) fn single_sublayers(
    m: &Meta<'_>,
    mut feed_forward: impl FnMut(&mut LayerSpec, usize),
) -> Result<ModelSpec, Error> {
    let eps = eps(m)?;
    let mamba = Mamba2 {
        min_step: MIN_STEP,
        ..ssm::mamba2(m, eps)?
    };
    let widths = m.counts_opt("feed_forward_length")?;
    let widths = widths.ok_or_else(|| m.missing("feed_forward_length"))?;
    let has_attention = m.attention_layers()?;
    layers(m, eps)?.build_each(|l, layer| match (has_attention[l], widths[l]) {
        (true, _) => alone(layer, 0),
        (false, 0) => {
            layer.mixer = Mixer::Mamba2(mamba.clone());
            alone(layer, 0);
        }
        (false, width) => {
            feed_forward(layer, width);
            alone(layer, 1);
        }
    })
}

fn eps(m: &Meta<'_>) -> Result<f32, Error> {
    match m.positive_opt("attention.layer_norm_rms_epsilon")? {
        Some(eps) => Ok(eps),
        None => m.positive("attention.layer_norm_epsilon"),
    }
}

/// Layers of attention and an MLP; one of the two will remain.
fn layers(m: &Meta<'_>, eps: f32) -> Result<Builder, Error> {
    let mlp = Mlp {
        d_ff: 1,
        activation: Activation::Relu2,
        bias: Presence::Optional,
        sub_norm: None,
    };
    let layers = stack(m, Norm::Rms { eps }, Ffn::Plain(mlp))?;
    Ok(layers
        .attention(|a| a.rope = None)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional))
}

/// Leaves the mixer (0) or the feed-forward block (1), and the norm of its input.
fn alone(layer: &mut LayerSpec, sublayer: usize) {
    match sublayer {
        0 => layer.ffn = Ffn::None,
        _ => layer.mixer = Mixer::None,
    }
    if let Wiring::Sequential { pre, .. } = &mut layer.wiring {
        pre[1 - sublayer] = None;
    }
}
