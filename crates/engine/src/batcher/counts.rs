//! What a batcher has done.

/// What a batcher has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps.
    pub n_steps: u64,
    /// Tokens of prompts that were evaluated.
    pub n_read: u64,
    /// Tokens of prompts that a kept or a running sequence had evaluated.
    pub n_reused: u64,
    /// Tokens of prompts that came from the disk.
    pub n_restored: u64,
    /// Tokens that were written.
    pub n_written: u64,
    /// Jobs that lost their place for want of room, and were read again later.
    pub n_preempted: u64,
    /// Kept sequences that were given up for want of room.
    pub n_evicted: u64,
}

impl Counts {
    /// Of two batchers.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            n_steps: self.n_steps + other.n_steps,
            n_read: self.n_read + other.n_read,
            n_reused: self.n_reused + other.n_reused,
            n_restored: self.n_restored + other.n_restored,
            n_written: self.n_written + other.n_written,
            n_preempted: self.n_preempted + other.n_preempted,
            n_evicted: self.n_evicted + other.n_evicted,
        }
    }
}
