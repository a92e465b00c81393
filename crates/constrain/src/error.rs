//! What can go wrong with a constraint.

/// Why a constraint cannot be enforced.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The schema is not valid JSON, or cannot be enforced.
    #[error("schema: {0}")]
    Schema(String),
    /// The regular expression is invalid, or too complex.
    #[error("regular expression: {0}")]
    Regex(String),
    /// The grammar is invalid, or too complex.
    #[error("grammar: {0}")]
    Grammar(String),
    /// llguidance does not accept the vocabulary.
    #[error("this vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
    /// No token can follow, or the parser state became too complex.
    #[error("no token fits the constraint: {0}")]
    Stuck(String),
    /// The program was built without the feature `grammars` of this crate.
    #[error("this program was built without constraints")]
    NotBuilt,
    /// No short ending was found for an incomplete text.
    #[error(
        "found no short end for the text after {n_tokens} tokens: raise -n, or take --on-length cut"
    )]
    Endless {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
    /// The text reached its length limit before its end, with
    /// [`OnLength::Fail`](crate::OnLength::Fail).
    #[error(
        "the text is not complete after {n_tokens} tokens: raise -n, or take --on-length close"
    )]
    Unfinished {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
}

/// Why a [`Guide`](crate::Guide) cannot be made or used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The constraint cannot be enforced.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The memory budget is exceeded.
    #[error(transparent)]
    Memory(#[from] atta_store::Error),
}
