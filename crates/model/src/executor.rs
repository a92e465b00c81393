//! The one trait at which backends meet: the CPU now, a GPU and a ring of machines later.
//!
//! It is coarse on purpose. There is no trait of single operations: a backend runs a range of layers for a whole batch in
//! its own way, and owns the state of the sequences, which may live on a GPU or on another machine.

use std::{io::Write, ops::Range};

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
