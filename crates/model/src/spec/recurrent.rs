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
