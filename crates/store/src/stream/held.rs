//! A chunk of streamed weights while a step uses it: where its bytes are, and what takes their
//! memory back.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Streamed,
    chunk::ChunkSlice,
    expert_cache::{Expert, ExpertCache},
};
use crate::{TensorRows, os::Slot};

/// A chunk in memory. Dropping it returns its memory to the ring, the cache or the spare buffers.
pub(crate) enum StreamedChunk<'a> {
    Pinned {
        slices: &'a [ChunkSlice],
        slot: &'a Slot,
    },
    Read {
        slices: &'a [ChunkSlice],
        /// `Some` until the drop.
        slot: Option<Slot>,
        weights: &'a Streamed,
    },
    Experts {
        experts: Vec<Arc<Expert>>,
        cache: &'a ExpertCache,
        weights: &'a Streamed,
    },
    EmbedRows {
        rows: Vec<u8>,
        row_bytes: usize,
        weights: &'a Streamed,
    },
}

impl StreamedChunk<'_> {
    /// The rows of one matrix.
    pub(crate) fn tensor(&self, i: usize) -> TensorRows<'_> {
        match self {
            Self::Pinned { slices, slot } => rows_of(&slices[i], slot),
            Self::Read { slices, slot, .. } => rows_of(
                &slices[i],
                slot.as_ref().expect("the slot is there until the drop"),
            ),
            Self::Experts { experts, cache, .. } => {
                let n = cache.tables().len();
                TensorRows {
                    first: 0,
                    bytes: experts[i / n].tensor(i % n),
                }
            }
            Self::EmbedRows {
                rows, row_bytes, ..
            } => TensorRows {
                first: 0,
                bytes: &rows[i * row_bytes..(i + 1) * row_bytes],
            },
        }
    }
}

impl Drop for StreamedChunk<'_> {
    fn drop(&mut self) {
        match self {
            Self::Pinned { .. } => {}
            Self::Read { slot, weights, .. } => {
                if let Some(slot) = slot.take() {
                    weights.ring.free(weights.chunk_reader(), slot);
                }
            }
            Self::Experts {
                experts,
                cache,
                weights,
            } => {
                experts.clear();
                cache.released();
                give_spare(&weights.spare_experts, std::mem::take(experts));
            }
            Self::EmbedRows { rows, weights, .. } => {
                rows.clear();
                give_spare(&weights.spare_rows, std::mem::take(rows));
            }
        }
    }
}

fn rows_of<'a>(slice: &ChunkSlice, slot: &'a Slot) -> TensorRows<'a> {
    let bytes = if slice.extent.bytes == 0 {
        &[]
    } else {
        slice.bytes(slot)
    };
    TensorRows {
        first: slice.first,
        bytes,
    }
}

/// Takes a buffer to fill, a spare one if there is one.
pub(super) fn take_spare<T>(spare: &Mutex<Vec<Vec<T>>>) -> Vec<T> {
    spare
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop()
        .unwrap_or_default()
}

fn give_spare<T>(spare: &Mutex<Vec<Vec<T>>>, buffer: Vec<T>) {
    spare
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(buffer);
}
