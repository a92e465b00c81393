//! The library API: load a model, hold sessions, generate text.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use atta_engine::{Engine, Event, GenerateOptions, LoadOptions, SessionOptions};
//!
//! let engine = Engine::open("model.gguf".as_ref(), &LoadOptions::default())?;
//! let mut session = engine.session(&SessionOptions::default())?;
//! let prompt = engine.prompt_ids(b"Once upon a time");
//! session.generate(&prompt, &GenerateOptions::default(), |event| {
//!     if let Event::Text(text) = event {
//!         print!("{text}");
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), atta_engine::Error>(())
//! ```
//!
//! This crate joins the parts: bytes from *store*, text from *tokenizer*, logits from *model*. It
//! has no async, prints nothing, and reads no environment variable.
//!
//! # Features
//! - `cache` (default): `PromptCache`, and sessions as bytes.
//! - `chat` (default): the modules `chat` and `tools`; with it comes `constrain`.
//! - `constrain` (default): `Constraint`, texts that must be JSON or of a grammar.
//! - `perplexity` (default): the module `perplexity`.

#![forbid(unsafe_code)]

#[cfg(feature = "constrain")]
mod backtrack;
#[cfg(feature = "batch")]
mod batcher;
mod bench;
#[cfg(feature = "chat")]
pub mod chat;
mod chooser;
#[cfg(feature = "constrain")]
mod constraint;
mod engine;
mod error;
#[cfg(feature = "foreign")]
mod foreign;
mod generate;
mod memory;
#[cfg(feature = "perplexity")]
pub mod perplexity;
#[cfg(feature = "batch")]
mod pooling;
#[cfg(feature = "cache")]
mod prompt_cache;
mod rules;
mod sampling;
mod session;
mod stop;
#[cfg(feature = "chat")]
pub mod tools;
mod writer;

pub use atta_formats::{ArrayValue, Directory, Metadata, Shape, TensorInfo, TensorType, Value};
pub use atta_kernels::{Kernels, Pool};
pub use atta_model::{
    Inputs, KvType, MatmulCost, Model, Observer, Phase, Role, arch, oracle, spec,
};
pub use atta_store::{
    Budget, Io, Item, Method, ModelFiles, catch_bus_errors, give_back_memory, system,
};
pub use atta_tokenizer as tokenizer;
pub use atta_tokenizer::Control;

#[cfg(feature = "constrain")]
pub use backtrack::{CallStart, NamePlace, Thoughts};
#[cfg(feature = "batch")]
pub use batcher::{Batcher, BatcherOptions, Counts, Done, Job, JobId, OnUpdate, Update};
pub use bench::{BenchOptions, BenchReport, TimeSplit};
#[cfg(feature = "constrain")]
pub use constraint::{
    Closing, Constraint, ConstraintError, Guide, OnLength, OtherProperties, SchemaOptions,
    Strictness, gbnf,
};
pub use engine::{Engine, LoadOptions, Threads};
pub use error::Error;
pub use generate::{Event, FinishReason, GenerateOptions, Summary};
pub use memory::{Fit, MemoryPlan, Prediction, WeightsAt};
#[cfg(feature = "batch")]
pub use pooling::Pooling;
#[cfg(feature = "cache")]
pub use prompt_cache::{Flaw, PromptCache, Restored, SavedPrompt};
pub use sampling::{Breakers, DryOptions, LogProb, LogProbs, Sampler, Sampling, SamplingError};
pub use session::{Overflow, Session, SessionOptions};
pub use stop::{StopError, StopPiece, StopStrings};
