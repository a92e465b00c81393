//! The way of a request: its bytes are parsed, the prompt and the constraint are prepared, jobs are
//! submitted to the worker, and the events of those jobs become events of an answer.
//!
//! Knows no client's JSON: the folders of `api/` map that to the types here and back.

pub(crate) mod adapters;
pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod cache_reuse;
pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod prepare;
pub(crate) mod prompt;
pub(crate) mod request;
pub(crate) mod sampling;
pub(crate) mod stream;
pub(crate) mod thinking;
pub(crate) mod tools;
pub(crate) mod usage;
pub(crate) mod warnings;
