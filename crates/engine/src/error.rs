//! What can go wrong between a path and text.

use std::path::PathBuf;

/// An error of the library.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be opened or read as a model, or memory that the budget does not grant.
    #[error(transparent)]
    Store(#[from] atta_store::Error),
    /// A model that we cannot run; the path is that of its file.
    #[error("{path}: {source}", path = .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: atta_model::Error,
    },
    /// A session and its weights that do not fit into the memory that they were given.
    #[error(
        "not enough memory: this needs at least {} MiB and may have {} MiB; {way_out}",
        .smallest.div_ceil(1 << 20), .budget >> 20
    )]
    TooLittleMemory {
        /// What there is, bytes.
        budget: u64,
        /// The smallest budget that would do, bytes.
        smallest: u64,
        /// Which options would lower it.
        way_out: String,
    },
    /// A tokenizer that we cannot read; the path is that of its file.
    #[error("{path}: {source}", path = .path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: atta_tokenizer::Error,
    },
    /// An instruction set or a set of CPUs that is not to be had.
    #[error(transparent)]
    Kernels(#[from] atta_kernels::Error),
    /// A step that failed.
    #[error(transparent)]
    Step(#[from] atta_model::Error),
    /// A GGUF file that holds something else.
    #[cfg(feature = "foreign")]
    #[error("{path}: not a model, but {what}", path = .path.display())]
    NotModel {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Weights that are damaged, or a model that overflows.
    #[error(
        "{path}: the model computes values that are not numbers (NaN or infinity, at token {n} of the text): the file is \
         damaged, or was made from a damaged one",
        path = .path.display()
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Which token of the text, from 1.
        n: usize,
    },
    /// A setting of the sampler that makes no sense.
    #[error(transparent)]
    Sampling(#[from] crate::SamplingError),
    /// A stop string that makes no sense.
    #[error(transparent)]
    Stop(#[from] crate::StopError),
    /// A constraint that cannot be kept to.
    #[error(transparent)]
    Constraint(#[from] crate::ConstraintError),
    /// Tools that cannot be called.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Tools(#[from] crate::tools::ToolError),
    /// More tokens than the context holds.
    #[error(
        "the prompt has {n_prompt} tokens, but the context holds {n_ctx}: raise -c or shorten the prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt, those already in the session included.
        n_prompt: usize,
        /// Positions of the context.
        n_ctx: usize,
    },
    /// A chat template that cannot be read, or that refuses the conversation.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Template(#[from] crate::chat::TemplateError),
    /// Nothing to continue: no text, and the vocabulary has no begin token to start from.
    #[error("the prompt is empty, and this model has no begin-of-sequence token to start from")]
    EmptyPrompt,
    /// A model that gives no vector of a text, by what its file says.
    #[cfg(feature = "batch")]
    #[error(
        "the model's pooling is of type {0}: it gives no vectors of texts, unless a pooling is asked for"
    )]
    Pooling(u32),
    /// A context length that the session cannot have.
    #[error("a context of {0} positions, expected at least 1")]
    Context(usize),
    /// A session whose state is that of no text.
    #[cfg(feature = "cache")]
    #[error(
        "the session has forgotten {0} tokens to make room, so that its state cannot be exported"
    )]
    Forgotten(usize),
    /// A context of which nothing can be forgotten.
    #[error("a window of {n_ctx} tokens that keeps the first {n_keep}, expected at least {min}")]
    ShortWindow {
        /// Positions of the context.
        n_ctx: usize,
        /// Tokens at the beginning that are kept.
        n_keep: usize,
        /// The shortest window that keeps so many.
        min: usize,
    },
    /// A cache of prompts that cannot be used or written to.
    #[cfg(feature = "cache")]
    #[error("{path}: {source}", path = .path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A saved session that cannot be used.
    #[cfg(feature = "cache")]
    #[error("{0}")]
    Saved(#[from] crate::Flaw),
}

impl Error {
    /// Whether the same may succeed once something else has given its memory back.
    pub fn is_about_memory(&self) -> bool {
        self.missing_bytes().is_some()
    }

    /// Bytes of memory that something else has to give back before the same can succeed; it may
    /// then lack more. `None` if memory is not what was missing.
    pub fn missing_bytes(&self) -> Option<u64> {
        match *self {
            Self::TooLittleMemory {
                budget, smallest, ..
            } => Some(smallest.saturating_sub(budget)),
            Self::Store(atta_store::Error::OverBudget {
                asked, used, limit, ..
            }) => Some(used.saturating_add(asked).saturating_sub(limit)),
            _ => None,
        }
    }
}

impl From<atta_constrain::Error> for Error {
    fn from(error: atta_constrain::Error) -> Self {
        match error {
            atta_constrain::Error::Constraint(error) => Self::Constraint(error),
            atta_constrain::Error::Memory(error) => Self::Store(error),
            other => Self::Constraint(crate::ConstraintError::Stuck(other.to_string())),
        }
    }
}

#[cfg(feature = "chat")]
impl From<atta_chat::Error> for Error {
    fn from(error: atta_chat::Error) -> Self {
        match error {
            atta_chat::Error::Template(error) => Self::Template(error),
            atta_chat::Error::Tools(error) => Self::Tools(error),
            atta_chat::Error::Constraint(error) => Self::Constraint(error),
            other => Self::Template(crate::chat::TemplateError::Failed(other.to_string())),
        }
    }
}
