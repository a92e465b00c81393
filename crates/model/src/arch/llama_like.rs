//! What the llama family shares, as a builder: an architecture file says only how it differs.

use super::meta::Meta;
use crate::{
    Error,
    spec::{
        Activation, Attention, Ffn, Head, LayerSpec, Mask, Mixer, Mlp, ModelSpec, Moe, Norm, Pairing, Presence, QkNorm,
        Rope, RopeScaling, Wiring,
    },
};

/// A model whose layers are all alike, until [`build`](Builder::build) expands it.
pub(super) struct Builder {
    n_layers: usize,
    layer: LayerSpec,
    model: ModelSpec,
    eps: f32,
}

/// Pre-norm layers of rope attention and a SiLU-gated perceptron, sizes from the usual keys.
pub(super) fn llama_like(m: &Meta<'_>) -> Result<Builder, Error> {
    match m.count("expert_count")? {
        0 => backbone(m),
        n => Err(m.unsupported("expert_count", n)),
    }
}

/// The same for architectures that may have experts: those are up to the caller.
pub(super) fn backbone(m: &Meta<'_>) -> Result<Builder, Error> {
    let d_model = m.size("embedding_length")?;
    let eps = m.positive_opt("attention.layer_norm_rms_epsilon")?;
    let eps = eps.ok_or_else(|| Error::MissingKey("attention.layer_norm_rms_epsilon".into()))?;
    let attention = attention(m, d_model)?;
    let mlp = Mlp { d_ff: m.size("feed_forward_length")?, activation: Activation::Silu, bias: Presence::Absent };
    let norm = Norm::Rms { eps };
    Ok(Builder {
        n_layers: m.n_layers()?,
        layer: LayerSpec {
            wiring: Wiring::Sequential { pre: [norm; 2] },
            mixer: Mixer::Attention(attention),
            ffn: Ffn::Gated(mlp),
            residual_scale: 1.0,
        },
        model: ModelSpec {
            d_model,
            n_vocab: m.n_vocab()?,
            n_ctx_train: m.size("context_length")?,
            embed_scale: 1.0,
            layers: Vec::new(),
            head: Head { norm, logit_scale: 1.0, softcap: None },
        },
        eps,
    })
}

fn attention(m: &Meta<'_>, d_model: usize) -> Result<Attention, Error> {
    let n_heads = m.size("attention.head_count")?;
    let n_kv_heads = m.size_opt("attention.head_count_kv")?.unwrap_or(n_heads);
    let d_head = match m.size_opt("attention.key_length")? {
        Some(d) => d,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => return Err(m.unsupported("attention.head_count", format!("{n_heads} heads of {d_model}"))),
    };
    if let Some(d_v) = m.size_opt("attention.value_length")?
        && d_v != d_head
    {
        return Err(m.unsupported("attention.value_length", d_v));
    }
    Ok(Attention {
        n_heads,
        n_kv_heads,
        d_head,
        rope: Some(rope(m, d_head)?),
        mask: Mask::Causal,
        qk_norm: QkNorm::None,
        scale: 1.0 / (d_head as f32).sqrt(),
        softcap: None,
        qkv_bias: Presence::Absent,
        out_bias: Presence::Absent,
    })
}

fn rope(m: &Meta<'_>, d_head: usize) -> Result<Rope, Error> {
    let d_rope = m.size_opt("rope.dimension_count")?.unwrap_or(d_head);
    Ok(Rope {
        d_rope,
        base: m.positive_opt("rope.freq_base")?.unwrap_or(10_000.0),
        pairing: Pairing::Halves,
        scaling: rope_scaling(m)?,
        factors: Presence::Absent,
    })
}

fn rope_scaling(m: &Meta<'_>) -> Result<RopeScaling, Error> {
    // `rope.scale_linear` is how files of 2023 say it.
    let legacy = m.positive_opt("rope.scale_linear")?;
    let factor = m.positive_opt("rope.scaling.factor")?;
    match (m.text_opt("rope.scaling.type")?, factor.or(legacy)) {
        (Some("none"), _) => Ok(RopeScaling::None),
        (None | Some("linear"), None | Some(1.0)) => Ok(RopeScaling::None),
        (None | Some("linear"), Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (Some(other), _) => Err(m.unsupported("rope.scaling.type", other)),
    }
}

impl Builder {
    fn attention(mut self, change: impl FnOnce(&mut Attention)) -> Self {
        let Mixer::Attention(attention) = &mut self.layer.mixer;
        change(attention);
        self
    }

    fn rope(self, change: impl FnOnce(&mut Rope)) -> Self {
        self.attention(|a| {
            if let Some(rope) = &mut a.rope {
                change(rope);
            }
        })
    }

    /// Which elements of a head are rotated together.
    pub(super) fn pairing(self, pairing: Pairing) -> Self {
        self.rope(|r| r.pairing = pairing)
    }

    /// Whether the file may carry rope factors.
    pub(super) fn rope_factors(self, presence: Presence) -> Self {
        self.rope(|r| r.factors = presence)
    }

    /// Biases of q, k and v.
    pub(super) fn qkv_bias(self, presence: Presence) -> Self {
        self.attention(|a| a.qkv_bias = presence)
    }

    /// The bias of the output projection.
    pub(super) fn out_bias(self, presence: Presence) -> Self {
        self.attention(|a| a.out_bias = presence)
    }

    /// RMS norm of every head of q and k.
    pub(super) fn qk_norm_per_head(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::PerHead { eps })
    }

    /// Biases of the perceptron.
    pub(super) fn mlp_bias(mut self, presence: Presence) -> Self {
        if let Ffn::Gated(mlp) = &mut self.layer.ffn {
            mlp.bias = presence;
        }
        self
    }

    /// Experts instead of one perceptron.
    pub(super) fn experts(mut self, moe: Moe) -> Self {
        self.layer.ffn = Ffn::Moe(moe);
        self
    }

    /// The finished spec, every layer written out.
    pub(super) fn build(mut self) -> Result<ModelSpec, Error> {
        self.model.layers = vec![self.layer; self.n_layers];
        Ok(self.model)
    }
}
