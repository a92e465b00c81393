//! The state of sequences: keys and values in blocks, shared between sequences that share a past.
//!
//! One arena and one block table per *group* of layers with the same retention: layers with a window give blocks back while
//! global layers keep theirs. A block holds [`BLOCK_LEN`] positions of every layer of its group:
//!
//! ```text
//! block:  layer 0 K [n_kv_heads, BLOCK_LEN, d_head] | layer 0 V [same] | layer 1 K | …
//! ```
//!
//! Blocks are counted: a fork shares all blocks, and the first that writes into a shared one gets a copy of its own. This
//! module knows positions and bytes; it refuses to know what attention does with them.

mod blocks;
mod cache;
mod plan;
mod shift;
mod state;
mod table;

pub use atta_kernels::KvElem;
pub(crate) use cache::{Cache, CacheSize};

/// Positions per block. A prompt wastes half a block on average; 32 keeps that below 1 % of a context of 2,048.
pub(crate) const BLOCK_LEN: usize = 32;

/// Element types of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvType {
    /// Of keys.
    pub k: KvElem,
    /// Of values.
    pub v: KvElem,
}

impl KvType {
    /// Keys and values in f32.
    pub const F32: Self = Self { k: KvElem::F32, v: KvElem::F32 };
    /// Keys and values in f16, the default.
    pub const F16: Self = Self { k: KvElem::F16, v: KvElem::F16 };
}

impl Default for KvType {
    fn default() -> Self {
        Self::F16
    }
}
