//! llama.cpp's own interface, as far as clients use it: `/completion`, `/infill`,
//! `/apply-template`, `/props`, `/slots`.
//!
//! Source: llama.cpp, tools/server/README.md, 2025. Errors are like OpenAI's. `/tokenize` and
//! `/detokenize` are in [`native`](super::native).

pub(crate) mod completion;
pub(crate) mod infill;
pub(crate) mod info;
pub(crate) mod options;
mod response;
pub(crate) mod template;
