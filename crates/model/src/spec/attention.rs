//! Softmax attention as plain data: heads, the positions that they see, and scores.

use atta_kernels::{
    KvElem, KvRole, KvRows,
    math::{ln, pow},
};

use crate::KvType;

use super::{Indexer, Latent, Norm, Presence, Retention, Rope};

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
    /// Where keys and values come from.
    pub kv: KvSource,
    /// Normalization of queries and keys.
    pub qk_norm: QkNorm,
    /// Scores are multiplied by this, usually `1 / sqrt(d_head)`.
    pub scale: f32,
    /// Queries at far positions are multiplied by more; `None`: all by 1.
    pub temperature: Option<Temperature>,
    /// `Some(c)`: scores become `c * tanh(score / c)` (Gemma 2, section 2).
    pub softcap: Option<f32>,
    /// `Some(max)`: ALiBi (Press et al. 2022): capped scores are lowered by the distance of the two
    /// positions, times a slope per head from `2^(-max / n)` down to `2^-max`, which knows no
    /// direction. There are no other positions then.
    pub slopes: Option<f32>,
    /// Attention sinks: whether each head has one more score, from a tensor of `[n_heads]`, that
    /// takes part in its softmax and has no value (Xiao et al. 2024; gpt-oss).
    pub sinks: Presence,
    /// What the results of heads are multiplied by.
    pub gate: OutputGate,
    /// The norm of the concatenated results of all heads, before the output projection: an RMS norm
    /// (Wang et al. 2022, section 3: Sub-LayerNorm).
    pub sub_norm: Option<Norm>,
    /// Whether the projections of q, k and v must have, may have or must not have a bias.
    pub qkv_bias: Presence,
    /// Whether the output projection must have, may have or must not have a bias.
    pub out_bias: Presence,
    /// Which of these positions far queries see; `None`: all.
    pub indexer: Option<Indexer>,
}

/// Where the keys and values of a layer come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvSource {
    /// From projections of the layer's input.
    Own {
        /// Whether values have a projection of their own. Without one they are the keys before
        /// their norm and rotation (Gemma 4).
        v_proj: Presence,
        /// `Some(eps)`: values of each head are divided by the root of their mean square, as by
        /// [`Norm::Rms`](super::Norm::Rms) without a weight (Gemma 4).
        v_norm: Option<f32>,
    },
    /// They are those of an earlier layer with the same heads and mask, which the cache holds once
    /// (Brandon et al. 2024: cross-layer attention).
    Layer(usize),
    /// From a latent vector, behind which lies its rotated part: the first `d_head - d_latent`
    /// elements of the one head of keys, which are the values too. The cache holds them once, in
    /// the type of keys.
    Latent(Latent),
}

impl KvSource {
    /// A projection of keys and one of values.
    pub const PROJECTED: Self = Self::Own {
        v_proj: Presence::Required,
        v_norm: None,
    };
}

/// What the results of heads are multiplied by before the output projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// Nothing.
    None,
    /// The sigmoid of a gate per element, which the projection of queries returns behind each
    /// head's query (Qiu et al. 2025; Qwen3-Next).
    Elements,
    /// The sigmoid of a gate per head, from a projection of the layer's input, `[n_heads]` (Qiu et
    /// al. 2025, section 2.2: headwise; LFM3).
    Heads,
}

/// Which positions a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All up to its own.
    Causal,
    /// The last `n`, its own included.
    Window(usize),
    /// Those of its chunk of `n` positions up to its own, from `pos / n * n` on (Llama 4).
    Chunk(usize),
    /// All of the text, those behind its own too.
    Full,
    /// Those at most `n` away, before and behind its own.
    Around(usize),
}

impl Mask {
    /// Whether positions behind the query's own are seen.
    pub fn sees_ahead(self) -> bool {
        matches!(self, Self::Full | Self::Around(_))
    }
}

/// Normalization of queries and keys, before the rotation unless it is said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// None.
    None,
    /// RMS norm of each head, one weight of width `d_head` for all heads.
    PerHead {
        /// As in [`Norm::Rms`](super::Norm::Rms).
        eps: f32,
    },
    /// As `PerHead`, but behind the rotation (Hunyuan).
    RotatedPerHead {
        /// As in [`Norm::Rms`](super::Norm::Rms).
        eps: f32,
    },
    /// LayerNorm of each head without a bias, each with a weight of its own, `[n_heads, d_head]`.
    LayerPerHead {
        /// As in [`Norm::Layer`](super::Norm::Layer).
        eps: f32,
        /// Whether there are such norms. Files have no key for it (Command R, StableLM).
        presence: Presence,
    },
    /// As [`PerHead`](Self::PerHead) where the file has the weights, and none elsewhere (GLM-4.5).
    PerHeadIfThere {
        /// As in [`Norm::Rms`].
        eps: f32,
    },
    /// Each head is divided by the root of its mean square, as by a norm without a weight (Llama
    /// 4).
    Unit {
        /// As in [`Norm::Rms`].
        eps: f32,
    },
    /// RMS norm over all heads together, weights of width `d_q` and `d_kv` (OLMo 2, section 3.2).
    Whole {
        /// As in [`Norm::Rms`](super::Norm::Rms).
        eps: f32,
    },
}

/// Queries are multiplied by `1 + slope * ln(1 + floor((position + offset) / n_ctx_orig))`, so that
/// attention over a long context stays as sharp as over a short one. Source: Llama 4's code, and
/// Ministral 3's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// How fast the factor grows.
    pub slope: f32,
    /// Positions after which it first grows.
    pub n_ctx_orig: usize,
    /// The number of the first position.
    pub offset: usize,
}

impl Temperature {
    /// The factor of the query at `pos`: of its absolute position, and of nothing else.
    pub fn at(&self, pos: usize) -> f32 {
        let step = pos.saturating_add(self.offset) / self.n_ctx_orig;
        (1.0 + f64::from(self.slope) * ln((1 + step) as f64)) as f32
    }
}

impl Attention {
    /// Width of all queries of a position.
    pub fn d_q(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Rows of the projection of queries.
    pub fn d_q_rows(&self) -> usize {
        match self.latent() {
            Some(latent) => self.n_heads * (latent.d_key + self.d_rotatable()),
            None if self.gate == OutputGate::Elements => 2 * self.d_q(),
            None => self.d_q(),
        }
    }

    /// Width of the results of all heads of a position.
    pub fn d_heads(&self) -> usize {
        self.latent()
            .map_or(self.d_q(), |latent| self.n_heads * latent.d_value)
    }

    /// The latent vector that keys and values come from, if they do.
    pub fn latent(&self) -> Option<&Latent> {
        match &self.kv {
            KvSource::Latent(latent) => Some(latent),
            KvSource::Own { .. } | KvSource::Layer(_) => None,
        }
    }

    /// How keys and values of these element types are stored; no values if they are the keys.
    pub(crate) fn kv_rows(&self, [k, v]: [KvElem; 2]) -> (KvRows, Option<KvRows>) {
        let d = self.d_head;
        let rows = |elem, role| KvRows { elem, role, d };
        if self.latent().is_some() {
            let value_from = self.d_rotatable();
            return (rows(k, KvRole::Both { value_from }), None);
        }
        (rows(k, KvRole::Key), Some(rows(v, KvRole::Value)))
    }

    /// How the keys of the indexer are stored, if there is one.
    pub(crate) fn index_rows(&self, kv: KvType) -> Option<KvRows> {
        self.indexer.map(|indexer| KvRows {
            elem: kv.index(),
            role: KvRole::Key,
            d: indexer.d_head,
        })
    }

    /// Width of the part of a head that may be rotated: all but the latent vector.
    pub fn d_rotatable(&self) -> usize {
        self.d_head - self.latent().map_or(0, |latent| latent.d_latent)
    }

    /// Width of the projections of latent attention; 0 elsewhere.
    pub(crate) fn d_latents(&self) -> usize {
        self.latent().map_or(0, |latent| {
            self.d_q_rows() + self.d_kv() + latent.d_query.unwrap_or(0)
        })
    }

    /// Width of the results of the projection that returns gates, which are queries and gates where
    /// it returns both; 0 without gates.
    pub(crate) fn d_gates(&self) -> usize {
        match self.gate {
            OutputGate::None => 0,
            OutputGate::Elements => 2 * self.d_q(),
            OutputGate::Heads => self.n_heads,
        }
    }

    /// The slope of a head: `2^(-max (h + 1) / n)` where `n`, the largest power of two in
    /// `n_heads`, is above `h`; the heads from `n` on have those of twice as many heads that lie
    /// between. 0 without slopes.
    pub fn slope(&self, h: usize) -> f32 {
        let Some(max) = self.slopes else { return 0.0 };
        let n = 1 << self.n_heads.max(1).ilog2();
        let share = match h < n {
            true => (h + 1) as f64 / n as f64,
            false => (2 * (h - n) + 1) as f64 / (2 * n) as f64,
        };
        pow(2.0, -f64::from(max) * share) as f32
    }

    /// Width of the queries and key of the indexer; 0 without one.
    pub(crate) fn d_indexed(&self) -> usize {
        self.indexer.map_or(0, |i| i.d_queries() + i.d_head)
    }

    /// Whether queries and keys are normalized behind the rotation.
    pub(crate) fn norms_rotated(&self) -> bool {
        matches!(self.qk_norm, QkNorm::RotatedPerHead { .. })
    }

    /// How long keys and values are needed.
    pub fn retention(&self) -> Retention {
        match self.mask {
            Mask::Causal => Retention::All,
            Mask::Window(n) | Mask::Chunk(n) => Retention::Window(n),
            Mask::Full | Mask::Around(_) => Retention::Text,
        }
    }

    /// The layer whose keys and values this one attends to, if they are not its own.
    pub fn kv_layer(&self) -> Option<usize> {
        match self.kv {
            KvSource::Own { .. } | KvSource::Latent(_) => None,
            KvSource::Layer(l) => Some(l),
        }
    }

    /// Width of all keys (or values) of a position.
    pub fn d_kv(&self) -> usize {
        self.n_kv_heads * self.d_head
    }

    /// The first position that the query at `pos` sees.
    pub fn first_visible(&self, pos: usize) -> usize {
        match self.mask {
            Mask::Causal | Mask::Full => 0,
            Mask::Window(n) => (pos + 1).saturating_sub(n),
            Mask::Chunk(n) => pos / n * n,
            Mask::Around(n) => pos.saturating_sub(n),
        }
    }

    /// The last position that the query at `pos` of a text of `n_text` positions sees.
    pub fn last_visible(&self, pos: usize, n_text: usize) -> usize {
        match self.mask {
            Mask::Causal | Mask::Window(_) | Mask::Chunk(_) => pos,
            Mask::Full => n_text - 1,
            Mask::Around(n) => pos.saturating_add(n).min(n_text - 1),
        }
    }
}
