//! Counted blocks of one arena: taken, shared, given back.

/// An arena of equal blocks.
pub(super) struct Blocks {
    /// All blocks, one after another. Zeroed by the allocator, so that untouched blocks cost no physical memory.
    arena: Vec<u8>,
    block_bytes: usize,
    /// How many sequences hold each block.
    holders: Vec<u32>,
    /// Blocks that nobody holds; the last one given back is taken first, since it may still be in a cache.
    free: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(n_blocks: usize, block_bytes: usize) -> Self {
        Self {
            arena: vec![0; n_blocks * block_bytes],
            block_bytes,
            holders: vec![0; n_blocks],
            free: (0..n_blocks as u32).rev().collect(),
        }
    }

    pub(super) fn arena(&self) -> &[u8] {
        &self.arena
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// How many sequences hold each block.
    #[cfg(test)]
    pub(super) fn holders(&self) -> &[u32] {
        &self.holders
    }

    pub(super) fn n_blocks(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn n_free(&self) -> usize {
        self.free.len()
    }

    /// A block of one's own.
    pub(super) fn take(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.holders[block as usize] = 1;
        Some(block)
    }

    /// One more holder.
    pub(super) fn share(&mut self, block: u32) {
        self.holders[block as usize] += 1;
    }

    /// One holder less; the last one frees it.
    pub(super) fn give_back(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(block);
        }
    }

    pub(super) fn is_shared(&self, block: u32) -> bool {
        self.holders[block as usize] > 1
    }

    /// The block itself if it has one holder; else a copy that does, and the old one has one holder less.
    pub(super) fn own(&mut self, block: u32) -> Option<u32> {
        if !self.is_shared(block) {
            return Some(block);
        }
        let own = self.take()?;
        let (from, to) = (block as usize * self.block_bytes, own as usize * self.block_bytes);
        self.arena.copy_within(from..from + self.block_bytes, to);
        self.give_back(block);
        Some(own)
    }

    /// Copies these bytes of a block to the same place of another.
    pub(super) fn copy(&mut self, from: u32, to: u32, bytes: std::ops::Range<usize>) {
        let start = from as usize * self.block_bytes;
        self.arena.copy_within(start + bytes.start..start + bytes.end, to as usize * self.block_bytes + bytes.start);
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let at = block as usize * self.block_bytes;
        &mut self.arena[at..at + self.block_bytes]
    }

    pub(super) fn block(&self, block: u32) -> &[u8] {
        let at = block as usize * self.block_bytes;
        &self.arena[at..at + self.block_bytes]
    }
}
