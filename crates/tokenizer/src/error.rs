//! Errors in the metadata of a vocabulary.

/// Why a tokenizer cannot be built from metadata.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A required key is absent.
    #[error("{key} is missing")]
    Missing {
        /// The metadata key.
        key: &'static str,
    },
    /// A value has the wrong type.
    #[error(transparent)]
    Metadata(#[from] atta_formats::Error),
    /// The value of `tokenizer.ggml.model` is not supported.
    #[error("tokenizer.ggml.model: expected llama, gpt2, gemma4, bert or t5, got {got}")]
    Model {
        /// The value of the key.
        got: String,
    },
    /// An array whose parts do not fit together.
    #[error("{key} is damaged")]
    Damaged {
        /// The metadata key.
        key: &'static str,
    },
    /// An array has fewer elements than there are tokens.
    #[error("{key}: expected {expected} elements, one per token, got {got}")]
    Length {
        /// The metadata key.
        key: &'static str,
        /// The number of tokens.
        expected: usize,
        /// The number of elements.
        got: usize,
    },
    /// An array is empty, or larger than any known vocabulary.
    #[error("{key}: expected 1 to {max} elements, got {got}")]
    Count {
        /// The metadata key.
        key: &'static str,
        /// The cap.
        max: usize,
        /// The number of elements.
        got: usize,
    },
    /// Too many token texts have colliding hashes, as in a file made to slow the index down.
    #[error("tokenizer.ggml.tokens: token {id} collides with {probes} others in the index")]
    Collisions {
        /// The token that could not be inserted.
        id: u32,
        /// How many slots were tried.
        probes: usize,
    },
}
