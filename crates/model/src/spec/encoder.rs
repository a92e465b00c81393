//! What encoders have beside layers: types of tokens, and results that are no logits.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Logits of the next token.
    Logits,
    /// Nothing: the residuals themselves are the result.
    Hidden,
    /// Scores of a text from the residual of its first token, `[n]`: `W_out tanh(W x + b) + b_out`
    /// (Devlin et al. 2019, section 4.1).
    Scores(usize),
}
