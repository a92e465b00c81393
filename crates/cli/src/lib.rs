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
//! # Guide
//! - **A model** is an [`Engine`]. [`LoadOptions`] say how much memory it may take and where its
//!   weights are; [`MemoryPlan`] tells the need without loading.
//! - **One text** is a [`Session`]: it owns a KV cache. [`Session::generate`] appends a prompt and
//!   is an iterator of [`Event`]s; the next call goes on behind that text.
//! - **A conversation** is messages of the module [`chat`], rendered by the file's own template;
//!   [`tools`] has calls and their schemas.
//! - **Many texts at once** are [`Job`]s of a [`Batcher`], which has no thread of its own: the
//!   program calls `step` and gets [`Update`]s. Each text has the bits that it would have alone.
//! - **The choice of tokens** is that of [`Sampling`], within a [`Constraint`] (JSON, a schema, a
//!   regular expression, a grammar); or the program's own, by [`Session::append`] and
//!   [`Session::logits`].
//! - **Vectors** come from an [`Embedder`], **speed without another text** from [`Speculation`],
//!   **prompts that outlive the process** from a [`PromptCache`], **another task by a small file**
//!   from an [`AdapterFile`] in [`LoadOptions`].
//! - **Errors** name no option. [`Explain::explain`] prints them with the names that the program
//!   has for each [`Setting`].
//!
//! Programs to begin with lie in `crates/cli/examples`: `generate`, `chat`, `batch`, `embeddings`,
//! `custom_sampler` and `drafter`; `home` lets the built-in model run a house.
//!
//! # Features
//! All but `gpu` and `zenoh` are on by default.
//! - `avx512`: kernels for AVX-512 and AMX.
//! - `builtin`: the built-in model, as [`builtin()`]. It adds its size, a few megabytes, to the
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
//! - `drafters`: `--speculate` by another model and by draft heads (`draft=`, `eagle=`, `mtp`).
//! - `embed`: vectors of texts, as `Embedder`, many texts at once, as `Batcher`, and the command.
//! - `gpu`: `--gpu`, the last layers of a model on a GPU, and `doctor --gpu`, which tests GPUs, by
//!   the crate `atta-gpu`; not among the defaults, because it takes minutes to build. Implies
//!   `cluster`.
//! - `lora`: LoRA adapters, as `AdapterFile` in `LoadOptions`, and `--lora`.
//! - `perplexity`: the modules `perplexity` and `sensitivity`, and the command `perplexity`.
//! - `hub`: the commands `pull`, `list` and `rm`, and models by the names of their repositories, by
//!   the crate `atta-hub`.
//! - `leap`: LEAP's command line, as the command `leap`. Implies `chat`, `cluster` and `convert`.
//! - `qsf`: QSF files as models, without conversion.
//! - `server`: the command `serve`, by the crate `atta-server`.
//! - `tls`: `serve` with a certificate.
//! - `analyze`: what `atta inspect` computes beyond the contents of a file.
//! - `zenoh`: the nodes of a cluster find each other by Zenoh. Implies `cluster`.
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
