//! What can go wrong with an evaluation.

/// Why a text cannot be scored.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session failed.
    #[error(transparent)]
    Engine(#[from] atta_engine::Error),
    /// Chunks too short to score a token.
    #[error("chunks of {n_ctx} tokens, expected at least {min}: raise -c")]
    ChunkTooShort {
        /// Tokens of a chunk.
        n_ctx: usize,
        /// The minimum.
        min: usize,
    },
    /// A text that does not fill a chunk.
    #[error(
        "the text has {n_ids} tokens, but a chunk takes {n_ctx}: lower -c or take a longer text"
    )]
    TextTooShort {
        /// Tokens of the text.
        n_ids: usize,
        /// Tokens of a chunk.
        n_ctx: usize,
    },
    /// Saved log-probabilities that cannot be used.
    #[error("no usable file of saved logits: {0}")]
    Baseline(String),
}

impl From<atta_store::Error> for Error {
    fn from(error: atta_store::Error) -> Self {
        Self::Engine(error.into())
    }
}
