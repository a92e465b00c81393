//! The state of sequences, in the blocks that the ledger ([`seqs`](crate::seqs)) gives them.
//!
//! One arena per group of attention layers with the same retention. A block holds [`BLOCK_LEN`]
//! positions of every layer of its group:
//!
//! ```text
//! block:  layer 0 K [n_kv_heads], each BLOCK_LEN rows | layer 0 V [same] | layer 1 K | …
//! ```
//! A layer whose keys are the values has no V. Behind V of a layer with an indexer are its keys,
//! `[BLOCK_LEN, d]`: at the last position of a block of the indexer that of the block, elsewhere
//! that of the position.
//!
//! One more arena holds the states of recurrent layers. A block has the state of every such layer
//! behind one position, in f32:
//!
//! ```text
//! block:  layer 2 [state_floats] | layer 3 [state_floats] | …
//! ```
//!
//! This module knows positions and bytes; it does not know what the mixers compute from them.

mod arena;
mod cache;
mod coverage;
mod fill;
mod joined;
mod moved;
mod plan;
mod shift;
mod state;

pub use arena::{BlockPiece, KeyTurn, KvArena, StateBlocks, StoredKeys};
pub use atta_kernels::KvElem;
pub use cache::{CacheSize, KvCache, KvLayerPlace};
pub use coverage::StateCoverage;

use crate::seqs::BLOCK_LEN;
pub(crate) use arena::{Arena, StateArena};
pub(crate) use joined::{join, split};

/// Keys and values in the memory of this process.
pub(crate) type Cache = KvCache<Arena>;

/// Element types of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvType {
    /// Of keys.
    pub k: KvElem,
    /// Of values.
    pub v: KvElem,
    /// So many layers at each end of the model have Q8 where others have Q4: errors of the first
    /// ones pass through all the others, and those of the last ones are not made good any
    /// more.
    pub n_edge_layers: usize,
}

impl KvType {
    /// Keys and values in f32.
    pub const F32: Self = Self::of(KvElem::F32);
    /// Keys and values in f16, the default.
    pub const F16: Self = Self::of(KvElem::F16);
    /// Keys and values in 8 bits and a scale.
    pub const Q8: Self = Self::of(KvElem::Q8);
    /// Keys and values in 4 bits, a scale and a minimum; Q8 in the first and the last two layers.
    pub const Q4: Self = Self::of(KvElem::Q4);

    /// Keys and values of one type.
    pub const fn of(elem: KvElem) -> Self {
        Self {
            k: elem,
            v: elem,
            n_edge_layers: 2,
        }
    }

    /// The element type of keys of indexers, whose rounding could change the choice.
    pub fn index(&self) -> KvElem {
        match self.k {
            KvElem::F32 => KvElem::F32,
            KvElem::F16 | KvElem::Q8 | KvElem::Q4 => KvElem::F16,
        }
    }

    /// The element types of keys and values in layer `l` of `n_layers`.
    pub fn of_layer(&self, l: usize, n_layers: usize) -> [KvElem; 2] {
        let is_edge = l < self.n_edge_layers || l + self.n_edge_layers >= n_layers;
        [self.k, self.v].map(|elem| {
            if is_edge && elem == KvElem::Q4 {
                KvElem::Q8
            } else {
                elem
            }
        })
    }
}

impl Default for KvType {
    fn default() -> Self {
        Self::F16
    }
}
