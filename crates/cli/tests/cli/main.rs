//! The program from outside: the built binary, its exit codes, and what it writes where.
//!
//! Every test starts the program as a user would. Models are the tiny random ones of
//! `tests/golden/models`, whose vocabularies have 96 tokens, and the one that is built in.

#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "chat")]
#[path = "../../../engine/tests/chat_model/mod.rs"]
mod chat_model;
#[cfg(all(feature = "constrain", feature = "builtin"))]
mod constraint;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "cluster")]
mod doctor;
#[cfg(feature = "embed")]
mod embed;
mod errors;
mod files;
#[cfg(feature = "hub")]
#[allow(dead_code, reason = "the tests of its own crate use all of it")]
#[path = "../../../hub/tests/support/mod.rs"]
mod hub;
mod inspect;
#[cfg(all(feature = "cluster", unix))]
mod join;
#[cfg(all(feature = "leap", unix))]
mod leap;
mod logits;
#[cfg(all(feature = "lora", feature = "chat", feature = "convert"))]
mod lora;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(all(feature = "hub", feature = "cli-extras"))]
mod names;
#[cfg(feature = "perplexity")]
mod perplexity;
mod picolm;
#[cfg(unix)]
mod processes;
mod program;
#[cfg(feature = "hub")]
mod pull;
#[cfg(all(feature = "cluster", unix))]
mod ring;
#[cfg(all(feature = "cluster", unix))]
mod ring_faults;
mod run;
#[cfg(all(feature = "cluster", feature = "convert", feature = "perplexity"))]
mod sensitivity;
#[cfg(all(feature = "server", unix))]
mod serve;
mod speculation;
mod streams;
#[cfg(feature = "convert")]
mod target_size;
#[cfg(feature = "chat")]
mod terminal;
#[cfg(feature = "chat")]
mod thoughts;
mod tokenize;
#[cfg(all(feature = "chat", feature = "builtin"))]
mod tools;
#[cfg(feature = "convert")]
mod verify;
