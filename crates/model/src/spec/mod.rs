//! A model as plain data: what every layer does, fully expanded, with no tensors and no I/O.
//!
//! Many parts of the program read this description (loader, memory planner, forward pass, oracle,
//! converter), so it holds no patterns ("every sixth layer is global"): those are expanded when an
//! architecture is lowered. It does not know the names of architectures. The forward pass computes
//! nothing that is not described here.

mod alt_up;
mod attention;
mod encoder;
mod experts;
mod indexer;
mod join;
mod latent;
mod laurel;
mod layer_embed;
mod mamba;
mod ngram;
mod recurrent;
mod reduced;
mod rope;
mod sparse;
mod streams;

use std::ops::Range;

use atta_kernels::KvRows;

use crate::KvType;

pub use alt_up::AltUp;
pub use attention::{Attention, KvSource, Mask, OutputGate, QkNorm, Temperature};
pub use encoder::{DenseHead, Outputs, ScoreActivation, ScoreHead, ScoreInput, TokenTypes};
pub use experts::{ExpertGroups, Gating, GroupScore, MlpAndMoe, Moe, SharedExpert, WeightedSide};
pub use indexer::Indexer;
pub use join::{Join, JoinKind, Tap};
pub use latent::{Latent, LatentUp};
pub use laurel::Laurel;
pub use layer_embed::LayerEmbed;
pub use mamba::{AttentionAndMamba2, Mamba, Mamba2, StateNorms};
pub use ngram::{NgramEmbed, NgramTable};
pub use recurrent::{DeltaNet, GateRows, KeySharing, NetDecay, NetGate, NetTensors, ShortConv};
pub use rope::{Factors, Pairing, RampEnds, Rope, RopeScaling, Yarn, yarn_magnitude};
pub use sparse::SparseMlp;
pub use streams::{StreamKind, Streams};

/// A whole model: a decoder, or an encoder that sees each text whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Width of the residual stream, or of each of several.
    pub d_model: usize,
    /// Number of tokens.
    pub n_vocab: usize,
    /// Positions the model was trained for.
    pub n_ctx_train: usize,
    /// The embedding is multiplied by this.
    pub embed_scale: f32,
    /// The embedding of positions.
    pub positions: Positions,
    /// The embedding of the types of tokens.
    pub token_types: TokenTypes,
    /// The norm of the sum of a token's embeddings, before the first layer.
    pub embed_norm: Option<Norm>,
    /// The embedding of a token in every layer.
    pub layer_embed: Option<LayerEmbed>,
    /// Several residual streams, whose gated mean sublayers read; `None`: one.
    pub streams: Option<Streams>,
    /// Several residual streams, one for layers to read; `None`: one.
    pub alt_up: Option<AltUp>,
    /// The hidden states of another model that it reads, if it is a draft head.
    pub join: Option<Join>,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Layers of the file behind the last one, which predict further tokens from its result
    /// (multi-token prediction). They are not computed.
    pub n_nextn: usize,
    /// From the last residual to the results of the model.
    pub head: Head,
}

/// Numbers that are added to the embedding of a token for its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Nothing: positions enter by rotation, or not at all.
    None,
    /// A row of a learned table, `[n, d_model]`; there are no positions beyond it.
    Learned(usize),
}

/// One layer: a mixer and a feed-forward block, or only one of them, and how they are wired to the
/// residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Where the norms are.
    pub wiring: Wiring,
    /// Embeddings of n-grams that are added before the mixer.
    pub ngrams: Option<NgramEmbed>,
    /// The sublayer that mixes positions.
    pub mixer: Mixer,
    /// A low-rank layer beside the mixer.
    pub laurel: Option<Laurel>,
    /// The sublayer that computes each position by itself.
    pub ffn: Ffn,
    /// The result of each sublayer is multiplied by this before it is added to the residual.
    pub residual_scale: f32,
    /// Whether the residual behind the layer is multiplied by a number, a tensor of `[1]`.
    pub out_scale: Presence,
}

/// How the sublayers of a layer are wired to the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Wiring {
    /// `x += post[0](mixer(pre[0](x))); x += post[1](ffn(pre[1](x)))`.
    Sequential {
        /// Norms of the inputs of mixer and feed-forward block; `None`: the input is the residual.
        pre: [Option<Norm>; 2],
        /// Norms of their results, before the addition; RMS norms only.
        post: [Option<Norm>; 2],
    },
    /// `h = pre(x); x += mixer(h) + ffn(h)` (GPT-J).
    Parallel {
        /// The norm of the input of both.
        pre: Norm,
        /// `Some(norm)`: the feed-forward block reads `norm(x)` instead (GPT-NeoX).
        pre_ffn: Option<Norm>,
    },
    /// `x = norms[0](x + mixer(x)); x = norms[1](x + ffn(x))` (Vaswani et al. 2017; BERT).
    PostNorm {
        /// The norms of the sums.
        norms: [Norm; 2],
    },
    /// As hyper-connections say: [`StreamKind::HyperConnections`].
    Streams,
}

/// The two sublayers of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sublayer {
    /// The sublayer that mixes positions.
    Mixer,
    /// The sublayer that computes each position by itself.
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
    /// A LayerNorm without a bias.
    LayerNoBias {
        /// Keeps the root away from zero.
        eps: f32,
    },
}

/// The sublayer that mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// None: the layer has a feed-forward block only.
    None,
    /// Softmax attention with a key-value cache.
    Attention(Attention),
    /// Gated short convolution.
    ShortConv(ShortConv),
    /// Gated delta rule.
    DeltaNet(DeltaNet),
    /// Selective state space of channels.
    Mamba(Mamba),
    /// Selective state space of heads.
    Mamba2(Mamba2),
    /// Attention and a state space that read the same input.
    AttentionAndMamba2(AttentionAndMamba2),
}

/// The sublayer that computes each position by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// None: the layer has a mixer only.
    None,
    /// A gated MLP: `down(act(gate x) * (up x))` (Shazeer 2020).
    Gated(Mlp),
    /// An MLP without a gate: `down(act(up x))`.
    Plain(Mlp),
    /// A gated MLP most of whose gates are closed.
    Sparse(SparseMlp),
    /// Some of many gated MLPs, chosen for each position.
    Moe(Moe),
    /// A gated MLP and experts beside it.
    MlpAndMoe(MlpAndMoe),
}

/// A feed-forward network of one hidden layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Width of the hidden layer.
    pub d_ff: usize,
    /// The nonlinearity: of the gate, if there is one.
    pub activation: Activation,
    /// Whether its projections may have a bias.
    pub bias: Presence,
    /// The norm of the hidden layer before the down projection: an RMS norm, and never in an
    /// expert.
    pub sub_norm: Option<Norm>,
}

/// A nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x/2 (1 + erf(x / sqrt(2)))` (Hendrycks & Gimpel 2016).
    Gelu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `max(x, 0)²` (So et al. 2021).
    Relu2,
    /// xIELU (Huang & Schlag 2025, equation 9): `alpha_p x² + beta x` above 0, elsewhere
    /// `alpha_n (e^min(x, eps) - 1 - x) + beta x`.
    Xielu(Xielu),
    /// A gate and its product with `up`: `g * sigmoid(alpha g) * (u + 1)` with `g = min(gate,
    /// limit)` and `u = clamp(up, -limit, limit)` (gpt-oss).
    Clamped {
        /// How steep the sigmoid is.
        alpha: f32,
        /// The largest gate, and the largest magnitude of `up`; above 0.
        limit: f32,
    },
}

/// The numbers of xIELU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// Curvature above 0.
    pub alpha_p: f32,
    /// Curvature below 0.
    pub alpha_n: f32,
    /// The slope at 0.
    pub beta: f32,
    /// Exponents are no larger than this, a number just below 0.
    pub eps: f32,
}

/// From the last residual to the results of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The norm of the last residual; `None` where the last layer ends with one.
    pub norm: Option<Norm>,
    /// The results that are computed from the normed residual.
    pub outputs: Outputs,
    /// Whether the projection has a bias, `[n_vocab]`.
    pub bias: Presence,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
    /// `Some(c)`: logits become `c * tanh(logit / c)`.
    pub softcap: Option<f32>,
}

/// Whether a tensor belongs to a model. Metadata decides about the computation; presence decides
/// only optional weights.
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
    /// [`ModelSpec::state_floats`] numbers, overwritten by every position. The last inputs of a
    /// short convolution are such a state, too: a mixer with a convolution and a recurrence has to
    /// return to one position with both.
    Recurrent,
}

/// How long the keys and values of a position are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// As long as the sequence exists.
    All,
    /// As long as nothing is removed from the sequence: every position sees all others, so none
    /// of them is that of a shorter text.
    Text,
    /// As long as one of the next `n` positions may see it.
    Window(usize),
}

impl LayerSpec {
    /// The attention of this layer, if its mixer is one or has one.
    pub fn attention(&self) -> Option<&Attention> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::AttentionAndMamba2(both) => Some(&both.attention),
            Mixer::None
            | Mixer::ShortConv(_)
            | Mixer::DeltaNet(_)
            | Mixer::Mamba(_)
            | Mixer::Mamba2(_) => None,
        }
    }

    /// The attention of this layer, for changes.
    ///
    /// # Panics
    /// If the mixer is another one.
    pub fn attention_mut(&mut self) -> &mut Attention {
        match &mut self.mixer {
            Mixer::Attention(attention) => attention,
            Mixer::AttentionAndMamba2(both) => &mut both.attention,
            other => panic!("{other:?} is no attention"),
        }
    }

    /// The MLP of this layer; of each of its experts, if it has no other.
    pub fn mlp(&self) -> Option<&Mlp> {
        match &self.ffn {
            Ffn::None => None,
            Ffn::Gated(mlp) | Ffn::Plain(mlp) => Some(mlp),
            Ffn::Sparse(sparse) => Some(&sparse.mlp),
            Ffn::Moe(moe) => Some(&moe.expert),
            Ffn::MlpAndMoe(both) => Some(&both.mlp),
        }
    }

    /// The MLP of this layer, or of each of its experts if it has no other, for changes.
    ///
    /// # Panics
    /// If it has none.
    pub fn mlp_mut(&mut self) -> &mut Mlp {
        match &mut self.ffn {
            Ffn::Gated(mlp) | Ffn::Plain(mlp) => mlp,
            Ffn::Sparse(sparse) => &mut sparse.mlp,
            Ffn::Moe(moe) => &mut moe.expert,
            Ffn::MlpAndMoe(both) => &mut both.mlp,
            Ffn::None => panic!("a layer without a feed-forward block"),
        }
    }

    /// The mixture of experts of this layer, if it has one.
    pub fn moe(&self) -> Option<&Moe> {
        match &self.ffn {
            Ffn::Moe(moe) => Some(moe),
            Ffn::MlpAndMoe(both) => Some(&both.moe),
            Ffn::None | Ffn::Gated(_) | Ffn::Plain(_) | Ffn::Sparse(_) => None,
        }
    }

    /// The norm of the input of a sublayer.
    pub fn pre_norm(&self, sublayer: Sublayer) -> Option<Norm> {
        match self.wiring {
            Wiring::Sequential { pre, .. } => pre[sublayer as usize],
            Wiring::Parallel { pre, pre_ffn } => match sublayer {
                Sublayer::Mixer => Some(pre),
                Sublayer::Ffn => pre_ffn.or(Some(pre)),
            },
            Wiring::PostNorm { .. } | Wiring::Streams => None,
        }
    }

    /// The norm of the result of a sublayer.
    pub fn post_norm(&self, sublayer: Sublayer) -> Option<Norm> {
        match self.wiring {
            Wiring::Sequential { post, .. } => post[sublayer as usize],
            Wiring::Parallel { .. } | Wiring::PostNorm { .. } | Wiring::Streams => None,
        }
    }

    /// The norm of the sum of the residual and the result of a sublayer.
    pub fn sum_norm(&self, sublayer: Sublayer) -> Option<Norm> {
        match self.wiring {
            Wiring::Sequential { .. } | Wiring::Parallel { .. } | Wiring::Streams => None,
            Wiring::PostNorm { norms } => Some(norms[sublayer as usize]),
        }
    }

    /// The norm of the input of a sublayer's last projection.
    pub fn sub_norm(&self, sublayer: Sublayer) -> Option<Norm> {
        match sublayer {
            Sublayer::Mixer => self.attention().and_then(|a| a.sub_norm),
            Sublayer::Ffn => self.mlp().and_then(|mlp| mlp.sub_norm),
        }
    }

    /// Whether the result of a sublayer is stored before it is added to the residual: if a norm
    /// follows, if it is a sum of several results, if it is added to several streams, or if the
    /// other sublayer still has to read the residual.
    pub fn is_deferred(&self, sublayer: Sublayer) -> bool {
        let waits = matches!(self.wiring, Wiring::Parallel { .. }) && sublayer == Sublayer::Mixer;
        let is_sum = match sublayer {
            Sublayer::Mixer => matches!(self.mixer, Mixer::AttentionAndMamba2(_)),
            Sublayer::Ffn => matches!(self.ffn, Ffn::MlpAndMoe(_)),
        };
        let is_normed = self.post_norm(sublayer).is_some() || self.sum_norm(sublayer).is_some();
        waits || is_sum || is_normed || self.wiring == Wiring::Streams
    }

    /// How this layer keeps the past: keys and values, a recurrent state, both or nothing.
    pub fn state_kinds(&self) -> impl Iterator<Item = StateKind> {
        let kv = self.attention().map(|a| StateKind::Kv(a.retention()));
        let recurrent = self.is_recurrent().then_some(StateKind::Recurrent);
        kv.into_iter().chain(recurrent)
    }

    /// Whether this layer has a recurrent state.
    pub fn is_recurrent(&self) -> bool {
        self.ngrams.is_some() || !matches!(self.mixer, Mixer::None | Mixer::Attention(_))
    }

    /// Numbers of the recurrent state of the mixer; 0 without one.
    pub(crate) fn mixer_floats(&self, d_model: usize) -> usize {
        match &self.mixer {
            Mixer::None | Mixer::Attention(_) => 0,
            Mixer::ShortConv(conv) => conv.state_floats(d_model),
            Mixer::DeltaNet(net) => net.state_floats(),
            Mixer::Mamba(mamba) => mamba.state_floats(),
            Mixer::Mamba2(mamba) => mamba.state_floats(),
            Mixer::AttentionAndMamba2(both) => both.mamba.state_floats(),
        }
    }
}

impl ModelSpec {
    /// Width of the residual of a position: of all streams together, and behind them the inputs of
    /// all layers, where a model has embeddings in every layer.
    pub fn d_residual(&self) -> usize {
        let n_streams = self.streams.map_or(1, |streams| streams.n);
        n_streams * self.d_model + self.d_layer_inputs()
    }

    /// Width of the inputs of all layers, of embeddings in every layer; 0 without such.
    pub fn d_layer_inputs(&self) -> usize {
        let of_layer = self.layer_embed.map_or(0, |embed| embed.d);
        of_layer * self.layers.len()
    }

    /// The attention of each layer that has one.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(LayerSpec::attention)
    }

    /// The rotations of the layers that rotate.
    pub(crate) fn ropes(&self) -> impl Iterator<Item = &Rope> {
        self.attentions().filter_map(|a| a.rope.as_ref())
    }

    /// Whether some layer sees the positions behind its own, so that a text must be evaluated
    /// whole.
    pub fn is_encoder(&self) -> bool {
        self.attentions().any(|a| a.mask.sees_ahead())
    }

    /// Whether the first attention reads embedding and hidden state, joined.
    pub(crate) fn reads_joined(&self) -> bool {
        let join = self.join.as_ref();
        join.is_some_and(|join| matches!(join.kind, JoinKind::Beside { .. }))
    }

    /// Numbers that the output head gives for a position: one for each token that it knows.
    pub fn n_logits(&self) -> usize {
        self.join
            .as_ref()
            .map_or(self.n_vocab, |join| join.n_guessed)
    }

    /// Whether some layer has a recurrent state.
    pub fn is_recurrent(&self) -> bool {
        self.layers.iter().any(LayerSpec::is_recurrent)
    }

    /// The layer with embeddings of n-grams, if there is one.
    pub fn ngrams(&self) -> Option<(usize, &NgramEmbed)> {
        let all = self.layers.iter().enumerate();
        all.filter_map(|(l, layer)| Some((l, layer.ngrams.as_ref()?)))
            .next()
    }

    /// The token of a position that has an embedding in its place.
    pub(crate) fn placeholder(&self) -> u32 {
        self.ngrams()
            .and_then(|(_, ngrams)| ngrams.media)
            .unwrap_or(0)
    }

    /// Whether these layers have embeddings of n-grams and no token for an embedding in its place.
    pub(crate) fn lacks_placeholder(&self, layers: &Range<usize>) -> bool {
        let ngrams = self.ngrams().filter(|(l, _)| layers.contains(l));
        ngrams.is_some_and(|(_, ngrams)| ngrams.media.is_none())
    }

    /// Numbers of the recurrent state of layer `l`, those of its mixer first; 0 without one.
    pub fn state_floats(&self, l: usize) -> usize {
        let layer = &self.layers[l];
        let ngrams = layer.ngrams.as_ref();
        layer.mixer_floats(self.d_model)
            + ngrams.map_or(0, |ngrams| ngrams.state_floats(self.d_residual()))
    }

    /// The widest attention and MLP of all layers: `(max d_q, max d_kv, max d_ff)`. The gate of a
    /// layer's embedding and a low-rank layer count as MLPs.
    pub fn max_widths(&self) -> (usize, usize, usize) {
        let mut max = (0, 0, 0);
        for layer in &self.layers {
            let mlps = layer.moe().into_iter().flat_map(Moe::mlps);
            max.2 = mlps
                .chain(layer.mlp())
                .map(|m| m.d_ff)
                .chain(layer.laurel.map(|laurel| laurel.rank))
                .fold(max.2, usize::max);
        }
        max.2 = max.2.max(self.layer_embed.map_or(0, |embed| embed.d));
        for a in self.attentions() {
            (max.0, max.1) = (max.0.max(a.d_q()).max(a.d_heads()), max.1.max(a.d_kv()));
        }
        max
    }

    /// Width of the widest projections of a mixer that are no queries, keys or values, and of the
    /// buffers of n-grams; 0 without any.
    pub(crate) fn max_d_mixer(&self) -> usize {
        let width = |layer: &LayerSpec| match &layer.mixer {
            Mixer::None => 0,
            Mixer::Attention(a) => a.d_gates() + a.d_latents() + a.d_indexed(),
            Mixer::ShortConv(_) => ShortConv::N_INPUTS * self.d_model,
            Mixer::DeltaNet(net) => net.d_scratch(),
            Mixer::Mamba(mamba) => mamba.d_scratch(),
            Mixer::Mamba2(mamba) => mamba.d_scratch(),
            Mixer::AttentionAndMamba2(both) => {
                let a = &both.attention;
                both.mamba.d_scratch().max(a.d_gates() + a.d_indexed())
            }
        };
        let ngrams = self.layers.iter().filter_map(|layer| layer.ngrams.as_ref());
        let ngrams = ngrams.map(|n| n.d_scratch(self.d_model, self.d_residual()));
        self.layers
            .iter()
            .map(width)
            .chain(ngrams)
            .max()
            .unwrap_or(0)
    }

    /// Width of the widest results of a mixer's heads.
    pub(crate) fn max_d_heads(&self) -> usize {
        let width = |layer: &LayerSpec| match &layer.mixer {
            Mixer::None | Mixer::ShortConv(_) => 0,
            Mixer::Attention(a) => a.d_q(),
            Mixer::DeltaNet(net) => net.d_values(),
            Mixer::Mamba(mamba) => mamba.d_inner,
            Mixer::Mamba2(mamba) => mamba.d_inner(),
            Mixer::AttentionAndMamba2(both) => both.mamba.d_inner().max(both.attention.d_q()),
        };
        self.layers.iter().map(width).max().unwrap_or(0)
    }

    /// Width of the widest input of a mixer's last projections.
    pub(crate) fn max_d_mixed(&self) -> usize {
        let width = |layer: &LayerSpec| match &layer.mixer {
            Mixer::None | Mixer::ShortConv(_) => 0,
            Mixer::Attention(a) => a.d_heads(),
            Mixer::DeltaNet(net) => net.ranks().into_iter().fold(net.d_values(), usize::max),
            Mixer::Mamba(mamba) => mamba.d_inner.max(mamba.d_rank),
            Mixer::Mamba2(mamba) => mamba.d_inner(),
            Mixer::AttentionAndMamba2(both) => both.mamba.d_inner().max(both.attention.d_heads()),
        };
        self.layers.iter().map(width).max().unwrap_or(0)
    }

    /// Width of the widest sparse MLP; 0 without any.
    pub(crate) fn max_d_sparse(&self) -> usize {
        let widths = self.layers.iter().map(|layer| match &layer.ffn {
            Ffn::Sparse(sparse) => sparse.mlp.d_ff,
            _ => 0,
        });
        widths.max().unwrap_or(0)
    }

    /// Whether some layer has a low-rank layer beside its mixer.
    pub(crate) fn has_laurel(&self) -> bool {
        self.layers.iter().any(|layer| layer.laurel.is_some())
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

    /// The indexers of the layers that have one.
    pub(crate) fn indexers(&self) -> impl Iterator<Item = Indexer> {
        self.attentions().filter_map(|a| a.indexer)
    }

    /// Rotated elements of a head, where they are most.
    pub fn max_d_rope(&self) -> usize {
        self.ropes().map(|r| r.d_rope).max().unwrap_or(0)
    }

    /// Whether some layer defers the result of a sublayer, or adds an embedding or the result of a
    /// low-rank layer of its own.
    pub fn defers_residual(&self) -> bool {
        let mut layers = self.layers.iter();
        let defers = |l: &LayerSpec| {
            let sublayers = [Sublayer::Mixer, Sublayer::Ffn];
            l.laurel.is_some() || sublayers.into_iter().any(|s| l.is_deferred(s))
        };
        self.layer_embed.is_some() || self.alt_up.is_some() || layers.any(defers)
    }

    /// Bytes of keys and values that each layer stores for `n_ctx` positions; 0 for recurrent
    /// layers and for those that attend to another layer's.
    pub fn state_bytes(&self, kv: KvType, n_ctx: usize) -> Vec<u64> {
        let row_bytes = |l: usize| {
            let attention = self.layers[l].attention();
            let Some(a) = attention.filter(|a| a.kv_layer().is_none()) else {
                return 0;
            };
            let (k, v) = a.kv_rows(kv.of_layer(l, self.layers.len()));
            let row_bytes = |rows: KvRows| a.n_kv_heads * rows.row_bytes();
            let index = a.index_rows(kv).map_or(0, KvRows::row_bytes);
            row_bytes(k) + v.map_or(0, row_bytes) + index
        };
        (0..self.layers.len())
            .map(|l| (n_ctx as u64).saturating_mul(row_bytes(l) as u64))
            .collect()
    }
}
