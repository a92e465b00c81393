//! The program from outside: the built binary, its exit codes, and what it writes where.
//!
//! Every test starts the program as a user would. Models are the tiny random ones of `tests/golden/models`, whose
//! vocabularies have 96 tokens, and the one that is built in.

mod chat;
#[path = "../../../engine/tests/chat_model/mod.rs"]
mod chat_model;
mod errors;
mod inspect;
mod logits;
#[cfg(target_os = "linux")]
mod memory;
mod perplexity;
mod picolm;
mod program;
mod run;
mod streams;
mod terminal;
mod tokenize;
