//! The error of the crate.

use std::path::{Path, PathBuf};

use atta_formats::{Explain, Names, Setting, Suggestion};

/// An error of the library.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be opened or read as a model; an exceeded memory budget.
    #[error(transparent)]
    Store(#[from] atta_store::Error),
    /// An unsupported or invalid model.
    #[error("{path}: {source}", path = .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: atta_model::Error,
    },
    /// A session and its weights do not fit the memory budget.
    #[error("{}", too_little_memory(*budget, *smallest, suggestions, Setting::words))]
    TooLittleMemory {
        /// The budget, bytes.
        budget: u64,
        /// The smallest sufficient budget, bytes.
        smallest: u64,
        /// Settings that would lower it.
        suggestions: Vec<Suggestion>,
    },
    /// An unsupported or invalid tokenizer.
    #[error("{path}: {source}", path = .path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: atta_tokenizer::Error,
    },
    /// An instruction set or CPUs that this machine lacks.
    #[error(transparent)]
    Kernels(#[from] atta_kernels::Error),
    /// A step that failed.
    #[error(transparent)]
    Step(#[from] atta_model::Error),
    /// A GGUF file that is not a language model.
    #[cfg(feature = "foreign")]
    #[error("{path}: not a model, but {what}", path = .path.display())]
    NotModel {
        /// The file.
        path: PathBuf,
        /// The kind of the file.
        what: &'static str,
    },
    /// A quality that is no part of 1.
    #[error("{}", quality(*.0, Setting::words))]
    Quality(f32),
    /// A choice by quality in a file without measurements of what that costs.
    #[error("{}", unmeasured(path, Setting::words))]
    Unmeasured {
        /// The file.
        path: PathBuf,
    },
    /// A model to run in part, and on other machines.
    #[error("{}", reduced_elsewhere(Setting::words))]
    ReducedElsewhere,
    /// A model with adapters, and on other machines.
    #[error("adapters are for one machine: other machines run their layers without")]
    AdaptersElsewhere,
    /// NaN or infinity in a result: damaged weights, or a model that overflows.
    #[error(
        "{path}: the model computes values that are not numbers (NaN or infinity, at token {n} of the text): the file is \
         damaged, or was made from a damaged one",
        path = .path.display()
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Number of the token in the text, from 1.
        n: usize,
    },
    /// A sampling parameter out of range.
    #[error(transparent)]
    Sampling(#[from] crate::SamplingError),
    /// An empty stop string.
    #[error(transparent)]
    Stop(#[from] crate::StopError),
    /// An unsupported or unmet constraint.
    #[error(transparent)]
    Constraint(#[from] crate::ConstraintError),
    /// Tools that cannot be called.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Tools(#[from] crate::tools::ToolError),
    /// More tokens than the context holds.
    #[error("{}", prompt_too_long(*n_prompt, *n_ctx, Setting::words))]
    PromptTooLong {
        /// Tokens of the session and the prompt.
        n_prompt: usize,
        /// Context length.
        n_ctx: usize,
    },
    /// A chat template that cannot be read, or that refuses the conversation.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Template(#[from] crate::chat::TemplateError),
    /// An empty prompt in an empty session, without a begin-of-sequence token to start from.
    #[error("the prompt is empty, and this model has no begin-of-sequence token to start from")]
    EmptyPrompt,
    /// A model file whose pooling type gives no embeddings.
    #[cfg(feature = "batch")]
    #[error(
        "the model's pooling is of type {0}: it gives no vectors of texts, unless a pooling is asked for"
    )]
    Pooling(u32),
    /// A text whose vector could not be computed.
    #[cfg(feature = "batch")]
    #[error("{0}")]
    Embedding(String),
    /// A draft model whose vocabulary is not that of the model.
    #[error(
        "the draft model has another vocabulary: its token {id} is {draft:?}, expected {target:?}"
    )]
    DraftVocabulary {
        /// The first token that differs.
        id: u32,
        /// Its bytes in the draft model, as text.
        draft: String,
        /// Its bytes in the model, as text.
        target: String,
    },
    /// A context length of 0.
    #[error("a context of {0} positions, expected at least 1")]
    Context(usize),
    /// A session that has shifted its context; its KV cache is no longer that of a token prefix, so
    /// it cannot be exported.
    #[cfg(feature = "cache")]
    #[error(
        "the session has evicted {0} tokens to shift its context, so that its state cannot be exported"
    )]
    Shifted(usize),
    /// A suspension of a session that shares its KV cache with forks.
    #[cfg(feature = "cache")]
    #[error("a session with forks cannot be suspended: they share its memory")]
    Forked,
    /// A suspension without a file of a session whose state is that of no text.
    #[cfg(feature = "cache")]
    #[error(
        "the state of this session cannot be computed again, since its context was shifted or \
         filled in: it can only be suspended to a file"
    )]
    Irreproducible,
    /// An export of a session with positions that were filled in for a measurement.
    #[cfg(feature = "cache")]
    #[error("a part of this session was filled in and is the state of no text")]
    Filled,
    /// A context too short for context shifts.
    #[error("a window of {n_ctx} tokens that keeps the first {n_keep}, expected at least {min}")]
    ShortWindow {
        /// Context length.
        n_ctx: usize,
        /// Tokens at the start that stay.
        n_keep: usize,
        /// Minimum context length for `n_keep`.
        min: usize,
    },
    /// A prompt cache that cannot be opened, read or written.
    #[cfg(feature = "cache")]
    #[error("{path}: {source}", path = .path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An invalid saved session.
    #[cfg(feature = "cache")]
    #[error("{0}")]
    Saved(#[from] crate::CacheFileError),
}

impl Error {
    /// Whether a retry may succeed after other memory is freed.
    pub fn is_about_memory(&self) -> bool {
        self.missing_bytes().is_some()
    }

    /// Whether the model computes nothing of the kind that was asked for.
    pub fn is_about_outputs(&self) -> bool {
        use atta_model::Error::{NoLogits, NoScores};
        matches!(self, Self::Step(NoLogits | NoScores))
    }

    /// Whether a session was used that is suspended.
    pub fn is_about_suspension(&self) -> bool {
        matches!(self, Self::Step(atta_model::Error::Suspended))
    }

    /// Whether adapters are not there, or do not work together.
    pub fn is_about_adapters(&self) -> bool {
        matches!(self, Self::Step(atta_model::Error::Adapter(_)))
    }

    /// Bytes of memory to free before a retry, which may then need more; `None` for other errors.
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

impl Explain for Error {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::TooLittleMemory {
                budget,
                smallest,
                suggestions,
            } => too_little_memory(*budget, *smallest, suggestions, names),
            Self::Quality(q) => quality(*q, names),
            Self::Unmeasured { path } => unmeasured(path, names),
            Self::ReducedElsewhere => reduced_elsewhere(names),
            Self::PromptTooLong { n_prompt, n_ctx } => prompt_too_long(*n_prompt, *n_ctx, names),
            Self::Model { path, source } => {
                format!("{}: {}", path.display(), source.explain(names))
            }
            Self::Store(error) => error.explain(names),
            Self::Step(error) => error.explain(names),
            Self::Sampling(error) => error.explain(names),
            Self::Stop(error) => error.explain(names),
            Self::Constraint(error) => error.explain(names),
            _ => self.to_string(),
        }
    }
}

fn too_little_memory(
    budget: u64,
    smallest: u64,
    suggestions: &[Suggestion],
    names: Names,
) -> String {
    let smallest = smallest.div_ceil(1 << 20);
    let budget = budget >> 20;
    let advice = if suggestions.is_empty() {
        "nothing makes it need less".to_owned()
    } else {
        let ways: Vec<String> = suggestions.iter().map(|s| s.explain(names)).collect();
        format!("{} would lower it", ways.join(" or "))
    };
    format!(
        "not enough memory: this needs at least {smallest} MiB and may have {budget} MiB; {advice}"
    )
}

fn quality(quality: f32, names: Names) -> String {
    let setting = names(Setting::Quality);
    format!("{setting} is {quality}, expected above 0 and at most 1")
}

fn unmeasured(path: &Path, names: Names) -> String {
    format!(
        "{}: {} below 1 leaves layers out by what that costs, and the file has no measurements of \
         it",
        path.display(),
        names(Setting::Quality)
    )
}

fn reduced_elsewhere(names: Names) -> String {
    format!(
        "{} and {} are for one machine: other machines run their layers whole",
        names(Setting::Quality),
        names(Setting::Experts)
    )
}

fn prompt_too_long(n_prompt: usize, n_ctx: usize, names: Names) -> String {
    format!(
        "the prompt has {n_prompt} tokens, but the context holds {n_ctx}: \
         raise {} or shorten the prompt",
        names(Setting::NCtx)
    )
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
