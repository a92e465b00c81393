//! A model as plain data: what every layer does, fully expanded, with no tensors and no I/O.
//!
//! Seven parts of the engine read this description (loader, memory planner, forward pass, oracle,
//! later the streamer, the cluster cutter and the converter), so it holds no patterns ("every sixth
//! layer is global"): those are expanded when an architecture is lowered. It refuses to know the
//! name of any architecture. What is not described here does not happen in the forward pass.

mod attention;
mod recurrent;
mod rope;

use crate::KvType;

pub use attention::{Attention, Mask, QkNorm, Temperature};
pub use recurrent::ShortConv;
pub use rope::{Factors, Pairing, RampEnds, Rope, RopeScaling, Yarn, yarn_magnitude};

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
    /// What is added to the embedding of a token by its position.
    pub positions: Positions,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// What turns the last residual into logits.
    pub head: Head,
}

/// What is added to the embedding of a token by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Nothing: positions enter by rotation, or not at all.
    None,
    /// A row of a learned table, `[n, d_model]`; there are no positions beyond it.
    Learned(usize),
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
    /// `x += post[0](mixer(pre[0](x))); x += post[1](ffn(pre[1](x)))`.
    Sequential {
        /// Norms of the inputs of mixer and feed-forward block; `None`: the residual itself goes
        /// in.
        pre: [Option<Norm>; 2],
        /// Norms of what the blocks return, before it is added; RMS norms only.
        post: [Option<Norm>; 2],
    },
    /// `h = pre(x); x += mixer(h) + ffn(h)` (GPT-J).
    Parallel {
        /// The one norm, of the input of both blocks.
        pre: Norm,
    },
}

/// The two blocks of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// What mixes positions.
    Mixer,
    /// What works on each position alone.
    Ffn,
}

/// A normalization of a vector. Its weight is a tensor, its epsilon comes from the metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `x / sqrt(mean(x²) + eps) * weight` (Zhang & Sennrich 2019).
    Rms {
        /// Keeps the root away from zero.
        eps: f32,
    },
    /// `(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias` (Ba et al. 2016).
    Layer {
        /// Keeps the root away from zero.
        eps: f32,
    },
}

/// What mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention with a key-value cache.
    Attention(Attention),
    /// Gated short convolution.
    ShortConv(ShortConv),
}

/// What works on each position alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// One gated perceptron: `down(act(gate x) * (up x))` (Shazeer 2020).
    Gated(Mlp),
    /// One perceptron without a gate: `down(act(up x))`.
    Plain(Mlp),
    /// Some of many gated perceptrons, chosen for each position.
    Moe(Moe),
}

/// A mixture of experts (Shazeer et al. 2017; Fedus et al. 2021): a router gives each position a
/// weight for every expert, and the sum of the `n_used` best experts' results, times their weights,
/// is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// Experts of the layer.
    pub n_experts: usize,
    /// Experts that a position goes to.
    pub n_used: usize,
    /// The perceptron that each expert is.
    pub expert: Mlp,
    /// Whether the router has a bias, `[n_experts]`.
    pub router_bias: Presence,
    /// From the router's logits to weights.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub renormalize: bool,
    /// The weights of the chosen experts are multiplied by this.
    pub weights_scale: f32,
    /// `Some(mlp)`: every position also gets `sigmoid(g · x) * mlp(x)` (Qwen2 MoE).
    pub shared: Option<Mlp>,
}

/// How a router's logits become weights of experts. The experts of largest weight are chosen, the
/// lower id on ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
}

/// The sizes of a perceptron.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Width of the hidden layer.
    pub d_ff: usize,
    /// The nonlinearity: of the gate, where there is one.
    pub activation: Activation,
    /// Whether its projections may have a bias.
    pub bias: Presence,
    /// The norm of the hidden layer before the down projection; an RMS norm, if there is one, and
    /// of no expert.
    pub sub_norm: Option<Norm>,
}

/// A nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `max(x, 0)²` (So et al. 2021).
    Relu2,
    /// Of a gate only, and of what it is multiplied with: `g * sigmoid(alpha g) * (u + 1)` with `g
    /// = min(gate, limit)` and `u = clamp(up, -limit, limit)` (gpt-oss).
    Clamped {
        /// How steep the sigmoid is.
        alpha: f32,
        /// The largest gate, and the largest magnitude of `up`; above 0.
        limit: f32,
    },
}

/// What turns the last residual into logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The norm before the projection.
    pub norm: Norm,
    /// Whether the projection has a bias, `[n_vocab]`.
    pub bias: Presence,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
    /// `Some(c)`: logits become `c * tanh(logit / c)`.
    pub softcap: Option<f32>,
}

/// Whether a tensor belongs to a model. Metadata decides what is computed; presence decides only
/// optional weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Required,
    /// It is used where it is there.
    Optional,
    /// It must not be there.
    Absent,
}

/// How a layer keeps the past of a sequence. Layers of the same kind form a group, which shares a
/// block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keys and values of every position that is still visible.
    Kv(Retention),
    /// [`LayerSpec::state_floats`] numbers, overwritten by every position. The last inputs of a
    /// short convolution are such a state, too: a mixer with a convolution and a recurrence has to
    /// return to one position with both.
    Recurrent,
}

/// How long the keys and values of a position are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// As long as the sequence lives.
    All,
    /// As long as one of the next `n` positions may ask.
    Window(usize),
}

impl LayerSpec {
    /// The attention of this layer, if that is its mixer.
    pub fn attention(&self) -> Option<&Attention> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::ShortConv(_) => None,
        }
    }

    /// The attention of this layer, for changes.
    ///
    /// # Panics
    /// If the mixer is another one.
    pub fn attention_mut(&mut self) -> &mut Attention {
        match &mut self.mixer {
            Mixer::Attention(attention) => attention,
            other => panic!("{other:?} is no attention"),
        }
    }

    /// The perceptron of this layer, or the one that each of its experts is.
    pub fn mlp(&self) -> &Mlp {
        match &self.ffn {
            Ffn::Gated(mlp) | Ffn::Plain(mlp) => mlp,
            Ffn::Moe(moe) => &moe.expert,
        }
    }

    /// The same, to be changed.
    pub fn mlp_mut(&mut self) -> &mut Mlp {
        match &mut self.ffn {
            Ffn::Gated(mlp) | Ffn::Plain(mlp) => mlp,
            Ffn::Moe(moe) => &mut moe.expert,
        }
    }

    /// The mixture of experts of this layer, if it has one.
    pub fn moe(&self) -> Option<&Moe> {
        match &self.ffn {
            Ffn::Moe(moe) => Some(moe),
            Ffn::Gated(_) | Ffn::Plain(_) => None,
        }
    }

    /// The norm of what a block reads.
    pub fn pre_norm(&self, half: Half) -> Option<Norm> {
        match self.wiring {
            Wiring::Sequential { pre, .. } => pre[half as usize],
            Wiring::Parallel { pre } => Some(pre),
        }
    }

    /// The norm of what a block returns.
    pub fn post_norm(&self, half: Half) -> Option<Norm> {
        match self.wiring {
            Wiring::Sequential { post, .. } => post[half as usize],
            Wiring::Parallel { .. } => None,
        }
    }

    /// The norm of what the last projection of a block reads.
    pub fn sub_norm(&self, half: Half) -> Option<Norm> {
        match half {
            Half::Mixer => self.attention().and_then(|a| a.sub_norm),
            Half::Ffn => self.mlp().sub_norm,
        }
    }

    /// Whether what a block returns is kept aside before it is added to the residual.
    pub fn is_kept_aside(&self, half: Half) -> bool {
        let waits = matches!(self.wiring, Wiring::Parallel { .. }) && half == Half::Mixer;
        waits || self.post_norm(half).is_some()
    }

    /// How this layer keeps the past.
    pub fn state_kind(&self) -> StateKind {
        match &self.mixer {
            Mixer::Attention(a) => StateKind::Kv(match a.mask {
                Mask::Causal => Retention::All,
                Mask::Window(n) => Retention::Window(n),
            }),
            Mixer::ShortConv(_) => StateKind::Recurrent,
        }
    }

    /// Numbers of the recurrent state of this layer; 0 without one.
    pub fn state_floats(&self, d_model: usize) -> usize {
        match &self.mixer {
            Mixer::Attention(_) => 0,
            Mixer::ShortConv(conv) => conv.state_floats(d_model),
        }
    }
}

impl ModelSpec {
    /// The attention layers' parameters.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(LayerSpec::attention)
    }

    /// The rotations of the layers that rotate.
    pub(crate) fn ropes(&self) -> impl Iterator<Item = &Rope> {
        self.attentions().filter_map(|a| a.rope.as_ref())
    }

    /// Whether some layer has a recurrent state.
    pub fn is_recurrent(&self) -> bool {
        self.layers
            .iter()
            .any(|l| l.state_kind() == StateKind::Recurrent)
    }

    /// The widest attention and perceptron of all layers: `(max d_q, max d_kv, max d_ff)`.
    pub fn max_widths(&self) -> (usize, usize, usize) {
        let mut max = (0, 0, 0);
        for layer in &self.layers {
            let d_shared = layer
                .moe()
                .and_then(|m| m.shared.as_ref())
                .map_or(0, |m| m.d_ff);
            max.2 = max.2.max(layer.mlp().d_ff).max(d_shared);
        }
        for a in self.attentions() {
            (max.0, max.1) = (max.0.max(a.d_q()), max.1.max(a.d_kv()));
        }
        max
    }

    /// Width of the widest input projection of a recurrent mixer; 0 without one.
    pub fn max_d_recurrent(&self) -> usize {
        let width = |layer: &LayerSpec| match &layer.mixer {
            Mixer::Attention(_) => 0,
            Mixer::ShortConv(_) => ShortConv::N_INPUTS * self.d_model,
        };
        self.layers.iter().map(width).max().unwrap_or(0)
    }

    /// The most experts of a layer, and the most that a position goes to: `(max n_experts, max
    /// n_used)`; 0 without any.
    pub fn max_experts(&self) -> (usize, usize) {
        let moes = self.layers.iter().filter_map(LayerSpec::moe);
        moes.fold((0, 0), |max, m| {
            (max.0.max(m.n_experts), max.1.max(m.n_used))
        })
    }

    /// Query heads of the layer that has most.
    pub fn max_heads(&self) -> usize {
        self.attentions().map(|a| a.n_heads).max().unwrap_or(0)
    }

    /// Width of the widest head.
    pub fn max_d_head(&self) -> usize {
        self.attentions().map(|a| a.d_head).max().unwrap_or(0)
    }

    /// Rotated elements of a head, where they are most.
    pub fn max_d_rope(&self) -> usize {
        self.ropes().map(|r| r.d_rope).max().unwrap_or(0)
    }

    /// Whether some layer keeps what a block returns aside.
    pub fn keeps_aside(&self) -> bool {
        self.layers
            .iter()
            .any(|l| l.is_kept_aside(Half::Mixer) || l.is_kept_aside(Half::Ffn))
    }

    /// Bytes of keys and values of each layer for `n_ctx` positions; 0 for recurrent layers.
    pub fn state_bytes(&self, kv: KvType, n_ctx: usize) -> Vec<u64> {
        let row_bytes = |l: usize| {
            let Some(a) = self.layers[l].attention() else {
                return 0;
            };
            kv.of_layer(l, self.layers.len())
                .iter()
                .map(|elem| a.n_kv_heads * elem.row_bytes(a.d_head))
                .sum::<usize>()
        };
        (0..self.layers.len())
            .map(|l| (n_ctx as u64).saturating_mul(row_bytes(l) as u64))
            .collect()
    }
}
