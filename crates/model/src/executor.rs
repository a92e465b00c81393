//! The traits at which backends meet: the CPU now, a GPU and a ring of machines later.
//!
//! They are coarse on purpose. There is no trait of single operations: a backend runs a range of layers for a whole batch in
//! its own way, and owns the state of the sequences, which may live on a GPU or on another machine. Which sequence has which
//! positions is in a [`SeqTable`] that is the same for all backends, and here, so that nobody waits for a device to be told.

use std::{io::Write, ops::Range, sync::Arc};

use atta_store::Budget;

use crate::{Batch, Error, KvType, Model, Observer, Output, SeqId, SeqTable, seqs::SeqSize, spec::ModelSpec};

/// What an executor is made for.
#[derive(Clone, Debug)]
pub struct ExecutorSize {
    /// Positions per sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Rows per step.
    pub n_batch: usize,
    /// Element types of keys and values.
    pub kv: KvType,
    /// The layers to run; `None`: all.
    pub layers: Option<Range<usize>>,
    /// Positions that stay behind a gap when a sequence is shifted, at least; `None`: none will be.
    pub n_recent: Option<usize>,
    /// Positions of all sequences together that have keys and values, at least; `None`: every sequence may be as long as it can.
    /// With fewer, a step may find no room ([`Error::OutOfBlocks`]), and sequences cannot be shifted.
    pub n_shared: Option<usize>,
}

impl ExecutorSize {
    /// The layers to run of a model.
    pub fn layers_of(&self, spec: &ModelSpec) -> Range<usize> {
        self.layers.clone().unwrap_or(0..spec.layers.len())
    }

    pub(crate) fn seqs(&self) -> SeqSize {
        let Self { n_ctx, n_seqs, n_batch, n_recent, n_shared, .. } = *self;
        SeqSize { n_ctx, n_seqs, n_batch, n_recent, n_shared }
    }
}

impl Default for ExecutorSize {
    fn default() -> Self {
        Self { n_ctx: 4096, n_seqs: 1, n_batch: 512, kv: KvType::F16, layers: None, n_recent: None, n_shared: None }
    }
}

/// What an executor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorInfo {
    /// The layers that it runs. With the first it takes tokens, else hidden states; with the last it gives logits, too.
    pub layers: Range<usize>,
    /// Positions per sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Rows per batch.
    pub n_batch: usize,
    /// How it rounds: executors with the same text here compute the same bits from the same weights. Part of whatever names a
    /// state that is kept.
    pub numerics: String,
}

/// Bytes of host memory that an executor takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// For the state of sequences: keys and values.
    pub state: u64,
    /// For what passes through a step.
    pub activations: u64,
}

/// Makes executors.
pub trait Backend: Send + Sync {
    /// What an executor of that size will take.
    fn needs(&self, spec: &ModelSpec, size: &ExecutorSize) -> Needs;

    /// An executor with all the memory that it will ever need.
    ///
    /// # Errors
    /// Memory that the budget does not grant, a size that cannot be.
    fn open(&self, model: Arc<Model>, size: &ExecutorSize, budget: &Budget) -> Result<Box<dyn Executor>, Error>;
}

/// A batch that is under way. It is good for one [`collect`](Executor::collect).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what was submitted has to be collected"]
pub struct Ticket(pub u64);

/// Runs a range of layers for rows of many sequences.
///
/// Up to [`depth`](Self::depth) batches may be under way at once; they are collected in the order in which they were submitted.
/// A sequence that has rows under way takes further rows, and can be forked; it is not truncated, shifted, exported or dropped
/// until they are collected.
pub trait Executor: Send {
    /// What it is.
    fn info(&self) -> &ExecutorInfo;

    /// Which sequence has which positions, those of rows under way included.
    fn seqs(&self) -> &SeqTable;

    /// Batches that may be under way at once.
    fn depth(&self) -> usize {
        1
    }

    /// Gives every row of a batch its place behind its sequence, and begins to compute it.
    ///
    /// # Errors
    /// A row that does not continue its sequence, a token out of range, a full context, no room ([`Error::OutOfBlocks`]), more
    /// batches than may be under way ([`Error::Busy`]). No sequence has changed then.
    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error>;

    /// Waits for the oldest batch under way, and gives what its rows want.
    ///
    /// Logits are a function of the sequence alone: neither the other rows, nor how the sequence was cut into batches,
    /// nor the number of threads changes a bit of them.
    ///
    /// # Errors
    /// Weights that cannot be read: the rows of this batch are taken back, and those of all later ones, which are under way no
    /// more. [`Error::Ticket`] for another batch than the oldest.
    fn collect(&mut self, ticket: Ticket, out: &mut Output) -> Result<(), Error>;

    /// Appends every row of the batch to its sequence and computes what the rows want; nothing else is under way.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`collect`](Self::collect).
    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        let ticket = self.submit(batch)?;
        self.collect(ticket, out)
    }

    /// Lets `observer` hear what each step turns to, if the executor tells of that.
    fn observe(&mut self, observer: Box<dyn Observer>);

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`] if the executor was made for fewer.
    fn new_seq(&mut self) -> Result<SeqId, Error>;

    /// A copy of a sequence that shares its past and goes its own way from here.
    ///
    /// # Errors
    /// [`Error::NoSequence`], or [`Error::NoRoomForSequence`].
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error>;

    /// Forgets everything from position `n` on, and returns how many positions are left: `n`, all if there are fewer, or none
    /// where a layer with a window has already given back what position `n` sees.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error>;

    /// Forgets the positions `gap`; what follows moves up to where it began, and its keys are turned to their new positions. The
    /// sequence goes on as if it had been so from the start, but for what its layers have read of what is forgotten.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] unless the gap is a multiple of 32 of its positions, [`Error::Options`] for a
    /// model whose positions are learned.
    fn shift(&mut self, seq: SeqId, gap: Range<usize>) -> Result<(), Error>;

    /// Ends a sequence; its memory is free again.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error>;

    /// Writes the state of these positions of a sequence as bytes, to be appended by an executor of the same model, layers and
    /// element types. Of layers with a window only what is still there is written.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] for positions that it does not have, [`Error::Export`].
    fn export(&self, seq: SeqId, positions: Range<usize>, out: &mut dyn Write) -> Result<(), Error>;

    /// Appends the first `n` positions of a written state to a sequence that ends where it begins. The bytes may come from
    /// anywhere: everything is checked but the numbers themselves. A sequence that lacks a part of a window afterwards takes no
    /// rows; [`truncate`](Self::truncate) says so by leaving nothing of it.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] or [`Error::ContextFull`]; the sequence is as before then.
    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error>;
}
