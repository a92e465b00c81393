//! The contents of the blocks of one group: bytes of keys and values, or recurrent states.
//!
//! Bytes of keys and values may lie on a device: what the cache does with them, whether it copies,
//! exports or shifts, are the few operations of [`KvArena`].

use std::{io::Write, ops::Range};

use atta_kernels::{Kernels, KvRows, RopePairing};

use super::BLOCK_LEN;
use crate::Error;

/// The blocks of one group of keys and values, in this process or on a device.
pub trait KvArena {
    /// The blocks of recurrent states beside it.
    type States: StateBlocks;

    /// Bytes of a block.
    fn block_bytes(&self) -> usize;

    /// Copies bytes of a block to those of another from byte `at` on, behind all changes before.
    fn copy_to(&mut self, from: u32, bytes: Range<usize>, to: u32, at: usize);

    /// Writes bytes of blocks, one piece behind the other.
    ///
    /// # Errors
    /// [`Error::Export`] of the writer, or of a device that is lost.
    fn export(&self, pieces: &[BlockPiece], out: &mut dyn Write) -> Result<(), Error>;

    /// Replaces bytes of a block from byte `at` on.
    ///
    /// # Errors
    /// A device that is lost.
    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), Error>;

    /// Turns the keys of a layer at some positions.
    ///
    /// # Errors
    /// A device that is lost.
    fn turn_keys(&mut self, keys: &StoredKeys<'_>, turn: &KeyTurn<'_>) -> Result<(), Error>;
}

/// The blocks of recurrent states, in this process or on a device: f32 each.
pub trait StateBlocks {
    /// Writes some floats of a block, little-endian.
    ///
    /// # Errors
    /// [`Error::Export`] of the writer, or of a device that is lost.
    fn export(&self, block: u32, floats: Range<usize>, out: &mut dyn Write) -> Result<(), Error>;

    /// Replaces floats of a block from float `at` on, given as in [`export`](Self::export).
    ///
    /// # Errors
    /// A device that is lost.
    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), Error>;
}

/// Some bytes of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPiece {
    /// The block.
    pub block: u32,
    /// Its bytes.
    pub bytes: Range<usize>,
}

/// The keys of a layer at some positions of a sequence.
#[derive(Clone, Debug)]
pub struct StoredKeys<'a> {
    /// The blocks of the sequence; those of the positions are not shared.
    pub blocks: &'a [u32],
    /// The positions.
    pub positions: Range<usize>,
    /// First byte of the layer's keys in a block: of each head 32 rows.
    pub at: usize,
    /// Heads of keys.
    pub n_kv_heads: usize,
    /// How the rows of a head are stored.
    pub rows: KvRows,
}

/// A rotation, the same for all keys of a layer that move as far.
#[derive(Clone, Copy, Debug)]
pub struct KeyTurn<'a> {
    /// Of the first elements of a head, `[d_rope / 2, (cos, sin)]`.
    pub cos_sin: &'a [f32],
    /// Which elements form a pair.
    pub pairing: RopePairing,
}

/// Equal blocks, one after another, in the memory of this process.
pub(crate) struct Arena {
    /// Zeroed by the allocator, so that untouched blocks cost no physical memory.
    bytes: Vec<u8>,
    block_bytes: usize,
    kernels: Kernels,
}

impl Arena {
    pub(crate) fn new(n_blocks: usize, block_bytes: usize, kernels: Kernels) -> Self {
        Self {
            bytes: vec![0; n_blocks * block_bytes],
            block_bytes,
            kernels,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let at = block as usize * self.block_bytes;
        &mut self.bytes[at..at + self.block_bytes]
    }

    pub(super) fn block(&self, block: u32) -> &[u8] {
        let at = block as usize * self.block_bytes;
        &self.bytes[at..at + self.block_bytes]
    }
}

impl KvArena for Arena {
    type States = StateArena;

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn copy_to(&mut self, from: u32, bytes: Range<usize>, to: u32, at: usize) {
        let start = from as usize * self.block_bytes;
        self.bytes.copy_within(
            start + bytes.start..start + bytes.end,
            to as usize * self.block_bytes + at,
        );
    }

    fn export(&self, pieces: &[BlockPiece], out: &mut dyn Write) -> Result<(), Error> {
        let mut all = pieces
            .iter()
            .map(|piece| &self.block(piece.block)[piece.bytes.clone()]);
        all.try_for_each(|bytes| out.write_all(bytes))
            .map_err(Error::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.block_mut(block)[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn turn_keys(&mut self, keys: &StoredKeys<'_>, turn: &KeyTurn<'_>) -> Result<(), Error> {
        let kernels = self.kernels;
        let head_bytes = BLOCK_LEN * keys.rows.row_bytes();
        let mut key = vec![0.0; keys.rows.d];
        for pos in keys.positions.clone() {
            let inside = pos % BLOCK_LEN;
            let block = self.block_mut(keys.blocks[pos / BLOCK_LEN]);
            let heads = block[keys.at..].chunks_exact_mut(head_bytes);
            for rows in heads.take(keys.n_kv_heads) {
                kernels.load_kv(keys.rows, inside, rows, &mut key);
                let turned = &mut key[..turn.cos_sin.len()];
                kernels.rope(turned, turn.cos_sin, turn.pairing);
                kernels.store_kv(&key, keys.rows, inside, rows);
            }
        }
        Ok(())
    }
}

/// Blocks of recurrent states, one after another, all in f32.
pub(crate) struct StateArena {
    /// Zeroed by the allocator, so that untouched blocks cost no physical memory.
    floats: Vec<f32>,
    block_floats: usize,
}

impl StateArena {
    pub(crate) fn new(n_blocks: usize, block_floats: usize) -> Self {
        Self {
            floats: vec![0.0; n_blocks * block_floats],
            block_floats,
        }
    }

    pub(super) fn block(&self, block: u32) -> &[f32] {
        &self.floats[block as usize * self.block_floats..][..self.block_floats]
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [f32] {
        &mut self.floats[block as usize * self.block_floats..][..self.block_floats]
    }

    /// A part of a block, and the same part of another one, to be written.
    pub(super) fn pair(&mut self, from: u32, to: u32, part: Range<usize>) -> (&[f32], &mut [f32]) {
        let at = |block: u32| {
            let at = block as usize * self.block_floats;
            at + part.start..at + part.end
        };
        let parts = self.floats.get_disjoint_mut([at(from), at(to)]);
        let [from, to] = parts.expect("a batch never overwrites the state that it starts from");
        (from, to)
    }

    /// Copies floats from element `start` of one block to the elements `to` of another.
    pub(super) fn copy(&mut self, from_block: u32, start: usize, to_block: u32, to: Range<usize>) {
        let from = from_block as usize * self.block_floats + start;
        let at = to_block as usize * self.block_floats + to.start;
        self.floats.copy_within(from..from + to.len(), at);
    }
}

impl StateBlocks for StateArena {
    fn export(&self, block: u32, floats: Range<usize>, out: &mut dyn Write) -> Result<(), Error> {
        let mut floats = self.block(block)[floats].iter();
        floats
            .try_for_each(|x| out.write_all(&x.to_le_bytes()))
            .map_err(Error::Export)
    }

    fn fill(&mut self, block: u32, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let floats = self.block_mut(block)[at..].iter_mut();
        floats
            .zip(bytes.as_chunks().0)
            .for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        Ok(())
    }
}
