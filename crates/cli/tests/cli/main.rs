//! The program from outside: the built binary, its exit codes, and what it writes where.
//!
//! Every test starts the program as a user would. Models are the tiny random ones of `tests/golden/models`, whose
//! vocabularies have 96 tokens, and the one that is built in.

#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "chat")]
#[path = "../../../engine/tests/chat_model/mod.rs"]
mod chat_model;
mod errors;
mod inspect;
mod logits;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(feature = "perplexity")]
mod perplexity;
mod picolm;
mod program;
mod run;
mod streams;
#[cfg(feature = "chat")]
mod terminal;
mod tokenize;
