//! Runs large language models from GGUF files, straight from disk, in little memory.
//!
//! This is the facade: everything that a program needs to load a model and generate text, under one
//! name. The parts are in crates of their own; the command line in the same package is written
//! against this library alone.
//!
//! ```no_run
//! use atta::{Engine, Event, GenerateOptions, LoadOptions, SessionOptions};
//!
//! let engine = Engine::open("model.gguf".as_ref(), &LoadOptions::default())?;
//! let mut session = engine.session(&SessionOptions::default())?;
//! let prompt = engine.prompt_ids(b"Once upon a time");
//! for event in session.generate(&prompt, &GenerateOptions::default())? {
//!     if let Event::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok::<(), atta::Error>(())
//! ```
//!
//! # Features
//! All but `zenoh` are on by default.
//! - `avx512`: kernels for AVX-512 and AMX.
//! - `builtin`: the built-in model, as `builtin()`. It adds its size, a few megabytes, to the
//!   executable and nothing to private memory, since the system maps it from there.
//! - `cache`: the prompt cache on disk, as `PromptCache`, and `--cache`.
//! - `chat`: conversations and tool calls, as the modules `chat` and `tools`, and the command.
//!   Implies `constrain`.
//! - `cluster`: one model on several machines: `node`, `cluster`, `--ring`; and
//!   `doctor`, which measures as nodes do.
//! - `constrain`: output constrained to JSON or a grammar, as `Constraint`, and `--json` and the
//!   like.
//! - `convert`: conversion and quantization, as the module `convert`, and the commands `convert`
//!   and `imatrix`, and `sensitivity`. Implies `perplexity`.
//! - `embed`: vectors of texts, as `Embedder`, many texts at once, as `Batcher`, and the command.
//! - `gpu`: `doctor --gpu`, which tests GPUs by the crate `atta-gpu`; not among the defaults,
//!   because models do not run on them yet. Implies `cluster`.
//! - `lora`: LoRA adapters, as `AdapterFile` in `LoadOptions`, and `--lora`.
//! - `perplexity`: the modules `perplexity` and `sensitivity`, and the command `perplexity`.
//! - `hub`: the commands `pull`, `list` and `rm`, and models by the names of their repositories, by
//!   the crate `atta-hub`.
//! - `leap`: LEAP's command line, as the command `leap`. Implies `chat`, `cluster` and `convert`.
//! - `qsf`: QSF files as models, without conversion.
//! - `server`: the command `serve`, by the crate `atta-server`.
//! - `tls`: `serve` with a certificate.
//! - `analyze`: what `atta inspect` computes beyond the contents of a file.
//! - `zenoh`, not on by default: the nodes of a cluster find each other by Zenoh.
//! - `cli-extras`: coloured help as wide as the terminal, with examples; tips in errors; warnings;
//!   the commands `version`, `completions` and `man`.
//!
//! The program without features is the one for small boards: `docs/boards.md`.

#![forbid(unsafe_code)]

#[cfg(feature = "convert")]
pub use atta_convert as convert;
pub use atta_engine::*;
pub use atta_eval::bench;
#[cfg(feature = "perplexity")]
pub use atta_eval::{Error as EvalError, perplexity, sensitivity};

mod builtin;

pub use builtin::Builtin;
#[cfg(feature = "builtin")]
pub use builtin::builtin;
