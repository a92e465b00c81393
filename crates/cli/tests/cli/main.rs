//! The program from outside: the built binary, its exit codes, and what it writes where.
//!
//! Every test starts the program as a user would. Models are the tiny random ones of `tests/golden/models`, whose
//! vocabularies have 96 tokens, and the one that is built in.

mod errors;
mod inspect;
mod logits;
mod perplexity;
mod program;
mod run;
mod streams;
mod tokenize;
