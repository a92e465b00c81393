//! Mixers whose state has a fixed size, as plain data.

use std::ops::Range;

/// Gated short convolution over the last `n_taps` positions (LFM2; Liquid AI 2025):
/// `b, c, x = W_in h; y = W_out (c ⊙ conv(b ⊙ x))`, every element of `b ⊙ x` by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// Positions that an output depends on, its own included; at least 2.
    pub n_taps: usize,
}

impl ShortConv {
    /// Vectors of width `d_model` that the input projection returns: b, c and x.
    pub const N_INPUTS: usize = 3;

    /// The state: `b ⊙ x` of the last positions, `[n_taps - 1, d_model]`.
    pub fn state_floats(&self, d_model: usize) -> usize {
        (self.n_taps - 1) * d_model
    }
}

/// Gated delta rule (Yang et al. 2025; Qwen3-Next, Qwen3.5): linear attention whose state, a matrix
/// per head, forgets by a factor and replaces what it tells for a key. For head h of a position:
///
/// ```text
/// q, k, v = silu(conv(W_qkv x));  q, k = q/|q| / sqrt(d_key), k/|k|
/// decay = exp(a softplus(W_alpha x + b));  gain = sigmoid(W_beta x)
/// S = decay S;  S += gain (v - S k) kᵀ
/// y = W_out (norm(S q) ⊙ gate(W_z x))
/// ```
/// Kimi delta attention (Kimi Team 2025, section 3) has a decay of each element of a key, which
/// scales the columns of S.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNet {
    /// Positions that an output of the convolution depends on, its own included; at least 2.
    pub n_taps: usize,
    /// Heads of values; each has a state.
    pub n_heads: usize,
    /// Heads of queries and keys, a divisor of `n_heads`.
    pub n_key_heads: usize,
    /// Width of a query or key.
    pub d_key: usize,
    /// Width of a value.
    pub d_value: usize,
    /// Which heads share queries and keys.
    pub sharing: KeySharing,
    /// How `W_qkv`, the taps of its convolution and `W_out` are stored.
    pub tensors: NetTensors,
    /// What remains of a state.
    pub decay: NetDecay,
    /// What multiplies the normed results.
    pub gate: NetGate,
    /// `Some(rank)`: `W_z` is a product of two matrices, with a vector of this width between them.
    pub gate_rank: Option<usize>,
    /// Keeps `|q|` and `|k|` away from zero.
    pub l2_eps: f32,
    /// Of the norm of results, as in [`Norm::Rms`](super::Norm::Rms).
    pub eps: f32,
}

/// Which heads of values share a head of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// Neighbours: heads 0 and 1 have keys 0.
    Neighbours,
    /// In turn: head 0 has keys 0, head 1 has keys 1.
    InTurn,
}

/// What the results of a gated delta net are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetGate {
    /// `silu(W_z x)`.
    Silu,
    /// `sigmoid(W_z x)`.
    Sigmoid,
}

/// How the projections of a gated delta net are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetTensors {
    /// Those of queries, keys and values in one tensor, and so the taps of their convolution.
    Joint,
    /// Each by itself, under the names of attention.
    Apart,
}

/// What remains of the state of a head from one position to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetDecay {
    /// A number, from a projection to heads.
    Heads(GateRows),
    /// A number of each element of a key; `W_alpha` is a product of two matrices, with a vector of
    /// this width between them.
    Channels {
        /// The width.
        rank: usize,
    },
}

/// How the rows of the projections of decay and gain lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRows {
    /// In two tensors.
    Apart,
    /// In one: for each key head, the gains of its heads, then their decays.
    ByKeyHead,
}

impl DeltaNet {
    /// Width of all queries (or keys) of a position.
    pub fn d_keys(&self) -> usize {
        self.n_key_heads * self.d_key
    }

    /// Width of all values of a position.
    pub fn d_values(&self) -> usize {
        self.n_heads * self.d_value
    }

    /// Width of queries, keys and values of a position: the channels of the convolution.
    pub fn d_conv(&self) -> usize {
        2 * self.d_keys() + self.d_values()
    }

    /// Channels of each convolution.
    pub fn convs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let [d_keys, d_conv] = [self.d_keys(), self.d_conv()];
        let ends = match self.tensors {
            NetTensors::Joint => [d_conv; 3],
            NetTensors::Apart => [d_keys, 2 * d_keys, d_conv],
        };
        let starts = [0, ends[0], ends[1]];
        let all = starts.into_iter().zip(ends).map(|(start, end)| start..end);
        all.filter(|channels| !channels.is_empty())
    }

    /// Width of the vectors between the matrices of `W_z` and of `W_alpha`.
    pub fn ranks(&self) -> [usize; 2] {
        let decay = match self.decay {
            NetDecay::Heads(_) => 0,
            NetDecay::Channels { rank } => rank,
        };
        [self.gate_rank.unwrap_or(0), decay]
    }

    /// Decays of a position.
    pub fn n_decays(&self) -> usize {
        match self.decay {
            NetDecay::Heads(_) => self.n_heads,
            NetDecay::Channels { .. } => self.n_heads * self.d_key,
        }
    }

    /// Width of the first products with the input of a position: queries, keys and values, the
    /// gate, gains and decays, or the vectors that gate and decays are projected from.
    pub(crate) fn d_inputs(&self) -> usize {
        let [d_gate, n_decays] = self.second_widths();
        let [gate_rank, decay_rank] = self.ranks();
        let d_gate = gate_rank + self.d_values() - d_gate;
        self.d_conv() + d_gate + self.n_heads + decay_rank + self.n_decays() - n_decays
    }

    /// Width of the second products: those of gate and decays, where they are of low rank.
    pub(crate) fn second_widths(&self) -> [usize; 2] {
        let [gate_rank, decay_rank] = self.ranks();
        let of = |rank: usize, width| if rank > 0 { width } else { 0 };
        [
            of(gate_rank, self.d_values()),
            of(decay_rank, self.n_decays()),
        ]
    }

    /// Width of what a scan reads: queries, keys, values, decays and gains.
    pub(crate) fn d_scanned(&self) -> usize {
        self.d_conv() + self.n_decays() + self.n_heads
    }

    /// The head of queries and keys of head `h`.
    pub fn key_head(&self, h: usize) -> usize {
        match self.sharing {
            KeySharing::Neighbours => h / (self.n_heads / self.n_key_heads),
            KeySharing::InTurn => h % self.n_key_heads,
        }
    }

    /// Floats of the inputs of the convolution that are a part of the state.
    pub fn conv_floats(&self) -> usize {
        (self.n_taps - 1) * self.d_conv()
    }

    /// The state: the last inputs of the convolution, `[n_taps - 1, d_conv]`, and
    /// `[n_heads, d_value, d_key]`.
    pub fn state_floats(&self) -> usize {
        self.conv_floats() + self.d_values() * self.d_key
    }

    /// Width of the buffers of a position: the projections, and what a scan reads.
    pub(crate) fn d_scratch(&self) -> usize {
        self.d_inputs() + self.second_widths().iter().sum::<usize>() + self.d_scanned()
    }
}
