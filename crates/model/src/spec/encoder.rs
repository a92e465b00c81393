//! What encoders have beside layers: types of tokens, and results that are no logits.

use super::{Norm, Presence};

/// The embedding of the type of a token, which is added to that of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenTypes {
    /// Nothing.
    None,
    /// A row of a learned table, `[n, d_model]`: of the first text row 0, of a second text that
    /// the first is compared with row 1, or the last row where there is only one (Devlin et al.
    /// 2019, section 3).
    Learned(usize),
}

impl TokenTypes {
    /// Rows of the table.
    pub fn n_rows(self) -> usize {
        match self {
            Self::None => 0,
            Self::Learned(n) => n,
        }
    }
}

/// What a model computes from the normed residual after its last layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outputs {
    /// Logits of the next token.
    Logits,
    /// Nothing: the residuals themselves are the result.
    Hidden,
    /// The vector of a text from the mean of its residuals (sentence-transformers' dense modules).
    Dense(DenseHead),
    /// Scores of a text, `[n]`.
    Scores(ScoreHead),
}

/// Two linear layers, `W_3 W_2 x`, without biases (Schechter Vera et al. 2025, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseHead {
    /// Width between them.
    pub d_inner: usize,
    /// Width of the result.
    pub d_out: usize,
}

/// A classifier: `W_out norm(act(W x + b)) + b_out` (Devlin et al. 2019, section 4.1; Warner et al.
/// 2024).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreHead {
    /// Scores of a text.
    pub n: usize,
    /// What it reads.
    pub reads: ScoreInput,
    /// The nonlinearity.
    pub activation: ScoreActivation,
    /// Whether `W` has a bias.
    pub bias: Presence,
    /// The norm of the hidden layer.
    pub norm: Option<Norm>,
}

/// What a classifier reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreInput {
    /// The residual of the first token of a text.
    First,
    /// The mean of the residuals of all tokens.
    Mean,
}

/// The nonlinearity of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreActivation {
    /// The hyperbolic tangent.
    Tanh,
    /// As [`Activation::Gelu`](super::Activation::Gelu).
    Gelu,
}

impl ScoreHead {
    /// That of BERT, with `n` scores.
    pub(crate) fn of_bert(n: usize) -> Self {
        Self {
            n,
            reads: ScoreInput::First,
            activation: ScoreActivation::Tanh,
            bias: Presence::Required,
            norm: None,
        }
    }
}
