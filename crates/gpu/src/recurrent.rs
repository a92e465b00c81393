//! The kernels of recurrent layers: convolutions over the last positions, states of heads.
//!
//! They know rows, and where the blocks of states are, and no layer. The buffer of keys and values
//! has the blocks of states here, f32 each.
//!
//! ```text
//! Convolve: inputs → x;   KeepInputs: the last inputs → states
//! NormHeads of queries and keys, Decays → Scan by a rule: S before → S behind, results
//! ```

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId, RowActivation};

/// The widest keys of a scan.
pub const SCAN_KEY_MAX: u32 = 256;

/// Vectors that a layer computes at every position and needs at later ones.
#[derive(Clone, Copy, Debug)]
pub struct RowHistory {
    /// Width of a vector.
    pub d: u32,
    /// First word of those of the batch among the values, `[n_rows, d]`.
    pub x: u32,
    /// First word among the tables of the sources of vectors, `[n_rows, n_sources]` pairs: 0 and a
    /// row; or how many positions before the end of a state, and the first word of its block; or
    /// `u32::MAX` twice: there is none.
    pub sources: u32,
    /// Sources of a row: its own vector, and those of positions before.
    pub n_sources: u32,
    /// Vectors in a state.
    pub len: u32,
    /// First float of these in a block of states.
    pub state: u32,
}

impl RowHistory {
    fn words(&self) -> [u32; 6] {
        [
            self.d,
            self.x,
            self.sources,
            self.n_sources,
            self.len,
            self.state,
        ]
    }
}

/// A causal convolution, every channel by itself: `y = act(bias + Σ_j taps_j·x[pos − len + j])`.
#[derive(Clone, Copy, Debug)]
pub struct Convolve {
    /// Its inputs; one tap more than vectors in a state.
    pub history: RowHistory,
    /// Rows.
    pub n_rows: u32,
    /// First word of the taps among the weights, `[len + 1, d]` f32.
    pub taps: u32,
    /// First word of the bias among the weights, `[d]` f32, if there is one.
    pub bias: Option<u32>,
    /// Applied to the results; one without numbers of its own.
    pub activation: Option<RowActivation>,
    /// First word of the results among the values, and the width of their rows.
    pub out: u32,
    /// The results are the first `d` of these.
    pub d_out: u32,
}

impl Convolve {
    /// The run of the kernel [`Shader::convolve`](crate::Shader::convolve).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..7].copy_from_slice(&self.history.words());
        params[7..12].copy_from_slice(&[
            self.taps,
            self.bias.unwrap_or(NONE),
            self.out,
            self.d_out,
            self.activation.map_or(NONE, RowActivation::kind),
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.history.d.div_ceil(64), self.n_rows, 1],
        }
    }
}

/// The last vectors of some rows, for the states behind these.
#[derive(Clone, Copy, Debug)]
pub struct KeepInputs {
    /// The vectors.
    pub history: RowHistory,
    /// First word among the tables of pairs of a row and of the first word of the block that
    /// receives its state.
    pub kept: u32,
    /// Rows whose state is kept.
    pub n_kept: u32,
}

impl KeepInputs {
    /// The run of the kernel [`Shader::keep_inputs`](crate::Shader::keep_inputs).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..7].copy_from_slice(&self.history.words());
        params[7] = self.kept;
        let RowHistory { d, len, .. } = self.history;
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [d.div_ceil(64), len, self.n_kept],
        }
    }
}

/// What remains of states at each row, and what multiplies its values: `decay = exp(a·step)` with
/// `step = max(softplus(alpha + bias), least)`, and `gain = sigmoid(beta)`, or the step.
#[derive(Clone, Copy, Debug)]
pub struct Decays {
    /// Rows.
    pub n_rows: u32,
    /// Decays of a row.
    pub n: u32,
    /// Neighbours among them that share a rate and a gain.
    pub n_shared: u32,
    /// First word among the values, `[n_rows, n]`.
    pub alpha: u32,
    /// First word among the values of what gains are made of, `[n_rows, n / n_shared]`; `None`:
    /// they are the steps.
    pub beta: Option<u32>,
    /// First word of the rates among the weights, `[n / n_shared]` f32; `None`: there are gains
    /// alone.
    pub a: Option<u32>,
    /// First word among the weights, `[n]` f32.
    pub bias: u32,
    /// No step is smaller.
    pub least: f32,
    /// First word of the decays among the values, `[n_rows, n]`.
    pub decays: u32,
    /// The same of the gains, `[n_rows, n / n_shared]`.
    pub gains: u32,
}

impl Decays {
    /// The run of the kernel [`Shader::decays`](crate::Shader::decays).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..10].copy_from_slice(&[
            self.n,
            self.n_shared,
            self.alpha,
            self.beta.unwrap_or(NONE),
            self.a.unwrap_or(NONE),
            self.bias,
            self.least.to_bits(),
            self.decays,
            self.gains,
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n.div_ceil(64), self.n_rows, 1],
        }
    }
}

/// Heads divided by their length: `x = x·scale / √(Σ x² + eps)`.
#[derive(Clone, Copy, Debug)]
pub struct NormHeads {
    /// Rows.
    pub n_rows: u32,
    /// Width of a row.
    pub d_row: u32,
    /// Heads of a row, and their width.
    pub n_heads: u32,
    /// Width of a head.
    pub d: u32,
    /// First word of the heads of row 0 among the values.
    pub x: u32,
    /// Added to the sum of squares.
    pub eps: f32,
    /// Multiplies the results.
    pub scale: f32,
}

impl NormHeads {
    /// The run of the kernel [`Shader::norm_heads`](crate::Shader::norm_heads).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        let numbers = [self.eps, self.scale].map(f32::to_bits);
        params[1..4].copy_from_slice(&[self.d, self.d_row, self.x]);
        params[4..6].copy_from_slice(&numbers);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, 1],
        }
    }
}

/// Which heads share queries and keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanKeys {
    /// So many neighbours.
    Neighbours(u32),
    /// Every so manyth.
    InTurn(u32),
}

/// How a position changes the state of a head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanRule {
    /// A number of each head remains; values are added (Mamba 2).
    Heads,
    /// The same; values are replaced (gated delta nets).
    DeltaOfHeads,
    /// A number of each element of a key remains; values are replaced (Kimi).
    DeltaOfChannels,
    /// A number of each element of the state remains, `exp(rate·gain)`; values are added, and have
    /// gains of their own (Mamba).
    Elements,
}

impl ScanRule {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Heads,
        Self::DeltaOfHeads,
        Self::DeltaOfChannels,
        Self::Elements,
    ];
}

/// Linear attention: states of heads, `[n_heads, d_value, d_key]`, that runs of positions take from
/// one block to another.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// First words of the queries, keys and values of row 0 among the values.
    pub qkv: [u32; 3],
    /// From a row of queries, or of keys, to the next, and from a row of values to the next.
    pub d_rows: [u32; 2],
    /// First word of decays among the values: of heads `[n_rows, n_heads]`, of channels
    /// `[n_rows, n_heads, d_key]`; of elements their rates among the weights, as the state.
    pub decays: u32,
    /// First word of gains among the values, `[n_rows, n_heads]`; where decays are of elements
    /// `[n_rows, n_heads, d_value]`.
    pub gains: u32,
    /// Width of a query or key, at most [`SCAN_KEY_MAX`].
    pub d_key: u32,
    /// Width of a value.
    pub d_value: u32,
    /// Heads.
    pub n_heads: u32,
    /// Which of them share queries and keys.
    pub keys: ScanKeys,
    /// First word among the weights of the factors of values that are added to results, f32: as
    /// many as gains of a row.
    pub skip: Option<u32>,
    /// First float of the states in a block.
    pub state: u32,
    /// First word among the tables of the runs, each four words: first words of the blocks before
    /// (`u32::MAX`: zeros) and behind it, first word and number of its rows.
    pub runs: u32,
    /// Runs; none continues another one.
    pub n_runs: u32,
    /// First word of the results among the values, `[n_rows, n_heads, d_value]`.
    pub out: u32,
}

impl Scan {
    /// The run of the kernel [`Shader::scan`](crate::Shader::scan) of a rule.
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let [q, k, v] = self.qkv;
        let keys = match self.keys {
            ScanKeys::Neighbours(n) => n,
            ScanKeys::InTurn(n) => n | 1 << 31,
        };
        let mut params = [0; PARAM_WORDS];
        params[1..].copy_from_slice(&[
            q,
            k,
            v,
            self.d_rows[0],
            self.d_rows[1],
            self.decays,
            self.gains,
            self.d_key,
            self.d_value,
            self.n_heads,
            keys,
            self.skip.unwrap_or(NONE),
            self.state,
            self.runs,
            self.out,
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_heads * self.d_value.div_ceil(4), self.n_runs, 1],
        }
    }
}
