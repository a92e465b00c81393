//! A model as plain data: what every layer does, fully expanded, with no tensors and no I/O.
//!
//! Seven parts of the engine read this description (loader, memory planner, forward pass, oracle, later the streamer,
//! the cluster cutter and the converter), so it holds no patterns ("every sixth layer is global"): those are expanded when
//! an architecture is lowered. It refuses to know the name of any architecture. What is not described here does not
//! happen in the forward pass.

use atta_kernels::math::pow;

use crate::KvType;

/// A whole decoder-only model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of tokens.
    pub n_vocab: usize,
    /// Positions the model was trained for.
    pub n_ctx_train: usize,
    /// The embedding is multiplied by this.
    pub embed_scale: f32,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// What turns the last residual into logits.
    pub head: Head,
}

/// One layer: how its two blocks hang in the residual stream, and what they are.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Where the norms are.
    pub wiring: Wiring,
    /// What mixes positions.
    pub mixer: Mixer,
    /// What works on each position alone.
    pub ffn: Ffn,
    /// Each block's result is multiplied by this before it is added to the residual.
    pub residual_scale: f32,
}

/// How the blocks of a layer hang together.
#[derive(Clone, Debug, PartialEq)]
pub enum Wiring {
    /// `x += mixer(pre[0](x)); x += ffn(pre[1](x))`.
    Sequential {
        /// Norms of the inputs of mixer and feed-forward block.
        pre: [Norm; 2],
    },
}

/// A normalization of a vector. Its weight is a tensor, its epsilon comes from the metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `x / sqrt(mean(x²) + eps) * weight` (Zhang & Sennrich 2019).
    Rms {
        /// Keeps the root away from zero.
        eps: f32,
    },
}

/// What mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention with a key-value cache.
    Attention(Attention),
}

/// Softmax attention; query heads share key-value heads in groups (Ainslie et al. 2023).
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads, a divisor of `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Rotation of queries and keys by position; `None`: none.
    pub rope: Option<Rope>,
    /// Which positions are seen.
    pub mask: Mask,
    /// Normalization of queries and keys before the rotation.
    pub qk_norm: QkNorm,
    /// Scores are multiplied by this, usually `1 / sqrt(d_head)`.
    pub scale: f32,
    /// `Some(c)`: scores become `c * tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Whether the projections of q, k and v must have, may have or must not have a bias.
    pub qkv_bias: Presence,
    /// The same for the output projection.
    pub out_bias: Presence,
}

/// Which positions a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All up to its own.
    Causal,
    /// The last `n`, its own included.
    Window(usize),
}

/// Normalization of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// None.
    None,
    /// RMS norm of each head, one weight of width `d_head` for all heads.
    PerHead {
        /// As in [`Norm::Rms`].
        eps: f32,
    },
}

/// Rotary position embedding (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The first `d_rope` elements of a head are rotated; even.
    pub d_rope: usize,
    /// Pair `i` turns by `position / base^(2i / d_rope)`.
    pub base: f32,
    /// Which elements form a pair.
    pub pairing: Pairing,
    /// How positions beyond the training length are mapped.
    pub scaling: RopeScaling,
    /// Whether the angles may be divided by a tensor of factors (Llama 3).
    pub factors: Presence,
}

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(2i, 2i + 1)`: GGUF's NORM.
    Adjacent,
    /// `(i, i + d_rope / 2)`: GGUF's NEOX.
    Halves,
}

/// How the rotation is stretched to longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All angles are divided by `factor`.
    Linear {
        /// At least 1 in practice.
        factor: f32,
    },
}

/// What works on each position alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// One gated perceptron: `down(act(gate x) * (up x))` (Shazeer 2020).
    Gated(Mlp),
}

/// The sizes of a perceptron.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Width of the hidden layer.
    pub d_ff: usize,
    /// The nonlinearity of the gate.
    pub activation: Activation,
    /// Whether its projections may have a bias.
    pub bias: Presence,
}

/// A nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    GeluTanh,
}

/// What turns the last residual into logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The norm before the projection.
    pub norm: Norm,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
    /// `Some(c)`: logits become `c * tanh(logit / c)`.
    pub softcap: Option<f32>,
}

/// Whether a tensor belongs to a model. Metadata decides what is computed; presence decides only optional weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Required,
    /// It is used where it is there.
    Optional,
    /// It must not be there.
    Absent,
}

/// How long a layer's state of a position is needed; layers that agree share a block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// As long as the sequence lives.
    All,
    /// As long as one of the next `n` positions may ask.
    Window(usize),
}

impl LayerSpec {
    /// The attention of this layer.
    pub fn attention(&self) -> &Attention {
        let Mixer::Attention(attention) = &self.mixer;
        attention
    }

    /// The perceptron of this layer.
    pub fn mlp(&self) -> &Mlp {
        let Ffn::Gated(mlp) = &self.ffn;
        mlp
    }

    /// The norms before mixer and feed-forward block.
    pub fn pre_norms(&self) -> [Norm; 2] {
        let Wiring::Sequential { pre } = self.wiring;
        pre
    }

    /// How long the state of this layer is needed.
    pub fn retention(&self) -> Retention {
        match self.attention().mask {
            Mask::Causal => Retention::All,
            Mask::Window(n) => Retention::Window(n),
        }
    }
}

impl Attention {
    /// Width of all queries of a position.
    pub fn d_q(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Width of all keys (or values) of a position.
    pub fn d_kv(&self) -> usize {
        self.n_kv_heads * self.d_head
    }

    /// The first position that the query at `pos` sees.
    pub fn first_visible(&self, pos: usize) -> usize {
        match self.mask {
            Mask::Causal => 0,
            Mask::Window(n) => (pos + 1).saturating_sub(n),
        }
    }
}

impl Rope {
    /// The angle by which each pair turns per position, `[d_rope / 2]`, in radians; `factors` is the model's tensor of
    /// them, used by the layers whose rope has factors.
    pub fn inv_freq(&self, factors: Option<&[f32]>) -> Vec<f64> {
        let stretch = match self.scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => f64::from(factor),
        };
        let factors = factors.filter(|_| self.factors != Presence::Absent);
        (0..self.d_rope / 2)
            .map(|i| {
                let exponent = (2 * i) as f64 / self.d_rope as f64;
                let factor = factors.map_or(1.0, |f| f64::from(f[i]));
                pow(f64::from(self.base), -exponent) / (stretch * factor)
            })
            .collect()
    }
}

impl ModelSpec {
    /// The widest attention and perceptron of all layers: `(max d_q, max d_kv, max d_ff)`.
    pub fn max_widths(&self) -> (usize, usize, usize) {
        let mut max = (0, 0, 0);
        for layer in &self.layers {
            let a = layer.attention();
            max = (max.0.max(a.d_q()), max.1.max(a.d_kv()), max.2.max(layer.mlp().d_ff));
        }
        max
    }

    /// Query heads of the layer that has most.
    pub fn max_heads(&self) -> usize {
        self.layers.iter().map(|l| l.attention().n_heads).max().unwrap_or(0)
    }

    /// Width of the widest head.
    pub fn max_d_head(&self) -> usize {
        self.layers.iter().map(|l| l.attention().d_head).max().unwrap_or(0)
    }

    /// Rotated elements of a head, where they are most.
    pub fn max_d_rope(&self) -> usize {
        self.layers.iter().filter_map(|l| l.attention().rope.as_ref()).map(|r| r.d_rope).max().unwrap_or(0)
    }

    /// Bytes of key-value state of each layer for `n_ctx` positions.
    pub fn state_bytes(&self, kv: KvType, n_ctx: usize) -> Vec<u64> {
        let row_bytes = |l: &LayerSpec| kv.k.row_bytes(l.attention().d_kv()) + kv.v.row_bytes(l.attention().d_kv());
        self.layers.iter().map(|l| (n_ctx as u64).saturating_mul(row_bytes(l) as u64)).collect()
    }
}
