//! The resident chunks: read once, and kept.
//!
//! Knows no pass and no budget. The one idea: a resident chunk is a read that is waited for at most
//! once. Of a file all are waited for while the model is opened, so that a disk's error is one
//! of opening; of a source that still arrives each is waited for at its first use, so that the
//! first prompt is computed behind the download.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::{
    read_ahead::ChunkReader,
    readers::{Priority, ReadTicket, Readers},
};
use crate::{Error, os::Slot};

/// A resident chunk, whose bytes may not be there yet.
pub(super) struct PinnedChunk {
    slot: OnceLock<Slot>,
    read: Mutex<PinnedRead>,
}

/// The read of a resident chunk.
enum PinnedRead {
    Requested(ReadTicket),
    /// The next use tries again.
    Failed(Slot),
    Complete,
}

impl PinnedChunk {
    /// A chunk that was requested.
    pub(super) fn new(ticket: ReadTicket) -> Self {
        Self {
            slot: OnceLock::new(),
            read: Mutex::new(PinnedRead::Requested(ticket)),
        }
    }

    /// Its bytes, if something has waited for them.
    pub(super) fn arrived(&self) -> Option<&Slot> {
        self.slot.get()
    }

    /// Its bytes, if they are here; waits for nothing.
    pub(super) fn arrived_by_now(&self, readers: &Readers) -> Option<&Slot> {
        if let Some(slot) = self.arrived() {
            return Some(slot);
        }
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let PinnedRead::Requested(ticket) = *read else {
            return self.arrived();
        };
        if !readers.is_served(ticket) {
            return None;
        }
        let (slot, result) = readers.wait(ticket);
        if result.is_err() {
            *read = PinnedRead::Failed(slot);
            return None;
        }
        *read = PinnedRead::Complete;
        Some(self.slot.get_or_init(|| slot))
    }

    /// Waits for its bytes. `chunk` is its index among the chunks of `reader`.
    ///
    /// # Errors
    /// The error of a read that begins now: one that was requested earlier may have failed long
    /// ago, and is tried again.
    pub(super) fn wait(&self, reader: ChunkReader<'_>, chunk: usize) -> Result<&Slot, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match std::mem::replace(&mut *read, PinnedRead::Complete) {
            PinnedRead::Complete => return Ok(self.complete()),
            PinnedRead::Failed(slot) => slot,
            PinnedRead::Requested(ticket) => {
                reader.readers.hurry(ticket);
                match reader.readers.wait(ticket) {
                    (slot, Ok(())) => return Ok(self.slot.get_or_init(|| slot)),
                    (slot, Err(_)) => slot,
                }
            }
        };
        let again = reader.request(chunk, slot, Priority::Urgent);
        let (slot, result) = reader.readers.wait(again);
        if let Err(error) = result {
            *read = PinnedRead::Failed(slot);
            return Err(error);
        }
        Ok(self.slot.get_or_init(|| slot))
    }

    fn complete(&self) -> &Slot {
        self.slot.get().expect("a complete read has left its slot")
    }
}
