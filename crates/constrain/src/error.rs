//! What can go wrong with a constraint.

/// Why a constraint cannot be kept to.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// A schema that is no JSON, or asks for what cannot be done.
    #[error("schema: {0}")]
    Schema(String),
    /// A regular expression that is none, or too complex.
    #[error("regular expression: {0}")]
    Regex(String),
    /// A grammar that is none, or too complex.
    #[error("grammar: {0}")]
    Grammar(String),
    /// A vocabulary that cannot be constrained.
    #[error("this vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
    /// The text cannot go on: it became too complex, or no token fits.
    #[error("no token fits the constraint: {0}")]
    Stuck(String),
    /// The program was built without the feature `grammars` of this crate.
    #[error("this program was built without constraints")]
    NotBuilt,
    /// No way to the end of the text was found.
    #[error(
        "found no short end for the text after {n_tokens} tokens: raise -n, or take --on-length cut"
    )]
    Endless {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
    /// The text was to be an error if it reached its length before its end.
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
    /// The constraint cannot be kept to.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The memory budget is exceeded.
    #[error(transparent)]
    Memory(#[from] atta_store::Error),
}
