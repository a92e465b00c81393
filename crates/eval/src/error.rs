//! What can go wrong with an evaluation.

use atta_engine::{Explain, Names, Setting};

/// Why a text cannot be scored.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session failed.
    #[error(transparent)]
    Engine(#[from] atta_engine::Error),
    /// Chunks too short to score a token.
    #[error("{}", chunk_too_short(*n_ctx, *min, Setting::words))]
    ChunkTooShort {
        /// Tokens of a chunk.
        n_ctx: usize,
        /// The minimum.
        min: usize,
    },
    /// A text that does not fill a chunk.
    #[error("{}", text_too_short(*n_ids, *n_ctx, Setting::words))]
    TextTooShort {
        /// Tokens of the text.
        n_ids: usize,
        /// Tokens of a chunk.
        n_ctx: usize,
    },
    /// A measurement that its caller ended.
    #[error("the measurement was cancelled")]
    Cancelled,
    /// Saved log-probabilities that cannot be used.
    #[error("no usable file of saved logits: {0}")]
    Baseline(String),
}

impl From<atta_store::Error> for Error {
    fn from(error: atta_store::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<atta_model::Error> for Error {
    fn from(error: atta_model::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl Explain for Error {
    fn explain(&self, names: Names) -> String {
        match self {
            Self::Engine(error) => error.explain(names),
            Self::ChunkTooShort { n_ctx, min } => chunk_too_short(*n_ctx, *min, names),
            Self::TextTooShort { n_ids, n_ctx } => text_too_short(*n_ids, *n_ctx, names),
            Self::Cancelled | Self::Baseline(_) => self.to_string(),
        }
    }
}

fn chunk_too_short(n_ctx: usize, min: usize, names: Names) -> String {
    let setting = names(Setting::NCtx);
    format!("chunks of {n_ctx} tokens, expected at least {min}: raise {setting}")
}

fn text_too_short(n_ids: usize, n_ctx: usize, names: Names) -> String {
    let setting = names(Setting::NCtx);
    format!(
        "the text has {n_ids} tokens, but a chunk takes {n_ctx}: \
         lower {setting} or take a longer text"
    )
}
