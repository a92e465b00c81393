//! Counted blocks of one group: taken, shared, given back. What is in them lies elsewhere.

/// The blocks of a group.
pub(super) struct Blocks {
    /// How many sequences hold each block.
    holders: Vec<u32>,
    /// Blocks that nobody holds; the last one given back is taken first, since it may still be in a cache.
    free: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(n_blocks: usize) -> Self {
        Self { holders: vec![0; n_blocks], free: (0..n_blocks as u32).rev().collect() }
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

    /// The block itself if it has one holder; else another that has, into which what is in it has to be copied, and the old one has
    /// one holder less.
    pub(super) fn own(&mut self, block: u32) -> Option<u32> {
        if !self.is_shared(block) {
            return Some(block);
        }
        let own = self.take()?;
        self.give_back(block);
        Some(own)
    }
}
