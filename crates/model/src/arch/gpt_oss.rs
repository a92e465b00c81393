//! gpt-oss: experts with biases behind clamped gates, a window in every second layer, and
//! attention sinks.
//!
//! The weights of a position's experts are a softmax over the logits of the chosen ones, which is
//! the same as one over all of them, renormalized. Sources: gpt-oss model card (OpenAI 2025),
//! section 2, and the model's code in Hugging Face transformers (`gpt_oss`), which has the
//! constants of the gate and lets YaRN's ramp end between pairs.

use super::{experts::experts, llama_like::backbone, meta::Meta};
use crate::{
    Error,
    spec::{Activation, Mask, Mlp, ModelSpec, Moe, Pairing, Presence, RampEnds, RopeScaling},
};

/// No key holds these; all checkpoints agree.
const GATE: Activation = Activation::Clamped {
    alpha: 1.702,
    limit: 7.0,
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size("attention.sliding_window")?;
    let pattern = m.window_pattern(2)?;
    let moe = experts(m, m.size("feed_forward_length")?)?;
    let expert = Mlp {
        activation: GATE,
        bias: Presence::Required,
        ..moe.expert
    };
    backbone(m)?
        .pairing(Pairing::Halves)
        .rope(|rope| {
            if let RopeScaling::Yarn(yarn) = &mut rope.scaling {
                yarn.ends = RampEnds::Exact;
            }
        })
        .qkv_bias(Presence::Required)
        .out_bias(Presence::Required)
        .attention(|a| a.sinks = Presence::Required)
        .experts(Moe {
            expert,
            router_bias: Presence::Required,
            ..moe
        })
        .build_each(|l, layer| {
            if pattern[l] {
                layer.attention_mut().mask = Mask::Window(window);
            }
        })
}
