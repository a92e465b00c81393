//! Evaluation: how well a model predicts a text (perplexity, KL divergence), and how fast it runs.
//!
//! Uses nothing of the engine but sessions; reads no files and prints nothing.
//!
//! # Features
//! - `perplexity` (default): the module `perplexity`.

#![forbid(unsafe_code)]

pub mod bench;
#[cfg(feature = "perplexity")]
mod error;
#[cfg(feature = "perplexity")]
pub mod perplexity;

#[cfg(feature = "perplexity")]
pub use error::Error;
