//! How much of a model stays in memory, and how many bytes that takes: arithmetic for the memory
//! plan, before anything is allocated.

use super::chunk::{Chunks, expert_len};
use crate::{Plan, ReadMethod, RowTable};

/// How much of a model stays in memory, and in what chunks the rest is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidencyPolicy {
    /// The approximate size of a chunk, bytes; `None`: every group is one chunk and stays.
    pub chunk_bytes: Option<usize>,
    /// Bytes of chunks that stay.
    pub pinned_bytes: u64,
    /// Chunks that can be in memory beside those, in use or read ahead; at least one if not all
    /// chunks stay.
    pub n_slots: usize,
    /// Experts of each layer that can be in memory.
    pub n_experts: usize,
    /// Experts beside those, of the layers that a prompt is at; for half of them those of the next
    /// layer are read while one computes.
    pub n_moving: usize,
    /// How bytes are read; `None`: by the first method that works.
    pub method: Option<ReadMethod>,
}

impl ResidencyPolicy {
    /// The whole model stays in memory.
    pub fn whole() -> Self {
        Self {
            chunk_bytes: None,
            pinned_bytes: u64::MAX,
            n_slots: 0,
            n_experts: usize::MAX,
            n_moving: 0,
            method: None,
        }
    }
}

/// The memory that a policy takes for a model, and the bytes that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidencyBytes {
    /// Bytes of the chunks that stay.
    pub pinned: u64,
    /// Bytes of the slots of the read-ahead ring.
    pub ring: u64,
    /// Bytes of the expert caches.
    pub experts: u64,
    /// Bytes that one pass with the head reads.
    pub read_per_pass: u64,
    /// Bytes of all chunks.
    pub all: u64,
    /// Bytes of one more expert in every layer with experts.
    pub per_expert: u64,
    /// Bytes of the largest expert.
    pub largest_expert: u64,
    /// The most experts of a layer.
    pub n_experts: usize,
}

impl ResidencyBytes {
    /// Computes the bytes of a policy for a model.
    pub fn of(plan: &Plan, policy: &ResidencyPolicy) -> Self {
        let chunks = Chunks::new(plan, policy.chunk_bytes);
        let is_pinned = chunks.pin(policy.pinned_bytes);
        let sum = |pinned: bool| {
            let chunks = chunks
                .list
                .iter()
                .zip(&is_pinned)
                .filter(|(_, p)| **p == pinned);
            chunks.map(|(chunk, _)| chunk.len as u64).sum::<u64>()
        };
        let experts = plan
            .experts
            .iter()
            .map(|tables| (expert_len(tables) as u64, n_experts(tables)));
        let cache_bytes = |(len, n): (u64, usize)| len * n.min(policy.n_experts) as u64;
        let largest_expert = largest_expert(plan) as u64;
        Self {
            pinned: sum(true),
            ring: chunks.largest(&is_pinned) as u64 * policy.n_slots.max(1) as u64,
            experts: experts.clone().map(cache_bytes).sum::<u64>()
                + largest_expert * policy.n_moving as u64,
            read_per_pass: sum(false),
            all: chunks.bytes(),
            largest_expert,
            per_expert: experts.clone().map(|(len, _)| len).sum(),
            n_experts: experts.map(|(_, n)| n).max().unwrap_or(0),
        }
    }

    /// Everything that is allocated, bytes.
    pub fn memory(&self) -> u64 {
        self.pinned
            .saturating_add(self.ring)
            .saturating_add(self.experts)
    }
}

/// Experts of a layer whose matrices are in these tables.
pub(super) fn n_experts(tables: &[RowTable]) -> usize {
    tables.iter().map(RowTable::n_rows).min().unwrap_or(0) as usize
}

/// The size of a slot for any expert of any layer, bytes.
pub(super) fn largest_expert(plan: &Plan) -> usize {
    let experts = plan.experts.iter().map(|tables| expert_len(tables));
    experts.max().unwrap_or(0)
}
