//! Blocks of keys and values on a GPU, in the layout of the CPU's: so a state that is exported is
//! a copy.
//!
//! Copies of blocks are queued, and performed before anything reads or writes: a fork that is
//! written to costs no submission of its own.

use super::buffer::OwnBuffer;
use super::kernels::Kernels;
use crate::{Bindings, CopyBlocks, Dispatch, Error, GpuKv, MoveKeys, SharedHost};
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
    copies: RefCell<Vec<WordCopy>>,
}

/// A copy of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordCopy {
    from: u32,
    to: u32,
    n: u32,
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

    /// The first word of bytes of a block.
    fn word(&self, block: u32, byte: usize) -> u32 {
        block * self.block_words() + (byte / 4) as u32
    }

    /// Performs the queued copies.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let copies = self.copies.take();
        let most = MAX_PAIRS.min(self.n_tables / 2).max(1);
        let mut rest = &copies[..];
        while !rest.is_empty() {
            let n = n_independent(rest, self.block_words()).min(most);
            let (now, later) = rest.split_at(n);
            self.copy(now)?;
            rest = later;
        }
        Ok(())
    }

    /// Performs copies that do not read what others of them write.
    fn copy(&self, copies: &[WordCopy]) -> Result<(), Error> {
        let mut copies = copies.to_vec();
        copies.sort_by_key(|copy| copy.n);
        let pairs = copies.iter().flat_map(|copy| [copy.from, copy.to]);
        let pairs: Vec<u8> = pairs.flat_map(u32::to_le_bytes).collect();
        let mut at = 0;
        let dispatches = copies.chunk_by(|a, b| a.n == b.n).map(|same| {
            let copy = CopyBlocks {
                pairs: at,
                n_pairs: same.len() as u32,
                block_words: same[0].n,
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
            let first = u64::from(piece.block) * self.block_bytes as u64;
            first + piece.bytes.start as u64..first + piece.bytes.end as u64
        };
        let ranges: Vec<Range<u64>> = pieces.iter().map(range).collect();
        let mut out = vec![0; pieces.iter().map(|piece| piece.bytes.len()).sum()];
        self.host
            .lock()
            .read_ranges(self.buffer.id(), &ranges, &mut out)?;
        Ok(out)
    }

    fn turn(&self, keys: &StoredKeys<'_>, turn: &KeyTurn<'_>) -> Result<(), Error> {
        let Range { start, end } = keys.positions;
        let kv = GpuKv::of(keys.rows.elem);
        let Some(kv) = kv.filter(|_| start < end) else {
            return Ok(());
        };
        self.flush()?;
        let blocks = &keys.blocks[start / BLOCK_LEN..end.div_ceil(BLOCK_LEN)];
        let n_angles = turn.cos_sin.len();
        let angles = turn.cos_sin.iter().map(|x| x.to_bits());
        let blocks_words = blocks.iter().map(|&block| self.word(block, 0));
        let words = angles.chain(blocks_words).flat_map(u32::to_le_bytes);
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
        };
        let mut host = self.host.lock();
        host.write(self.bindings.tables, 0, &words.collect::<Vec<u8>>())?;
        host.submit(&[moved.dispatch(self.kernels.move_keys, self.bindings)])
    }
}

/// How many of the first copies neither read nor write a block that one of them writes, but for
/// other words of it.
fn n_independent(copies: &[WordCopy], block_words: u32) -> usize {
    let block = |word: u32| word / block_words.max(1);
    let mut read = HashSet::new();
    let mut written = HashSet::new();
    let is_free = |copy: &&WordCopy| {
        let [from, to] = [block(copy.from), block(copy.to)];
        let is_free = !written.contains(&from) && !read.contains(&to) && from != to;
        read.insert(from);
        written.insert(to);
        is_free
    };
    copies.iter().take_while(is_free).count().max(1)
}

impl KvArena for GpuArena {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn copy_to(&mut self, from: u32, bytes: Range<usize>, to: u32, at: usize) {
        let copy = WordCopy {
            from: self.word(from, bytes.start),
            to: self.word(to, at),
            n: (bytes.len() / 4) as u32,
        };
        self.copies.get_mut().push(copy);
    }

    fn export(&self, pieces: &[BlockPiece], out: &mut dyn Write) -> Result<(), ModelError> {
        out.write_all(&self.read(pieces)?)
            .map_err(ModelError::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), ModelError> {
        self.flush()?;
        let first = u64::from(block) * self.block_bytes as u64 + at as u64;
        Ok(self.host.lock().write(self.buffer.id(), first, bytes)?)
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
        let copy = |from, to| WordCopy {
            from: 10 * from,
            to: 10 * to + 3,
            n: 2,
        };
        let all = [copy(0, 1), copy(0, 2), copy(3, 1), copy(2, 4), copy(5, 0)];
        assert_eq!(n_independent(&all, 10), 3);
        assert_eq!(n_independent(&all[3..], 10), 2);
        assert_eq!(n_independent(&[copy(1, 1)], 10), 1);
    }
}
