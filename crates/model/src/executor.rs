//! Backend and executor: the interface between the engine and what computes: the CPU, a GPU beside
//! it, or a ring of machines.
//!
//! The traits are coarse on purpose: a backend runs a range of layers for a whole batch and owns
//! the state of the sequences, which may live on a GPU or on another machine. There is no trait for
//! single operations. The block tables are in a [`SeqTable`], which is the same for all backends
//! and always in local memory, so that no query waits for a device.

use std::{io::Write, ops::Range, sync::Arc};

use atta_store::{Budget, BudgetItem};

use crate::{
    Batch, CacheSize, Error, KvType, Member, Model, Observer, Output, SeqId, SeqTable, Share,
    seqs::SeqSize, spec::ModelSpec,
};

/// The answer of executors that move no keys.
const CANNOT_MOVE: Error = Error::NoMove("other machines have a part of its state");

/// Capacity of an executor.
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
    /// Part of the model to run; `None`: all of it. Without layers it is the embedding of tokens
    /// (`0..0`), or the head (behind the last layer).
    pub part: Option<Share>,
    /// Batches whose rows a caller may remove again, the last one included: as many as a ring that
    /// the executor is a stage of has in flight. Sliding windows and recurrent states keep what
    /// that takes.
    pub n_flights: usize,
    /// Positions kept behind an evicted range (context shift), at least; `None`: sequences are
    /// never shifted.
    pub n_recent: Option<usize>,
    /// KV pool size: positions of all sequences together; `None`: `n_ctx` for each. A smaller pool
    /// can run out ([`Error::OutOfBlocks`]), and its sequences cannot be shifted.
    pub n_shared: Option<usize>,
    /// Recurrent states that a sequence can return to, besides those of its last batches: each
    /// takes the memory of one more state. Without recurrent layers it means nothing.
    pub n_checkpoints: usize,
    /// Last rows of a batch that may be removed again, such as those of a draft: each takes the
    /// memory of one more recurrent state, and without recurrent layers it means nothing.
    pub n_draft: usize,
}

impl ExecutorSize {
    /// Resolves `part` for a model.
    pub fn part_of(&self, spec: &ModelSpec) -> Share {
        let whole = || Share::whole(spec);
        self.part.clone().unwrap_or_else(whole)
    }

    /// Keys, values and states that an executor of this size keeps.
    pub fn cache<'a>(&self, spec: &'a ModelSpec) -> CacheSize<'a> {
        CacheSize {
            spec,
            layers: self.part_of(spec).layers,
            kv: self.kv,
            seqs: self.seqs(),
        }
    }

    /// Capacity of the block tables: sliding windows keep what the rows of all batches in flight
    /// see, and recurrent states what they start from, so that a failed batch can be removed again.
    pub fn seqs(&self) -> SeqSize {
        let Self {
            n_ctx,
            n_seqs,
            n_recent,
            n_shared,
            n_checkpoints,
            n_draft,
            ..
        } = *self;
        let n_flights = self.n_flights.max(1);
        let n_batch = self.n_batch.saturating_mul(n_flights);
        SeqSize {
            n_ctx,
            n_seqs,
            n_batch,
            n_flights,
            n_recent,
            n_shared,
            n_checkpoints,
            n_draft,
        }
    }
}

impl Default for ExecutorSize {
    fn default() -> Self {
        Self {
            n_ctx: 4096,
            n_seqs: 1,
            n_batch: 512,
            kv: KvType::F16,
            part: None,
            n_flights: 1,
            n_recent: None,
            n_shared: None,
            n_checkpoints: 4,
            n_draft: 0,
        }
    }
}

/// Properties of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorInfo {
    /// What it runs. Input is tokens if it embeds them, else hidden states; logits need the head.
    pub part: Share,
    /// Positions per sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Rows per batch.
    pub n_batch: usize,
    /// Numerics id: executors with the same id compute the same bits from the same weights. Part
    /// of every cache key.
    pub numerics: String,
}

/// Host memory of an executor, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutorBytes {
    /// KV cache and recurrent states.
    pub state: u64,
    /// Activations.
    pub activations: u64,
}

/// Predicts the memory of executors, without creating any.
pub trait Footprint: Send + Sync {
    /// Memory that an executor of this size will need.
    fn executor_bytes(&self, spec: &ModelSpec, size: &ExecutorSize) -> ExecutorBytes;

    /// The part of the model that this machine binds and keeps memory for: what executors read
    /// here. A ring of machines runs the other layers elsewhere.
    fn part(&self, spec: &ModelSpec) -> Share {
        Share::whole(spec)
    }

    /// Whether its executors keep recurrent states for [`ExecutorSize::n_draft`].
    fn keeps_draft_states(&self) -> bool {
        false
    }

    /// Bytes of weights that its executors will take in the memory of this machine, besides those
    /// that it binds here: a GPU may have no memory of its own.
    fn weights_beside(&self) -> u64 {
        0
    }

    /// Memory that its executors will have elsewhere, such as on a GPU, by purpose.
    fn planned_elsewhere(&self, spec: &ModelSpec, size: &ExecutorSize) -> Vec<BudgetItem> {
        let _ = (spec, size);
        Vec::new()
    }

    /// Whether its executors take rows with adapters.
    fn takes_adapters(&self) -> bool {
        false
    }

    /// Memory that its executors have elsewhere, such as on a GPU, by purpose.
    fn items_elsewhere(&self) -> Vec<BudgetItem> {
        Vec::new()
    }

    /// The member whose rows of that part this machine binds; `None`: it binds all rows.
    fn member(&self) -> Option<Member> {
        None
    }
}

/// Creates executors.
pub trait Backend: Footprint + std::fmt::Debug {
    /// Creates an executor and allocates all of its memory.
    ///
    /// # Errors
    /// The memory budget is exceeded, or the size is invalid.
    fn open(
        &self,
        model: Arc<Model>,
        size: &ExecutorSize,
        budget: &Budget,
    ) -> Result<Box<dyn Executor>, Error>;
}

/// A batch in flight, to be passed to [`collect`](Executor::collect) once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a submitted batch must be collected"]
pub struct Ticket(pub u64);

/// Runs a range of layers for rows of many sequences.
///
/// Up to [`depth`](Self::depth) batches may be in flight; they are collected in the order of
/// submission. A sequence with rows in flight accepts further rows and can be forked (the fork must
/// be truncated to collected positions, since `collect` may fail); shifting, exporting or dropping
/// it is [`Error::Busy`]. Truncating it is, too, unless that removes whole batches only. Such a
/// batch is collected in its turn, with no results.
pub trait Executor: Send {
    /// Its properties.
    fn info(&self) -> &ExecutorInfo;

    /// Block tables of its sequences, including rows in flight.
    fn seqs(&self) -> &SeqTable;

    /// Whether batches may tap hidden states ([`Batch::taps`]).
    fn can_tap(&self) -> bool {
        false
    }

    /// Maximum number of batches in flight.
    fn depth(&self) -> usize {
        1
    }

    /// Rows of a prompt in one batch, at most: fewer than it may have where several batches are
    /// computed at the same time.
    fn n_chunk(&self) -> usize {
        self.info().n_batch
    }

    /// Appends every row of a batch to its sequence and starts computing.
    ///
    /// # Errors
    /// A row that does not continue its sequence, a token out of range, a full context, an
    /// exhausted KV pool ([`Error::OutOfBlocks`]), a sequence that is lost ([`Error::Lost`]), too
    /// many batches in flight ([`Error::Busy`]). No sequence has changed then.
    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error>;

    /// Waits for the oldest batch in flight and returns the results that its rows asked for.
    ///
    /// Logits are a function of the sequence alone: neither the other rows, nor how the sequence
    /// was cut into batches, nor the number of threads changes a bit of them.
    ///
    /// # Errors
    /// Weights that cannot be read, a machine that does not answer ([`Error::Lost`]): the rows of
    /// this batch and of all later ones are removed again, and no batch is in flight any
    /// more. [`Error::Ticket`] for any batch but the oldest.
    fn collect(&mut self, ticket: Ticket, out: &mut Output) -> Result<(), Error>;

    /// Submits a batch and collects it. No other batch may be in flight.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`collect`](Self::collect).
    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        let ticket = self.submit(batch)?;
        self.collect(ticket, out)
    }

    /// Takes changes that the backend was asked for since the last batch, such as other machines.
    /// No batch may be in flight. Most executors have nothing to do.
    ///
    /// # Errors
    /// The executor is as before; [`Error::Lost`]: it has no machines any more, and the next batch
    /// looks for some.
    fn refresh(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Sets an observer of the phases of each step.
    fn observe(&mut self, observer: Box<dyn Observer>);

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`] if the executor was made for fewer.
    fn new_seq(&mut self) -> Result<SeqId, Error>;

    /// Copies a sequence; the copy shares its state until either is written to.
    ///
    /// # Errors
    /// [`Error::NoSequence`], or [`Error::NoRoomForSequence`].
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error>;

    /// Removes the positions from `n` on, and returns how many are left: `n` or all if there are
    /// fewer. With recurrent layers the nearest checkpoint at or before that; none where a sliding
    /// window has already freed positions that are needed there. The caller evaluates the rest
    /// again.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::Busy`] for rows in flight that cannot be taken back.
    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error>;

    /// Evicts positions (context shift): later positions move down, and their keys are rotated to
    /// the new positions. Keys and values that were computed from evicted positions do not change.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] unless they are a multiple of 32 of its positions,
    /// [`Error::Options`] for a model with learned positions or recurrent layers.
    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error>;

    /// Whether [`append_moved`](Self::append_moved) works here.
    ///
    /// # Errors
    /// [`Error::NoMove`] with the reason if not.
    fn check_moving(&self) -> Result<(), Error> {
        Err(CANNOT_MOVE)
    }

    /// Appends a copy of positions of the sequence `from` to another sequence, with keys rotated
    /// to the new positions. Keys and values that were computed behind the text of `from` do not
    /// change: the state approximates that of the text which it continues.
    ///
    /// # Errors
    /// [`Error::NoMove`] of an executor or a model that cannot, [`Error::NoSequence`],
    /// [`Error::State`] if `from` lacks some of the positions or has freed a part of the window
    /// behind them, [`Error::ContextFull`], [`Error::OutOfBlocks`]; both sequences are as before
    /// then.
    fn append_moved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
    ) -> Result<(), Error> {
        let _ = (from, positions, to);
        Err(CANNOT_MOVE)
    }

    /// Appends `n` positions without computing them, for measurements of speed behind a long
    /// context: keys and values are small numbers that depend on layer and position only, and the
    /// recurrent state behind them is zero. They are the state of no text.
    ///
    /// # Errors
    /// [`Error::NoFill`] of an executor or a model that cannot, [`Error::NoSequence`],
    /// [`Error::ContextFull`], [`Error::OutOfBlocks`]; the sequence is as before then.
    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        let _ = (seq, n);
        Err(Error::NoFill)
    }

    /// Removes a sequence and frees its state.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error>;

    /// Writes the state of these positions of a sequence as bytes, to be appended by an executor of
    /// the same model, layers and element types. Of layers with a window only the positions that
    /// are still there are written; of recurrent layers the checkpoints within the positions, and
    /// the one at their end.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] for positions that it does not have,
    /// [`Error::Export`].
    fn export(&self, seq: SeqId, positions: Range<usize>, out: &mut dyn Write)
    -> Result<(), Error>;

    /// Writes the state of some of its layers, counted in the model, as [`export`](Self::export)
    /// writes that of all: another executor may have them together with others.
    ///
    /// # Errors
    /// As [`export`](Self::export), and [`Error::State`] for layers that it does not have.
    fn export_layers(
        &self,
        seq: SeqId,
        layers: Range<usize>,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        match self.info().part.layers == layers {
            true => self.export(seq, positions, out),
            false => Err(Error::State("its layers are not exported apart")),
        }
    }

    /// Appends the first `n` positions of a written state to a sequence that ends where it begins.
    /// The bytes may come from anywhere: everything is checked but the numbers themselves. A
    /// sequence that lacks a part of a window or its recurrent state afterwards takes no rows;
    /// [`truncate`](Self::truncate) leaves what can be continued.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`], [`Error::ContextFull`] or [`Error::OutOfBlocks`];
    /// the sequence is as before then.
    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error>;

    /// Appends the first `n` positions of written states of the same positions, as
    /// [`append_state`](Self::append_state): of layers that follow each other, together all layers
    /// of this executor.
    ///
    /// # Errors
    /// As [`append_state`](Self::append_state).
    fn append_layers(&mut self, seq: SeqId, states: &[&[u8]], n: usize) -> Result<(), Error> {
        match states {
            [state] => self.append_state(seq, state, n),
            _ => Err(Error::State("its layers are not appended apart")),
        }
    }
}
