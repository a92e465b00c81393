//! States of several layers as bytes, and as pieces of frames.
//!
//! ```text
//! state:  per layer  u32 layer | u32 bytes | bytes of `Executor::export_layers`
//! pieces: 256 KiB each but the last, which is shorter, perhaps empty
//! ```
//! Knows no meaning of the bytes inside.

use std::collections::BTreeMap;

use crate::wire::{Frame, FrameKind, Header, Limits, MAX_JOURNAL_BYTES, Piece};

/// Bytes of unfinished states at most.
pub(crate) const MAX_JOINING: usize = 64 << 20;

/// A state that a stage has saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    /// Name of the segment.
    pub(crate) id: u64,
    /// Its sequence.
    pub(crate) seq: u32,
    /// Its first position.
    pub(crate) first: u32,
    /// Its positions.
    pub(crate) n: u32,
    /// States of layers, joined.
    pub(crate) bytes: Vec<u8>,
}

/// The bytes of states of layers.
pub(crate) fn join<'a>(layers: impl Iterator<Item = (usize, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (l, state) in layers {
        let fields = [l, state.len()].map(|x| u32::try_from(x).unwrap_or(u32::MAX));
        out.extend(fields.into_iter().flat_map(u32::to_le_bytes));
        out.extend_from_slice(state);
    }
    out
}

/// The states of layers in joined bytes; `None` if they are cut short.
pub(crate) fn layers(mut bytes: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (layer, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let state = rest.get(..u32::from_le_bytes(*len) as usize)?;
        bytes = &rest[state.len()..];
        all.push((u32::from_le_bytes(*layer) as usize, state));
    }
    Some(all)
}

/// The frames of a state, from or to a stage.
pub(crate) fn split(state: &SavedState, limits: &Limits, epoch: u32, stage: u16) -> Vec<Frame> {
    let n_pieces = state.bytes.len() / MAX_JOURNAL_BYTES + 1;
    let frame = |i: usize| {
        let offset = i * MAX_JOURNAL_BYTES;
        let end = state.bytes.len().min(offset + MAX_JOURNAL_BYTES);
        let data = state.bytes[offset..end].to_vec();
        Frame {
            piece: Some(Piece {
                id: state.id,
                offset: offset as u64,
                len: data.len() as u32,
                seq: state.seq,
                first: state.first,
                n: state.n,
            }),
            data,
            ..Frame::bare(Header {
                ring: limits.ring,
                dtype: limits.dtype,
                epoch,
                stage,
                ..Header::new(FrameKind::Journal)
            })
        }
    };
    (0..n_pieces).map(frame).collect()
}

/// Pieces that do not follow each other, or are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornState;

/// States whose pieces have not all come, by stage and segment.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    parts: BTreeMap<(u16, u64), Vec<u8>>,
    n_bytes: usize,
}

impl Joining {
    /// Takes a piece; the bytes of the state if it is the last one. A piece that comes twice is
    /// skipped.
    pub(crate) fn take(
        &mut self,
        stage: u16,
        piece: &Piece,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, TornState> {
        let key = (stage, piece.id);
        let part = self.parts.entry(key).or_default();
        if (piece.offset as usize) < part.len() {
            return Ok(None);
        }
        if piece.offset as usize > part.len() || self.n_bytes + data.len() > MAX_JOINING {
            self.forget(stage, piece.id);
            return Err(TornState);
        }
        part.extend_from_slice(data);
        self.n_bytes += data.len();
        if data.len() == MAX_JOURNAL_BYTES {
            return Ok(None);
        }
        let whole = self.parts.remove(&key).unwrap_or_default();
        self.n_bytes -= whole.len();
        Ok(Some(whole))
    }

    /// Drops the pieces of a state so far.
    pub(crate) fn forget(&mut self, stage: u16, id: u64) {
        let part = self.parts.remove(&(stage, id));
        self.n_bytes -= part.map_or(0, |part| part.len());
    }
}
