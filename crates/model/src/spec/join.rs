//! How a draft head reads the hidden states of another model, as plain data.
//!
//! A draft head guesses the tokens of a *target* model. Its row at position `t` has the token at
//! `t + 1` and a hidden state of position `t`: of the target where that has computed the position,
//! else its own.

/// What a draft head reads beside tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// How embedding and hidden state are joined.
    pub kind: JoinKind,
    /// Epsilon of the RMS norms of both.
    pub eps: f32,
    /// The hidden states of the target that it reads, one behind the other.
    pub taps: Vec<Tap>,
    /// Width of each.
    pub d_target: usize,
    /// Tokens that it can guess: rows of its own output matrix.
    pub n_guessed: usize,
    /// The block of the file that is its first layer.
    pub first_block: usize,
}

/// How a draft head joins the embedding `e` of a token and a hidden state `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// `x = W [norm(e); norm(h)]` (DeepSeek-V3 report, 2024, section 2.2: multi-token prediction).
    Projected,
    /// `h = W taps` of the target's states; `x = h`, and the first attention reads
    /// `[norm(e); norm(h)]` (Li et al. 2025: EAGLE-3).
    Beside {
        /// Whether `x = norm(h)` instead.
        keeps_norm: bool,
    },
}

/// A hidden state of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// The residual in front of a layer; behind the last one, if that is the number of layers.
    Before(usize),
    /// The normed residual, which the output head reads.
    Normed,
}
