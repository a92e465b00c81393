//! How much of a model is held, and what that takes: arithmetic that a planner does before anything
//! is allocated.

use super::cut::{Pieces, expert_len};
use crate::{Method, Plan, RowTable};

/// How much of a model is held in memory, and in what portions the rest is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// About how large a piece is, bytes; `None`: nothing is cut, and everything is held.
    pub piece_bytes: Option<usize>,
    /// Bytes of pieces that stay.
    pub pinned_bytes: u64,
    /// Pieces that can be in memory beside those, in use or read ahead; at least one where there
    /// are more pieces.
    pub n_slots: usize,
    /// Experts of each layer that can be in memory.
    pub n_experts: usize,
    /// How bytes are read; `None`: by the first method that works.
    pub method: Option<Method>,
}

impl Holding {
    /// Everything.
    pub fn whole() -> Self {
        Self {
            piece_bytes: None,
            pinned_bytes: u64::MAX,
            n_slots: 0,
            n_experts: usize::MAX,
            method: None,
        }
    }
}

/// What a holding of a model takes and gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the pieces that stay.
    pub pinned: u64,
    /// Bytes of the slots of the ring.
    pub ring: u64,
    /// Bytes of the places for experts.
    pub experts: u64,
    /// Bytes that one sweep with the head reads.
    pub read_per_sweep: u64,
    /// Bytes of all pieces.
    pub all: u64,
    /// Bytes of one more expert in every layer that has some.
    pub per_expert: u64,
    /// Experts of a layer, at most.
    pub n_experts: usize,
}

impl Sizes {
    /// Of a model that is held so.
    pub fn of(plan: &Plan, holding: &Holding) -> Self {
        let pieces = Pieces::new(plan, holding.piece_bytes);
        let is_pinned = pieces.pin(holding.pinned_bytes);
        let sum = |pinned: bool| {
            let pieces = pieces
                .list
                .iter()
                .zip(&is_pinned)
                .filter(|(_, p)| **p == pinned);
            pieces.map(|(piece, _)| piece.len as u64).sum::<u64>()
        };
        let shelves = plan
            .experts
            .iter()
            .map(|tables| (expert_len(tables) as u64, n_experts(tables)));
        let places = |(len, n): (u64, usize)| len * n.min(holding.n_experts) as u64;
        Self {
            pinned: sum(true),
            ring: pieces.largest(&is_pinned) as u64 * holding.n_slots.max(1) as u64,
            experts: shelves.clone().map(places).sum(),
            read_per_sweep: sum(false),
            all: pieces.bytes(),
            per_expert: shelves.clone().map(|(len, _)| len).sum(),
            n_experts: shelves.map(|(_, n)| n).max().unwrap_or(0),
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
