//! Why a grammar is refused.

/// An error of a GBNF grammar; lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GbnfError {
    /// The text is not GBNF.
    #[error("{line}:{column}: expected {expected}, got {got}")]
    Syntax {
        /// Line of the text.
        line: usize,
        /// Column of the text.
        column: usize,
        /// What may stand there.
        expected: &'static str,
        /// The text found there.
        got: String,
    },
    /// A rule is named that is not defined.
    #[error("{line}:{column}: rule {name:?} is not defined")]
    UndefinedRule {
        /// Line of the first use.
        line: usize,
        /// Column of the first use.
        column: usize,
        /// The name.
        name: String,
    },
    /// There is no rule to begin with.
    #[error("no rule \"root\"")]
    NoRoot,
    /// No text is ever complete, since the rules never end.
    #[error("rule \"root\" matches no finite text")]
    Endless,
    /// More than is allowed.
    #[error("{what}: more than {limit}")]
    TooLarge {
        /// The name of the limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}
