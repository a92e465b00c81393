//! Architectures as data, and the one forward pass that runs them.
//!
//! [`arch::lower`] turns metadata into a [`spec::ModelSpec`]; [`Model::load`] binds a file's
//! tensors to it; an [`Executor`] such as [`Cpu`] computes batches of rows of many sequences;
//! [`oracle`] computes the same naively, for comparison. The crate knows no sampling, text, HTTP or
//! clocks.

#![forbid(unsafe_code)]

mod adapters;
pub mod admission;
pub mod arch;
mod batch;
mod bind;
mod blocks;
mod chain;
mod check;
mod cpu;
mod draft_head;
mod error;
mod executor;
mod forward;
mod kv;
mod members;
mod observe;
pub mod oracle;
mod role;
mod rope;
mod scores;
mod sensitivity;
pub mod seqs;
mod share;
pub mod spec;
mod tensors;

pub use adapters::{
    Adapter, AdapterMatrix, AdapterPair, AdapterScale, AdapterSet, AdapterSizes, MAX_ADAPTERS,
    MatrixChange,
};
pub use batch::{Batch, Input, Output, Row, SeqId, Want};
pub use bind::{BoundTensor, MatmulCost, MatrixRows, Model, ModelCost, PartCost};
pub use chain::{Chain, Reopen};
pub use cpu::{Cpu, CpuBackend, CpuFootprint};
pub use draft_head::{DraftHeadFile, parse_guessed};
pub use error::Error;
pub use executor::{
    Backend, Executor, ExecutorBytes, ExecutorInfo, ExecutorSize, Footprint, Ticket,
};
pub use kv::{
    BlockPiece, CacheSize, KeyTurn, KvArena, KvCache, KvElem, KvLayerPlace, KvType, StateBlocks,
    StateCoverage, StoredKeys,
};
pub use members::{
    Audience, Exchange, Member, MemberPart, RowSplit, Unit, UnitShape, columns_bytes, most_numbers,
    units,
};
pub use observe::{Inputs, Observer, Phase};
pub use role::{Placement, Role};
pub use rope::{KeyShift, RopeTables};
pub use sensitivity::{MeasuredStep, ReductionCost, Sensitivity};
pub use seqs::SeqTable;
pub use share::Share;
pub use tensors::TensorReq;
