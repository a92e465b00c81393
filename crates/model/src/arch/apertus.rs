//! Apertus: a llama with norms of queries and keys; its MLP has no gate, and xIELU with numbers
//! that each layer has learned.
//!
//! Source: the Apertus report (Project Apertus 2025), section 2.1; Huang & Schlag 2025 for xIELU.

use atta_kernels::math::softplus;

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec, Presence, Xielu},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let numbers = xielu(m)?;
    llama_like(m)?
        .rope_factors(Presence::Optional)
        .qk_norm_per_head()
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .plain_mlp()
        .build_each(|l, layer| layer.mlp_mut().activation = Activation::Xielu(numbers[l]))
}

/// The numbers of each layer. Their keys have no prefix, and curvatures are stored before a
/// softplus, that below 0 without `beta`.
fn xielu(m: &Meta<'_>) -> Result<Vec<Xielu>, Error> {
    let [alpha_p, alpha_n, beta, eps] = [
        m.global_numbers("xielu.alpha_p")?,
        m.global_numbers("xielu.alpha_n")?,
        m.global_numbers("xielu.beta")?,
        m.global_numbers("xielu.eps")?,
    ];
    let of_layer = |l: usize| Xielu {
        alpha_p: softplus(alpha_p[l]),
        alpha_n: beta[l] + softplus(alpha_n[l]),
        beta: beta[l],
        eps: eps[l],
    };
    Ok((0..m.n_layers()?).map(of_layer).collect())
}
