//! What can go wrong with a constraint.

use atta_formats::{Explain, Names, Setting};

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
    #[error("{}", endless(*n_tokens, Setting::words))]
    Endless {
        /// Tokens of the text so far.
        n_tokens: usize,
    },
    /// The text reached its length limit before its end, with
    /// [`OnLength::Fail`](crate::OnLength::Fail).
    #[error("{}", unfinished(*n_tokens, Setting::words))]
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

impl Explain for ConstraintError {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::Endless { n_tokens } => endless(*n_tokens, names),
            Self::Unfinished { n_tokens } => unfinished(*n_tokens, names),
            _ => self.to_string(),
        }
    }
}

impl Explain for Error {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::Constraint(error) => error.explain(names),
            Self::Memory(error) => error.explain(names),
        }
    }
}

fn endless(n_tokens: usize, names: Names) -> String {
    format!(
        "found no short end for the text after {n_tokens} tokens: raise {}, or take {} cut",
        names(Setting::NPredict),
        names(Setting::OnLength)
    )
}

fn unfinished(n_tokens: usize, names: Names) -> String {
    format!(
        "the text is not complete after {n_tokens} tokens: raise {}, or take {} close",
        names(Setting::NPredict),
        names(Setting::OnLength)
    )
}
