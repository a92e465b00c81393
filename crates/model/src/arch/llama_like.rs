//! A builder of specs, with the defaults of the llama family and of the older GPT family; an
//! architecture's file has only its differences.

use super::{meta::Meta, rope::rope};
use crate::{
    Error,
    spec::{
        Activation, Attention, Ffn, Head, KvSource, LayerSpec, Mask, Mixer, Mlp, ModelSpec, Moe,
        Norm, OutputGate, Outputs, Pairing, Positions, Presence, QkNorm, Rope, TokenTypes, Wiring,
    },
};

/// A model whose layers are all alike, until [`build`](Builder::build) expands it.
pub(super) struct Builder {
    n_layers: usize,
    /// Key-value heads of each layer, where the file says it.
    n_kv_heads: Option<Vec<usize>>,
    layer: LayerSpec,
    model: ModelSpec,
    eps: f32,
    /// That of every layer and of the end, unless an architecture says otherwise.
    norm: Norm,
}

/// Pre-norm layers of rope attention and a SiLU-gated MLP, sizes from the usual keys.
pub(super) fn llama_like(m: &Meta<'_>) -> Result<Builder, Error> {
    no_experts(m)?;
    backbone(m)
}

/// Pre-norm layers as those of [`llama_like`], of architectures that may have experts, which the
/// caller adds.
pub(super) fn backbone(m: &Meta<'_>) -> Result<Builder, Error> {
    backbone_of(m, m.size("feed_forward_length")?)
}

/// As [`backbone`], with MLPs of another width.
pub(super) fn backbone_of(m: &Meta<'_>, d_ff: usize) -> Result<Builder, Error> {
    let eps = m.positive("attention.layer_norm_rms_epsilon")?;
    let activation = Activation::Silu;
    let mlp = Mlp {
        d_ff,
        activation,
        bias: Presence::Absent,
        sub_norm: None,
    };
    stack(m, Norm::Rms { eps }, Ffn::Gated(mlp))
}

/// Pre-norm layers with LayerNorm, biases everywhere, and a plain GELU MLP (Radford et al.
/// 2019).
pub(super) fn gpt_like(m: &Meta<'_>) -> Result<Builder, Error> {
    let layers = layer_normed(m, |eps| Norm::Layer { eps }, Ffn::Plain)?;
    Ok(layers
        .activation(Activation::GeluTanh)
        .biases(Presence::Required))
}

/// Pre-norm layers with a LayerNorm, and a SiLU MLP without biases.
pub(super) fn layer_normed(
    m: &Meta<'_>,
    norm: fn(f32) -> Norm,
    ffn: fn(Mlp) -> Ffn,
) -> Result<Builder, Error> {
    no_experts(m)?;
    let eps = m.positive("attention.layer_norm_epsilon")?;
    let mlp = Mlp {
        d_ff: m.size("feed_forward_length")?,
        activation: Activation::Silu,
        bias: Presence::Absent,
        sub_norm: None,
    };
    stack(m, norm(eps), ffn(mlp))
}

/// Refuses a model with experts.
pub(super) fn no_experts(m: &Meta<'_>) -> Result<(), Error> {
    match m.count("expert_count")? {
        0 => Ok(()),
        n => Err(m.unsupported("expert_count", n)),
    }
}

/// Pre-norm layers of causal attention with a rope and of a feed-forward block.
pub(super) fn stack(m: &Meta<'_>, norm: Norm, ffn: Ffn) -> Result<Builder, Error> {
    causal(m)?;
    layers(m, norm, ffn)
}

/// Pre-norm layers of a mixer alone.
pub(super) fn mixers(m: &Meta<'_>, norm: Norm, mixer: Mixer) -> Result<Builder, Error> {
    causal(m)?;
    let mut builder = of_sublayers(m, norm, mixer, Ffn::None)?;
    builder.layer.wiring = Wiring::Sequential {
        pre: [Some(norm), None],
        post: [None; 2],
    };
    Ok(builder)
}

/// Refuses models that see positions ahead.
pub(super) fn causal(m: &Meta<'_>) -> Result<(), Error> {
    match m.flag_opt("attention.causal")? {
        Some(false) => Err(m.unsupported("attention.causal", false)),
        _ => Ok(()),
    }
}

/// Pre-norm layers of attention with a rope and of a feed-forward block; a decoder, until the
/// caller says otherwise.
pub(super) fn layers(m: &Meta<'_>, norm: Norm, ffn: Ffn) -> Result<Builder, Error> {
    let attention = attention(m, m.size("embedding_length")?)?;
    Ok(Builder {
        n_kv_heads: m.n_kv_heads()?,
        ..layers_of(m, norm, ffn, attention)?
    })
}

/// As [`layers`], with other attention, the same in all layers.
pub(super) fn layers_of(
    m: &Meta<'_>,
    norm: Norm,
    ffn: Ffn,
    attention: Attention,
) -> Result<Builder, Error> {
    of_sublayers(m, norm, Mixer::Attention(attention), ffn)
}

fn of_sublayers(m: &Meta<'_>, norm: Norm, mixer: Mixer, ffn: Ffn) -> Result<Builder, Error> {
    let (Norm::Rms { eps } | Norm::Layer { eps } | Norm::LayerNoBias { eps }) = norm;
    let d_model = m.size("embedding_length")?;
    Ok(Builder {
        n_layers: m.n_layers()?,
        n_kv_heads: None,
        layer: LayerSpec {
            wiring: Wiring::Sequential {
                pre: [Some(norm); 2],
                post: [None; 2],
            },
            ngrams: None,
            mixer,
            laurel: None,
            ffn,
            residual_scale: 1.0,
            out_scale: Presence::Absent,
        },
        model: ModelSpec {
            d_model,
            n_vocab: m.n_vocab()?,
            n_ctx_train: m.size("context_length")?,
            embed_scale: 1.0,
            positions: Positions::None,
            token_types: TokenTypes::None,
            embed_norm: None,
            layer_embed: None,
            streams: None,
            alt_up: None,
            join: None,
            layers: Vec::new(),
            n_nextn: m.n_nextn_layers()?,
            head: Head {
                norm: Some(norm),
                outputs: Outputs::Logits,
                bias: Presence::Absent,
                logit_scale: 1.0,
                softcap: None,
            },
        },
        eps,
        norm,
    })
}

fn attention(m: &Meta<'_>, d_model: usize) -> Result<Attention, Error> {
    let n_heads = m.size("attention.head_count")?;
    let n_kv_heads = m.n_kv_heads()?;
    let n_kv_heads = n_kv_heads.map_or(n_heads, |all| all[0]);
    let d_head = match m.size_opt("attention.key_length")? {
        Some(d) => d,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            return Err(m.unsupported(
                "attention.head_count",
                format!("{n_heads} heads of {d_model}"),
            ));
        }
    };
    if let Some(d_v) = m.size_opt("attention.value_length")?
        && d_v != d_head
    {
        return Err(m.unsupported("attention.value_length", d_v));
    }
    let scale = m.positive_opt("attention.scale")?;
    let plain = plain_attention(n_heads, d_head, rope(m, d_head)?);
    Ok(Attention {
        n_kv_heads,
        scale: scale.unwrap_or(plain.scale),
        ..plain
    })
}

/// Causal attention with a rope, and as many key-value heads as heads.
pub(super) fn plain_attention(n_heads: usize, d_head: usize, rope: Rope) -> Attention {
    Attention {
        n_heads,
        n_kv_heads: n_heads,
        d_head,
        rope: Some(rope),
        mask: Mask::Causal,
        kv: KvSource::PROJECTED,
        qk_norm: QkNorm::None,
        scale: 1.0 / (d_head as f32).sqrt(),
        temperature: None,
        softcap: None,
        slopes: None,
        sinks: Presence::Absent,
        gate: OutputGate::None,
        sub_norm: None,
        qkv_bias: Presence::Absent,
        out_bias: Presence::Absent,
        indexer: None,
    }
}

impl Builder {
    /// The norm of the model's end, which those of its layers are by default.
    pub(super) fn norm(&self) -> Norm {
        self.norm
    }

    /// Any change of the whole model.
    pub(super) fn model(mut self, change: impl FnOnce(&mut ModelSpec)) -> Self {
        change(&mut self.model);
        self
    }

    /// Any change of the layers.
    pub(super) fn layer(mut self, change: impl FnOnce(&mut LayerSpec)) -> Self {
        change(&mut self.layer);
        self
    }

    /// Any change of the attention of the layers.
    pub(super) fn attention(self, change: impl FnOnce(&mut Attention)) -> Self {
        self.layer(|layer| change(layer.attention_mut()))
    }

    /// Any change of the rotation.
    pub(super) fn rope(self, change: impl FnOnce(&mut Rope)) -> Self {
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

    /// Biases of all projections of attention and MLP.
    pub(super) fn biases(self, presence: Presence) -> Self {
        self.qkv_bias(presence)
            .out_bias(presence)
            .mlp_bias(presence)
    }

    /// RMS norm of every head of q and k.
    pub(super) fn qk_norm_per_head(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::PerHead { eps })
    }

    /// RMS norm of all heads of q together, and of k.
    pub(super) fn qk_norm_whole(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::Whole { eps })
    }

    /// LayerNorm of every head of q and k, in files that have its weights.
    pub(super) fn qk_layer_norm(self) -> Self {
        let qk_norm = QkNorm::LayerPerHead {
            eps: self.eps,
            presence: Presence::Optional,
        };
        self.attention(|a| a.qk_norm = qk_norm)
    }

    /// RMS norm of every head of q and k, behind the rotation.
    pub(super) fn rotated_qk_norm_per_head(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::RotatedPerHead { eps })
    }

    /// LayerNorms in place of RMS norms.
    pub(super) fn layer_norms(mut self) -> Self {
        let norm = Norm::Layer { eps: self.eps };
        self.norm = norm;
        self.model.head.norm = Some(norm);
        self.layer(|layer| {
            if let Wiring::Sequential { pre, .. } = &mut layer.wiring {
                *pre = [Some(norm); 2];
            }
        })
    }

    /// No norms of the inputs of sublayers.
    pub(super) fn no_pre_norms(self) -> Self {
        self.layer(|layer| {
            if let Wiring::Sequential { pre, .. } = &mut layer.wiring {
                *pre = [None; 2];
            }
        })
    }

    /// Both sublayers of a layer read one norm of the same residual.
    pub(super) fn parallel(self) -> Self {
        let pre = self.norm;
        let pre_ffn = None;
        self.layer(|layer| layer.wiring = Wiring::Parallel { pre, pre_ffn })
    }

    /// Both sublayers of a layer read the same residual, each behind a norm of its own.
    pub(super) fn parallel_with_two_norms(self) -> Self {
        let pre = self.norm;
        let pre_ffn = Some(pre);
        self.layer(|layer| layer.wiring = Wiring::Parallel { pre, pre_ffn })
    }

    /// The embedding is multiplied by `sqrt(d_model)`.
    pub(super) fn scale_embedding_by_width(self) -> Self {
        self.model(|model| model.embed_scale = (model.d_model as f32).sqrt())
    }

    /// Scores are multiplied by `1 / sqrt(d_model / n_heads)`, whatever the width of a head is.
    pub(super) fn scale_scores_by_width_per_head(self) -> Self {
        let d_model = self.model.d_model;
        self.attention(|a| a.scale = 1.0 / ((d_model / a.n_heads).max(1) as f32).sqrt())
    }

    /// RMS norms of the results of sublayers, beside those of their inputs.
    pub(super) fn post_norms(self) -> Self {
        let norm = Some(Norm::Rms { eps: self.eps });
        self.layer(|layer| {
            if let Wiring::Sequential { post, .. } = &mut layer.wiring {
                *post = [norm; 2];
            }
        })
    }

    /// RMS norms of the inputs of each sublayer's last projection.
    pub(super) fn sub_norms(self) -> Self {
        let norm = Some(Norm::Rms { eps: self.eps });
        self.layer(|layer| {
            layer.attention_mut().sub_norm = norm;
            layer.mlp_mut().sub_norm = norm;
        })
    }

    /// An MLP without a gate.
    pub(super) fn plain_mlp(self) -> Self {
        self.layer(|layer| layer.ffn = Ffn::Plain(layer.mlp_mut().clone()))
    }

    /// The nonlinearity of the MLP.
    pub(super) fn activation(self, activation: Activation) -> Self {
        self.layer(|layer| layer.mlp_mut().activation = activation)
    }

    /// Biases of the MLP.
    pub(super) fn mlp_bias(self, presence: Presence) -> Self {
        self.layer(|layer| layer.mlp_mut().bias = presence)
    }

    /// Experts instead of one MLP.
    pub(super) fn experts(self, moe: Moe) -> Self {
        self.layer(|layer| layer.ffn = Ffn::Moe(moe))
    }

    /// RMS norm of every head of q and k, where the file has its weights.
    pub(super) fn qk_norm_per_head_if_there(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::PerHeadIfThere { eps })
    }

    /// Every head of q and k is divided by the root of its mean square.
    pub(super) fn unit_qk_norm(self) -> Self {
        let eps = self.eps;
        self.attention(|a| a.qk_norm = QkNorm::Unit { eps })
    }

    /// The finished spec, with experts in some layers.
    pub(super) fn build_experts(self, moe: &Moe, has_experts: &[bool]) -> Result<ModelSpec, Error> {
        self.build_each(|l, layer| {
            if has_experts[l] {
                layer.ffn = Ffn::Moe(moe.clone());
            }
        })
    }

    /// The finished spec, every layer written out.
    pub(super) fn build(self) -> Result<ModelSpec, Error> {
        self.build_each(|_, _| {})
    }

    /// The finished spec after `change` was called with the index and the spec of each layer.
    pub(super) fn build_each(
        mut self,
        mut change: impl FnMut(usize, &mut LayerSpec),
    ) -> Result<ModelSpec, Error> {
        self.model.layers = vec![self.layer; self.n_layers];
        let n_kv_heads = self.n_kv_heads.iter().flatten();
        for (layer, &n) in self.model.layers.iter_mut().zip(n_kv_heads) {
            layer.attention_mut().n_kv_heads = n;
        }
        self.model
            .layers
            .iter_mut()
            .enumerate()
            .for_each(|(l, layer)| change(l, layer));
        Ok(self.model)
    }
}
