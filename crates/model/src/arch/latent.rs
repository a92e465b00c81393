//! What models with multi-head latent attention share.

use super::{
    llama_like::{Builder, causal, layers_of, plain_attention},
    meta::Meta,
    rope::rope,
};
use crate::{
    Error,
    spec::{Activation, Attention, Ffn, KvSource, Latent, LatentUp, Mlp, Norm, Presence},
};

/// Epsilon of the norms of latent vectors. That of other norms is a field of configurations; these
/// have the default of the class in transformers.
const LATENT_EPS: f32 = 1e-6;

/// Widths of a head and how its projections from a latent vector are stored, for which
/// architectures have other keys.
pub(super) struct Heads {
    /// Width of a query and key.
    pub(super) d_head: usize,
    /// Width of a value.
    pub(super) d_value: usize,
    pub(super) up: LatentUp,
}

/// Pre-norm layers of multi-head latent attention and a SiLU-gated MLP, sizes from the usual keys.
pub(super) fn latent_like(m: &Meta<'_>, heads: &Heads) -> Result<Builder, Error> {
    causal(m)?;
    let eps = m.positive("attention.layer_norm_rms_epsilon")?;
    let mlp = Mlp {
        d_ff: m.size("feed_forward_length")?,
        activation: Activation::Silu,
        bias: Presence::Absent,
        sub_norm: None,
    };
    let attention = attention(m, heads)?;
    layers_of(m, Norm::Rms { eps }, Ffn::Gated(mlp), attention)
}

fn attention(m: &Meta<'_>, heads: &Heads) -> Result<Attention, Error> {
    let rope = rope(m, heads.d_head)?;
    let d_latent = m.size("attention.kv_lora_rank")?;
    let Some(d_key @ 1..) = heads.d_head.checked_sub(rope.d_rope) else {
        return Err(m.unsupported("rope.dimension_count", rope.d_rope));
    };
    let latent = Latent {
        d_latent,
        d_key,
        d_value: heads.d_value,
        d_query: m.size_opt("attention.q_lora_rank")?,
        eps: LATENT_EPS,
        up: heads.up,
    };
    Ok(Attention {
        n_kv_heads: 1,
        kv: KvSource::Latent(latent),
        scale: 1.0 / (heads.d_head as f32).sqrt(),
        ..plain_attention(n_heads(m)?, d_latent + rope.d_rope, rope)
    })
}

/// Query heads. Files count key-value heads before matrices are absorbed, or behind that.
fn n_heads(m: &Meta<'_>) -> Result<usize, Error> {
    let n_heads = m.size("attention.head_count")?;
    let n_kv_heads = m.n_kv_heads()?.unwrap_or_default();
    match n_kv_heads.iter().find(|&&n| n != 1 && n != n_heads) {
        None => Ok(n_heads),
        Some(n) => Err(Error::Spec(format!(
            "{n_heads} heads share {n} key-value heads and a latent vector"
        ))),
    }
}
