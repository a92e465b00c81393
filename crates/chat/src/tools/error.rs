//! Errors of tool definitions and tool choices.

/// Why tools are refused.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// Bytes that are not JSON.
    #[error("the tools are not JSON: {0}")]
    Json(String),
    /// JSON that is not a list.
    #[error("the tools are {0}, expected an array of definitions")]
    NotAnArray(&'static str),
    /// More bytes than are read.
    #[error("the tools have {n_bytes} bytes, expected at most {max}")]
    TooLarge {
        /// Bytes of all definitions.
        n_bytes: usize,
        /// The most that are read.
        max: usize,
    },
    /// More tools than a grammar takes.
    #[error("there are {n} tools, expected at most {max}")]
    TooMany {
        /// Tools that are defined.
        n: usize,
        /// The most that may be.
        max: usize,
    },
    /// An invalid definition.
    #[error("{tool}: {what}")]
    Definition {
        /// Its name, or its place if it has none.
        tool: String,
        /// The fault: expected and got.
        what: String,
    },
    /// Two tools of one name.
    #[error("two tools are called {0}")]
    Duplicate(String),
    /// A keyword that no grammar can say.
    #[error("tool {tool}: parameters{at}: the keyword {keyword:?} is not supported")]
    Keyword {
        /// The tool.
        tool: String,
        /// JSON pointer from the parameters to the schema with the keyword.
        at: String,
        /// The keyword.
        keyword: String,
    },
    /// A call that is wanted of a tool that is not there.
    #[error("there is no tool {name:?}, only {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A call that is wanted without tools.
    #[error("a tool call is required, but no tool is defined")]
    NoTools,
    /// A format of the answer that cannot be a constraint.
    #[error(transparent)]
    Reply(#[from] atta_constrain::ConstraintError),
}
