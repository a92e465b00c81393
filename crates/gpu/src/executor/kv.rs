//! Blocks of keys and values on a GPU, in the layout of the CPU's: so a state that is exported is
//! a copy.
//!
//! Copies of blocks are queued, and performed before anything reads or writes: a fork that is
//! written to costs no submission of its own.

use super::buffer::OwnBuffer;
use super::kernels::Kernels;
use super::states::GpuStates;
use crate::{Bindings, CopyBlocks, Dispatch, Error, GpuKv, MoveKeys, SharedHost};
use atta_kernels::KvRole;
use atta_model::{BlockPiece, Error as ModelError, KeyTurn, KvArena, StoredKeys, seqs::BLOCK_LEN};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// Pairs of a dispatch.
const MAX_PAIRS: usize = 4096;

/// The blocks of one group.
#[derive(Debug)]
pub(super) struct GpuArena {
    host: SharedHost,
    kernels: Arc<Kernels>,
    buffer: OwnBuffer,
    bindings: Bindings,
    block_bytes: usize,
    /// Words of the buffer of tables.
    n_tables: usize,
    copies: RefCell<Vec<ByteCopy>>,
}

/// A copy of bytes of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteCopy {
    from: u64,
    to: u64,
    n: u64,
}

impl ByteCopy {
    /// Whether it copies whole words.
    fn has_words(&self) -> bool {
        [self.from, self.to, self.n]
            .iter()
            .all(|at| at.is_multiple_of(4))
    }
}

/// What arenas of an executor share.
pub(super) struct ArenaParts<'a> {
    pub(super) host: &'a SharedHost,
    pub(super) kernels: &'a Arc<Kernels>,
    /// The executor's buffers; that of keys and values is the arena's own.
    pub(super) bindings: Bindings,
    pub(super) n_tables: usize,
}

impl GpuArena {
    /// Blocks of zeros.
    pub(super) fn new(
        parts: &ArenaParts<'_>,
        n_blocks: usize,
        block_bytes: usize,
    ) -> Result<Self, Error> {
        let bytes = (n_blocks as u64).saturating_mul(block_bytes as u64);
        if bytes / 4 > u64::from(u32::MAX) {
            let most = 4 * u64::from(u32::MAX);
            return Err(Error::BufferSize { bytes, most });
        }
        let buffer = OwnBuffer::new(parts.host, bytes)?;
        Ok(Self {
            host: parts.host.clone(),
            kernels: Arc::clone(parts.kernels),
            bindings: Bindings {
                kv: buffer.id(),
                ..parts.bindings
            },
            buffer,
            block_bytes,
            n_tables: parts.n_tables,
            copies: RefCell::default(),
        })
    }

    /// The buffer of keys and values.
    pub(super) fn buffer(&self) -> crate::BufferId {
        self.buffer.id()
    }

    /// Words of a block.
    pub(super) fn block_words(&self) -> u32 {
        (self.block_bytes / 4) as u32
    }

    /// A byte of a block, counted in the buffer.
    fn byte(&self, block: u32, at: usize) -> u64 {
        u64::from(block) * self.block_bytes as u64 + at as u64
    }

    /// Performs the queued copies.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let copies = self.copies.take();
        let most = MAX_PAIRS.min(self.n_tables / 2).max(1);
        let mut rest = &copies[..];
        while let Some(first) = rest.first() {
            let n = match first.has_words() {
                true => n_independent(rest, self.block_bytes as u64).min(most),
                false => 1,
            };
            let (now, later) = rest.split_at(n);
            match first.has_words() {
                true => self.copy(now)?,
                false => self.copy_bytes(first)?,
            }
            rest = later;
        }
        Ok(())
    }

    /// Copies bytes that are no whole words, as rows of 8 bits may be, by way of the CPU.
    fn copy_bytes(&self, copy: &ByteCopy) -> Result<(), Error> {
        let range = copy.from..copy.from + copy.n;
        let bytes = self.read_bytes(std::slice::from_ref(&range))?;
        self.write_bytes(copy.to, &bytes)
    }

    /// Bytes of some ranges, one behind the other.
    fn read_bytes(&self, ranges: &[Range<u64>]) -> Result<Vec<u8>, Error> {
        let words = |range: &Range<u64>| range.start / 4 * 4..range.end.next_multiple_of(4);
        let words: Vec<Range<u64>> = ranges.iter().map(words).collect();
        let n_bytes: u64 = words.iter().map(|range| range.end - range.start).sum();
        let mut out = vec![0; n_bytes as usize];
        let mut host = self.host.lock();
        host.read_ranges(self.buffer.id(), &words, &mut out)?;
        if words == ranges {
            return Ok(out);
        }
        let mut rest = &out[..];
        let mut kept = Vec::new();
        for (words, range) in words.iter().zip(ranges) {
            let (here, after) = rest.split_at((words.end - words.start) as usize);
            let first = (range.start - words.start) as usize;
            kept.extend_from_slice(&here[first..first + (range.end - range.start) as usize]);
            rest = after;
        }
        Ok(kept)
    }

    /// Writes bytes, and the words that they are a part of.
    fn write_bytes(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = at + bytes.len() as u64;
        let words = at / 4 * 4..end.next_multiple_of(4);
        if words == (at..end) {
            return self.host.lock().write(self.buffer.id(), at, bytes);
        }
        let mut all = self.read_bytes(std::slice::from_ref(&words))?;
        all[(at - words.start) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.host.lock().write(self.buffer.id(), words.start, &all)
    }

    /// Performs copies of words that do not read what others of them write.
    fn copy(&self, copies: &[ByteCopy]) -> Result<(), Error> {
        let mut copies = copies.to_vec();
        copies.sort_by_key(|copy| copy.n);
        let pairs = copies.iter().flat_map(|copy| [copy.from, copy.to]);
        let pairs = pairs.map(|byte| (byte / 4) as u32);
        let pairs: Vec<u8> = pairs.flat_map(u32::to_le_bytes).collect();
        let mut at = 0;
        let dispatches = copies.chunk_by(|a, b| a.n == b.n).map(|same| {
            let copy = CopyBlocks {
                pairs: at,
                n_pairs: same.len() as u32,
                block_words: (same[0].n / 4) as u32,
            };
            at += 2 * copy.n_pairs;
            copy.dispatch(self.kernels.copy_blocks, self.bindings)
        });
        let dispatches: Vec<Dispatch> = dispatches.collect();
        let mut host = self.host.lock();
        host.write(self.bindings.tables, 0, &pairs)?;
        host.submit(&dispatches)
    }

    fn read(&self, pieces: &[BlockPiece]) -> Result<Vec<u8>, Error> {
        self.flush()?;
        let range = |piece: &BlockPiece| {
            let Range { start, end } = piece.bytes;
            self.byte(piece.block, start)..self.byte(piece.block, end)
        };
        self.read_bytes(&pieces.iter().map(range).collect::<Vec<_>>())
    }

    fn turn(&self, keys: &StoredKeys<'_>, turn: &KeyTurn<'_>) -> Result<(), Error> {
        let Range { start, end } = keys.positions;
        let kv = GpuKv::of(keys.rows.elem, keys.rows.d);
        let Some(kv) = kv.filter(|_| start < end) else {
            return Ok(());
        };
        self.flush()?;
        let blocks = &keys.blocks[start / BLOCK_LEN..end.div_ceil(BLOCK_LEN)];
        let n_angles = turn.cos_sin.len();
        let angles = turn.cos_sin.iter().map(|x| x.to_bits());
        let firsts = blocks.iter().map(|&block| block * self.block_words());
        let words = angles.chain(firsts).flat_map(u32::to_le_bytes);
        let moved = MoveKeys {
            blocks: n_angles as u32,
            n_blocks: blocks.len() as u32,
            block_len: BLOCK_LEN as u32,
            kv,
            k: (keys.at / 4) as u32,
            n_kv_heads: keys.n_kv_heads as u32,
            d_head: keys.rows.d as u32,
            angles: 0,
            d_rope: n_angles as u32,
            pairing: turn.pairing,
            n_kept: (start % BLOCK_LEN) as u32,
            value_from: match keys.rows.role {
                KvRole::Both { value_from } => Some(value_from as u32),
                KvRole::Key | KvRole::Value => None,
            },
        };
        let mut host = self.host.lock();
        host.write(self.bindings.tables, 0, &words.collect::<Vec<u8>>())?;
        host.submit(&[moved.dispatch(self.kernels.move_keys, self.bindings)])
    }
}

/// How many of the first copies have whole words, and neither read nor write a block that one of
/// them writes, but for other words of it.
fn n_independent(copies: &[ByteCopy], block_bytes: u64) -> usize {
    let block = |byte: u64| byte / block_bytes.max(1);
    let mut read = HashSet::new();
    let mut written = HashSet::new();
    let is_free = |copy: &&ByteCopy| {
        let [from, to] = [block(copy.from), block(copy.to)];
        let is_free = !written.contains(&from) && !read.contains(&to) && from != to;
        read.insert(from);
        written.insert(to);
        is_free && copy.has_words()
    };
    copies.iter().take_while(is_free).count().max(1)
}

impl KvArena for GpuArena {
    type States = GpuStates;

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn copy_to(&mut self, from: u32, bytes: Range<usize>, to: u32, at: usize) {
        let copy = ByteCopy {
            from: self.byte(from, bytes.start),
            to: self.byte(to, at),
            n: bytes.len() as u64,
        };
        self.copies.get_mut().push(copy);
    }

    fn export(&self, pieces: &[BlockPiece], out: &mut dyn Write) -> Result<(), ModelError> {
        out.write_all(&self.read(pieces)?)
            .map_err(ModelError::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), ModelError> {
        self.flush()?;
        Ok(self.write_bytes(self.byte(block, at), bytes)?)
    }

    fn turn_keys(&mut self, keys: &StoredKeys<'_>, turn: &KeyTurn<'_>) -> Result<(), ModelError> {
        Ok(self.turn(keys, turn)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_read_what_others_write_wait_for_them() {
        let copy = |from: u64, to: u64| ByteCopy {
            from: 40 * from,
            to: 40 * to + 12,
            n: 8,
        };
        let all = [copy(0, 1), copy(0, 2), copy(3, 1), copy(2, 4), copy(5, 0)];
        assert_eq!(n_independent(&all, 40), 3);
        assert_eq!(n_independent(&all[3..], 40), 2);
        assert_eq!(n_independent(&[copy(1, 1)], 40), 1);
        let odd = ByteCopy { n: 6, ..copy(6, 7) };
        assert_eq!(n_independent(&[copy(0, 1), odd], 40), 1);
    }
}
