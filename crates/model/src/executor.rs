//! The one trait at which backends meet: the CPU now, a GPU and a ring of machines later.
//!
//! It is coarse on purpose. There is no trait of single operations: a backend runs a range of layers for a whole batch in
//! its own way, and owns the state of the sequences, which may live on a GPU or on another machine.

use crate::{Batch, Error, Output, SeqId};

/// Runs a range of layers for rows of many sequences.
pub trait Executor {
    /// Appends every row of the batch to its sequence and computes what the rows want.
    ///
    /// Logits are a function of the sequence alone: neither the other rows, nor how the sequence was cut into batches,
    /// nor the number of threads changes a bit of them.
    ///
    /// # Errors
    /// A row that does not continue its sequence, a token out of range, a full context, weights that cannot be read.
    /// If the batch is refused, no sequence has changed; if reading weights fails halfway, the rows of the batch are
    /// taken back.
    fn step(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error>;

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`] if the executor was made for fewer.
    fn new_seq(&mut self) -> Result<SeqId, Error>;

    /// Number of positions of a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn len(&self, seq: SeqId) -> Result<usize, Error>;

    /// A copy of a sequence that shares its past and goes its own way from here.
    ///
    /// # Errors
    /// [`Error::NoSequence`], or [`Error::NoRoomForSequence`].
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error>;

    /// Forgets everything from position `n` on.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<(), Error>;

    /// Ends a sequence; its memory is free again.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error>;

    /// The state of a sequence as bytes, to be imported by an executor of the same model, layers and element types.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn export(&self, seq: SeqId) -> Result<Vec<u8>, Error>;

    /// A new sequence from exported bytes. They may come from anywhere: everything is checked but the numbers themselves.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::NoRoomForSequence`] or [`Error::ContextFull`].
    fn import(&mut self, state: &[u8]) -> Result<SeqId, Error>;
}
