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
//! - `builtin` (default): the small model that is part of the program, as `builtin()`. It costs its
//!   size, a few megabytes, in the executable and nothing in private memory, since the system maps
//!   it from there.
//! - `cache` (default): the state of prompts on disk, as `PromptCache`, and the command.
//! - `chat` (default): conversations and tool calls, as the modules `chat` and `tools`, and the
//!   command. With it comes `constrain`.
//! - `constrain` (default): texts that must be JSON or of a grammar, as `Constraint`, and `--json`
//!   and its like.
//! - `convert` (default): conversion and quantization, as the module `convert`, and the commands
//!   `convert` and `imatrix`.
//! - `perplexity` (default): the module `perplexity`, and the command.
//! - `pull` (default): the command `atta pull`, and models by the names of their repositories. The
//!   library that does it is the crate `atta-hub`.
//! - `server` (default): the command `atta serve`; the library that does it is the crate
//!   `atta-server`.
//! - `survey` (default): what `atta inspect` works out beyond what is written in a file.
//! - `avx512` (default): kernels for AVX-512 and AMX.
//! - `comfort` (default): help of the command line in colours and as wide as the terminal, with
//!   examples, tips and warnings; a prompt from a file.
//!
//! The program without any of them is the one for small boards: `docs/boards.md`.

#![forbid(unsafe_code)]

#[cfg(feature = "convert")]
pub use atta_convert as convert;
pub use atta_engine::*;
pub use atta_eval::bench;
#[cfg(feature = "perplexity")]
pub use atta_eval::{Error as EvalError, perplexity};

#[cfg(feature = "builtin")]
mod builtin;

#[cfg(feature = "builtin")]
pub use builtin::{Builtin, builtin};
