//! The library API: load a model, hold sessions, generate text.
//!
//! ```no_run
//! use atta_engine::{Engine, Event, GenerateOptions, LoadOptions, SessionOptions};
//!
//! let engine = Engine::open("model.gguf".as_ref(), &LoadOptions::default())?;
//! let mut session = engine.session(&SessionOptions::default())?;
//! let prompt = engine.prompt_ids(b"Once upon a time");
//! for event in session.generate(&prompt, &GenerateOptions::default())? {
//!     if let Event::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok::<(), atta_engine::Error>(())
//! ```
//!
//! This crate joins the parts: bytes from *store*, text from *tokenizer*, logits from *model*. It
//! has no async, prints nothing, and reads no environment variable.
//!
//! # Features
//! - `batch` (default): many texts at once as `Batcher`, and vectors of texts as `Embedder`.
//! - `cache` (default): `PromptCache`, and sessions as bytes.
//! - `chat` (default): the modules `chat` and `tools`; with it come `cache` and `constrain`.
//! - `constrain` (default): constrained texts; without it every `Constraint` is an error.

#![forbid(unsafe_code)]

mod adapters;
#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "batch")]
mod embed;
mod engine;
mod error;
#[cfg(feature = "foreign")]
mod foreign;
mod generation;
mod heat;
#[cfg(all(test, feature = "batch"))]
mod hybrid_tests;
mod memory;
#[cfg(feature = "batch")]
mod pooling;
#[cfg(feature = "cache")]
mod prompt_cache;
mod reduction;
mod sampling;
#[cfg(feature = "batch")]
mod scheduler;
mod session;
mod speculation;
#[cfg(feature = "batch")]
mod text;

#[cfg(feature = "chat")]
pub use atta_chat::tools;
#[cfg(feature = "constrain")]
pub use atta_constrain::gbnf;
pub use atta_constrain::{
    CallStart, CallTest, Closing, Constraint, ConstraintError, Guide, NamePlace, OnLength,
    OtherProperties, SchemaOptions, Strictness, Thoughts,
};
pub use atta_formats::{
    ArrayValue, Directory, Explain, Metadata, Names, Setting, Shape, Suggestion, TensorInfo,
    TensorType, Value, is_model,
};
pub use atta_kernels::{Kernels, Pool};
pub use atta_model::{
    AdapterScale, AdapterSet, Backend, ExecutorSize, Inputs, KvType, MAX_ADAPTERS, MatmulCost,
    MeasuredStep, Model, Observer, Phase, ReductionCost, Role, Sensitivity, arch, oracle, spec,
};
pub use atta_store::{
    Budget, BudgetItem, Damage, DamagedPart, Error as StoreError, Io, ModelFiles, ModelSource,
    ReadAt, ReadMethod, catch_bus_errors, disk_rate, give_back_memory, return_large_buffers,
    system,
};
pub use atta_tokenizer as tokenizer;
pub use atta_tokenizer::Control;

pub use adapters::{AdapterFile, AdapterInfo};
#[cfg(feature = "batch")]
pub use embed::{EmbedOptions, Embedder};
pub use engine::{Engine, LoadOptions, Threads};
pub use error::Error;
pub use generation::{
    Event, FinishReason, Generate, GenerateOptions, StopError, StopPiece, StopStrings, Summary,
};
pub use heat::Heat;
pub use memory::{Fit, MemoryPlan, Prediction, WeightsAt};
#[cfg(feature = "batch")]
pub use pooling::Pooling;
#[cfg(feature = "cache")]
pub use prompt_cache::{CacheFileError, PrefixHit, PromptCache, SavedPrompt};
pub use reduction::{Omission, Reduced, Reduction};
pub use sampling::{
    Breakers, DryOptions, LogProb, LogProbs, Sampler, Sampling, SamplingError, log_sum_exp,
};
#[cfg(feature = "batch")]
pub use scheduler::{
    Batcher, BatcherOptions, Counts, Done, Job, JobId, MIN_CACHE_REUSE, OnUpdate, Update,
};
pub use session::{DEFAULT_N_BATCH, DEFAULT_N_CTX, Overflow, Session, SessionOptions};
pub use speculation::{
    DEFAULT_DRAFT, Draft, DraftHead, DraftModel, DraftSource, Drafter, EarlierAnswers, HeadFile,
    HiddenSink, MAX_DRAFT, N_CLASSES, Ngram, Speculation, SpeculationOff, SpeculationPolicy,
    SpeculationStats, StepRatios, TappedRows,
};
#[cfg(feature = "batch")]
pub use text::{Media, Text};
