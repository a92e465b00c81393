//! Evaluation: how well a model predicts a text (perplexity, KL divergence), what it loses where it
//! runs in part, and how fast it runs.
//!
//! Uses nothing of the engine but sessions, and layers of its models; reads no files and prints
//! nothing.
//!
//! # Features
//! - `perplexity` (default): the modules `perplexity` and `sensitivity`.

#![forbid(unsafe_code)]

pub mod bench;
#[cfg(feature = "perplexity")]
mod error;
#[cfg(feature = "perplexity")]
pub mod perplexity;
#[cfg(feature = "perplexity")]
pub mod sensitivity;

#[cfg(feature = "perplexity")]
pub use error::Error;
