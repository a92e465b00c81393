//! Reference-counted block allocator of one group. Knows block numbers, not their contents.

/// Blocks of a group.
pub(super) struct Blocks {
    /// Reference count of each block.
    ref_counts: Vec<u32>,
    /// Free blocks; the last one freed is reused first, since it may still be in the CPU cache.
    free: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(n_blocks: usize) -> Self {
        Self {
            ref_counts: vec![0; n_blocks],
            free: (0..n_blocks as u32).rev().collect(),
        }
    }

    /// Reference count of each block.
    #[cfg(test)]
    pub(super) fn ref_counts(&self) -> &[u32] {
        &self.ref_counts
    }

    pub(super) fn n_blocks(&self) -> usize {
        self.ref_counts.len()
    }

    pub(super) fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Allocates a block.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.ref_counts[block as usize] = 1;
        Some(block)
    }

    /// Adds a reference.
    pub(super) fn share(&mut self, block: u32) {
        self.ref_counts[block as usize] += 1;
    }

    /// Drops a reference; frees the block with the last one.
    pub(super) fn release(&mut self, block: u32) {
        let ref_counts = &mut self.ref_counts[block as usize];
        *ref_counts -= 1;
        if *ref_counts == 0 {
            self.free.push(block);
        }
    }

    /// Number of references to a block.
    pub(super) fn ref_count(&self, block: u32) -> u32 {
        self.ref_counts[block as usize]
    }

    pub(super) fn is_shared(&self, block: u32) -> bool {
        self.ref_count(block) > 1
    }

    /// Returns the block itself if it is not shared, else a new block that the caller must copy it
    /// to. `None`: no free block.
    pub(super) fn own(&mut self, block: u32) -> Option<u32> {
        if !self.is_shared(block) {
            return Some(block);
        }
        let own = self.allocate()?;
        self.release(block);
        Some(own)
    }
}
