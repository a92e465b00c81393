//! Sends bytes of a model's files to another node, as frames of kind `part`.
//!
//! ```text
//! id  INDEX   the indices of all files: u32 number, then of each u64 length and its bytes
//! id  i       bytes of file i, inside of one tensor, at their offset
//! ```
//! A receiver first asks for the beginning, that is the index and the headers, and then for ranges.
//! The sender sends what it has of a wish, in order, and leaves out what it lacks; the receiver
//! knows the missing ranges.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{HEADER, Part, PartError, PartStorage, Presence};
use crate::wire::{
    Dtype, Frame, FrameKind, Header, Limits, MAX_PART_BYTES, Piece, message::Digest,
};

/// The id of pieces of the index.
pub(super) const INDEX: u64 = u64::MAX;

/// Most ranges of a wish, so that its message is small.
pub const MAX_RANGES: usize = 256;

/// Most names of states in a wish.
pub const MAX_STATES: usize = 256;

/// The number in the place of a stage of connections that bring parts.
pub const PART_STAGE: u16 = 1;

/// Bytes of one file of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRange {
    /// Number of the file, from 0.
    pub file: u16,
    /// First byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
}

impl FileRange {
    pub(super) fn bytes(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// What a node asks of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PartWish {
    /// The index and the headers of all files.
    Beginning,
    /// The bytes of tensors in these ranges, at most [`MAX_RANGES`].
    Ranges(Vec<FileRange>),
    /// States of texts by their names, at most [`MAX_STATES`].
    States(Vec<Digest>),
}

/// The number in the place of a ring's, since parts belong to none.
pub(crate) const NO_RING: u64 = 0;

/// What frames of a connection that brings parts may hold.
pub fn part_limits() -> Limits {
    Limits {
        ring: NO_RING,
        n_stages: PART_STAGE,
        n_batch: 1,
        n_seqs: 1,
        n_ctx: 1,
        d_row: 1,
        dtype: Dtype::F32,
    }
}

/// Sends what these files have of a wish; `send` may wait. The result is the number of bytes.
///
/// # Errors
/// A file that cannot be read, and those of `send`.
pub fn send_parts<S: PartStorage, E: From<PartError>>(
    files: &[Part<S>],
    wish: &PartWish,
    mut send: impl FnMut(Frame) -> Result<(), E>,
) -> Result<u64, E> {
    let mut n_sent = 0;
    let mut pass_on = |id: u64, offset: u64, data: Vec<u8>| {
        n_sent += data.len() as u64;
        send(part_frame(id, offset, data))
    };
    let headers = |(i, file): (u16, &Part<S>)| FileRange {
        file: i,
        start: 0,
        end: file.index().tensors()[0].bytes,
    };
    let ranges: Vec<FileRange> = match wish {
        PartWish::Ranges(ranges) => ranges.clone(),
        PartWish::States(_) => Vec::new(),
        PartWish::Beginning => {
            let index = index_bytes(files);
            let pieces = index.chunks(MAX_PART_BYTES).zip(0..);
            for (piece, i) in pieces {
                pass_on(INDEX, i * MAX_PART_BYTES as u64, piece.to_vec())?;
            }
            (0..).zip(files).map(headers).collect()
        }
    };
    for range in ranges {
        let Some(file) = files.get(usize::from(range.file)) else {
            continue;
        };
        for tensor in file.index().tensors() {
            let wanted = intersection(&tensor.range(), &range.bytes());
            if tensor.presence == Presence::Absent {
                continue;
            }
            for start in wanted.clone().step_by(MAX_PART_BYTES) {
                let n = (wanted.end - start).min(MAX_PART_BYTES as u64) as usize;
                let mut data = vec![0; n];
                file.serve(start, &mut data)?;
                pass_on(range.file.into(), start, data)?;
            }
        }
    }
    Ok(n_sent)
}

fn intersection(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// The indices of all files, with everything called absent: the sender's state is not the
/// receiver's business.
fn index_bytes<S: PartStorage>(files: &[Part<S>]) -> Vec<u8> {
    let mut bytes = (files.len() as u32).to_le_bytes().to_vec();
    for file in files {
        let index = file.index().emptied().to_bytes();
        bytes.extend((index.len() as u64).to_le_bytes());
        bytes.extend(index);
    }
    bytes
}

/// A frame with bytes of a file, or of whatever else is asked for by a wish.
pub(crate) fn part_frame(id: u64, offset: u64, data: Vec<u8>) -> Frame {
    let mut header = Header::new(FrameKind::Part);
    header.ring = NO_RING;
    header.stage = PART_STAGE;
    let mut frame = Frame::bare(header);
    frame.piece = Some(Piece {
        id,
        offset,
        len: data.len() as u32,
        seq: 0,
        first: 0,
        n: 0,
    });
    frame.data = data;
    frame
}

/// The name of the header in messages for people.
pub(super) fn shown(name: &str) -> &str {
    match name {
        HEADER => "the header",
        name => name,
    }
}
