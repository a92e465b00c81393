//! The contents of the blocks of one group: bytes of keys and values, or recurrent states.

use std::ops::Range;

/// Equal blocks, one after another.
pub(super) struct Arena {
    /// Zeroed by the allocator, so that untouched blocks cost no physical memory.
    bytes: Vec<u8>,
    block_bytes: usize,
}

impl Arena {
    pub(super) fn new(n_blocks: usize, block_bytes: usize) -> Self {
        Self {
            bytes: vec![0; n_blocks * block_bytes],
            block_bytes,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Copies these bytes of a block to the same place of another.
    pub(super) fn copy(&mut self, from: u32, to: u32, bytes: Range<usize>) {
        let at = bytes.start;
        self.copy_to(from, bytes, to, at);
    }

    /// Copies these bytes of a block to those of another from byte `at` on.
    pub(super) fn copy_to(&mut self, from: u32, bytes: Range<usize>, to: u32, at: usize) {
        let start = from as usize * self.block_bytes;
        self.bytes.copy_within(
            start + bytes.start..start + bytes.end,
            to as usize * self.block_bytes + at,
        );
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

/// Blocks of recurrent states, one after another, all in f32.
pub(super) struct StateArena {
    /// Zeroed by the allocator, so that untouched blocks cost no physical memory.
    floats: Vec<f32>,
    block_floats: usize,
}

impl StateArena {
    pub(super) fn new(n_blocks: usize, block_floats: usize) -> Self {
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
