//! Selective state spaces as plain data.

use super::{Attention, Presence};

/// Mamba (Gu & Dao 2023): a state per channel, whose elements each forget by a factor. For channel
/// i of a position:
///
/// ```text
/// x, z = W_in h;  x = silu(conv(x) + bias)
/// dt, b, c = norm(W_x x);  step = softplus(W_dt dt + dt_bias)
/// S_i = exp(a_i step_i) ⊙ S_i + step_i x_i b
/// y = W_out ((S c + d ⊙ x) ⊙ silu(z))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba {
    /// Positions that an output of the convolution depends on, its own included; at least 2.
    pub n_taps: usize,
    /// Channels; each has a state.
    pub d_inner: usize,
    /// Width of `b` or `c`.
    pub d_state: usize,
    /// Width of `dt`, from which the steps are projected.
    pub d_rank: usize,
    /// Whether the convolution has a bias, `[d_inner]`.
    pub conv_bias: Presence,
    /// Of `dt`, `b` and `c`, each by itself.
    pub norms: StateNorms,
}

/// RMS norms of what a state space computes from its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateNorms {
    /// There are none.
    None,
    /// Norms without weights (Falcon Mamba).
    Unit {
        /// As in [`Norm::Rms`](super::Norm::Rms).
        eps: f32,
    },
    /// Norms with weights (Jamba).
    Weighted {
        /// As in [`Norm::Rms`](super::Norm::Rms).
        eps: f32,
    },
}

impl Mamba {
    /// Width of `dt`, `b` and `c` of a position.
    pub fn d_selection(&self) -> usize {
        self.d_rank + 2 * self.d_state
    }

    /// `dt`, `b` and `c` of a position.
    pub(crate) fn selection<'a>(&self, row: &'a mut [f32]) -> [&'a mut [f32]; 3] {
        let (dt, rest) = row.split_at_mut(self.d_rank);
        let (b, c) = rest.split_at_mut(self.d_state);
        [dt, b, c]
    }

    /// Floats of the inputs of the convolution that are a part of the state.
    pub fn conv_floats(&self) -> usize {
        (self.n_taps - 1) * self.d_inner
    }

    /// The state: the last inputs of the convolution, `[n_taps - 1, d_inner]`, and
    /// `[d_inner, d_state]`.
    pub fn state_floats(&self) -> usize {
        self.conv_floats() + self.d_inner * self.d_state
    }

    /// Width of the buffers of a position: `x` and `z`, the convolved `x`, steps, and `dt`, `b` and
    /// `c`.
    pub(crate) fn d_scratch(&self) -> usize {
        4 * self.d_inner + self.d_selection()
    }
}

/// Mamba 2 (Dao & Gu 2024): linear attention whose state, a matrix per head, forgets by a factor.
/// For head h of a position:
///
/// ```text
/// z, x, b, c, dt = W_in h;  x, b, c = silu(conv(x, b, c) + bias)
/// step = max(softplus(dt + dt_bias), min_step);  decay = exp(a step)
/// S = decay S + step x bᵀ
/// y = W_out norm((S c + d x) ⊙ silu(z))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba2 {
    /// Positions that an output of the convolution depends on, its own included; at least 2.
    pub n_taps: usize,
    /// Heads; each has a state.
    pub n_heads: usize,
    /// Width of `x` of a head.
    pub d_head: usize,
    /// Groups of neighbouring heads, a divisor of `n_heads`: each has its `b` and `c`, and is
    /// normalized by itself.
    pub n_groups: usize,
    /// Width of `b` or `c`.
    pub d_state: usize,
    /// Whether the convolution has a bias, `[d_conv]`.
    pub conv_bias: Presence,
    /// No step is smaller.
    pub min_step: f32,
    /// Whether results are normalized, by an RMS norm with a weight of `[d_inner]`.
    pub norm: Presence,
    /// Of that norm, as in [`Norm::Rms`](super::Norm::Rms).
    pub eps: f32,
}

/// Attention and Mamba 2 side by side: both read the same input, and their results are added
/// (Falcon-H1; Zuo et al. 2025).
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionAndMamba2 {
    /// The attention.
    pub attention: Attention,
    /// The state space.
    pub mamba: Mamba2,
}

impl Mamba2 {
    /// Width of `x` of all heads of a position.
    pub fn d_inner(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Width of `b` (or `c`) of all groups of a position.
    pub fn d_states(&self) -> usize {
        self.n_groups * self.d_state
    }

    /// Width of `x`, `b` and `c` of a position: the channels of the convolution.
    pub fn d_conv(&self) -> usize {
        self.d_inner() + 2 * self.d_states()
    }

    /// Rows of the input projection: `z`, `x`, `b`, `c` and `dt`.
    pub fn d_in(&self) -> usize {
        self.d_inner() + self.d_conv() + self.n_heads
    }

    /// Floats of the inputs of the convolution that are a part of the state.
    pub fn conv_floats(&self) -> usize {
        (self.n_taps - 1) * self.d_conv()
    }

    /// The state: the last inputs of the convolution, `[n_taps - 1, d_conv]`, and
    /// `[n_heads, d_head, d_state]`.
    pub fn state_floats(&self) -> usize {
        self.conv_floats() + self.d_inner() * self.d_state
    }

    /// Width of what a scan reads: `x`, `b`, `c`, decays and steps.
    pub(crate) fn d_scanned(&self) -> usize {
        self.d_conv() + 2 * self.n_heads
    }

    /// Width of the buffers of a position: the projections, and what a scan reads.
    pub(crate) fn d_scratch(&self) -> usize {
        self.d_in() + self.d_scanned()
    }
}
