//! LFM2 with experts: an LFM2 whose layers, but for the first ones, have experts behind sigmoids,
//! chosen with a bias.
//!
//! The weights of the chosen experts are renormalized; transformers adds 1e-6 to their sum, which
//! no key holds and which moves no weight by more than that. Source: the model's code in Hugging
//! Face transformers (`lfm2_moe`).

use super::{
    experts::{expert_layers, routed},
    lfm2::{hybrid, no_window},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Ffn, ModelSpec, Moe, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    no_window(m)?;
    let has_experts = expert_layers(m)?;
    let moe = Moe {
        selection_bias: Presence::Optional,
        ..routed(m, m.size("expert_feed_forward_length")?)?
    };
    hybrid(m, backbone(m)?, |l, layer| {
        if has_experts[l] {
            layer.ffn = Ffn::Moe(moe.clone());
        }
    })
}
