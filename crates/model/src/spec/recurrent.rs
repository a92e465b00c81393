//! Mixers whose state has a fixed size, as plain data.

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
    /// How the rows of `W_beta` and `W_alpha` lie.
    pub gates: GateRows,
    /// What multiplies the normed results.
    pub gate: NetGate,
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
        let d_gates = 2 * self.n_heads;
        self.d_conv() + self.d_values() + d_gates + self.d_conv() + d_gates
    }
}
