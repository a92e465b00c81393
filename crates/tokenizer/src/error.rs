//! What can be wrong with a vocabulary.

/// Why metadata make no tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key that every tokenizer needs is absent.
    #[error("{key} is missing")]
    Missing {
        /// The metadata key.
        key: &'static str,
    },
    /// A value has the wrong type.
    #[error(transparent)]
    Metadata(#[from] atta_formats::Error),
    /// The kind of vocabulary is not one of ours.
    #[error("tokenizer.ggml.model: expected llama, gpt2, gemma4 or bert, got {got}")]
    Model {
        /// The value of the key.
        got: String,
    },
    /// An array has not one element per token.
    #[error("{key}: expected {expected} elements, one per token, got {got}")]
    Length {
        /// The metadata key.
        key: &'static str,
        /// The number of tokens.
        expected: usize,
        /// The number of elements.
        got: usize,
    },
    /// An array is larger than any vocabulary known.
    #[error("{key}: expected 1 to {max} elements, got {got}")]
    Count {
        /// The metadata key.
        key: &'static str,
        /// The cap.
        max: usize,
        /// The number of elements.
        got: usize,
    },
    /// Token texts were chosen so that their hashes collide.
    #[error("tokenizer.ggml.tokens: token {id} collides with {probes} others in the index")]
    Collisions {
        /// The token that found no place.
        id: u32,
        /// How many places were tried.
        probes: usize,
    },
}
