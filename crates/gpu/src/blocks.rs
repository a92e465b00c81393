//! The kernels that work on whole blocks of the KV cache: copies, and keys at other positions.

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, GpuKv, HeadRole, PipelineId};
use atta_kernels::RopePairing;

/// Threads of a workgroup of the copy, each with a word.
const COPY_WORDS: u32 = 64;

/// Copies of KV blocks. A dispatch reads no block that it writes.
#[derive(Clone, Copy, Debug)]
pub struct CopyBlocks {
    /// First word among the tables of `[n_pairs]` pairs: the first words of a block and of its
    /// copy.
    pub pairs: u32,
    /// Pairs.
    pub n_pairs: u32,
    /// Words of a block.
    pub block_words: u32,
}

impl CopyBlocks {
    /// The run of the kernel [`Shader::copy_blocks`](crate::Shader::copy_blocks).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..3].copy_from_slice(&[self.pairs, self.block_words]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.block_words.div_ceil(COPY_WORDS), self.n_pairs, 1],
        }
    }
}

/// Keys of a layer in some blocks, turned in place by the same angles: a context shift.
#[derive(Clone, Copy, Debug)]
pub struct MoveKeys {
    /// First word among the tables of the first words of the blocks, `[n_blocks]`.
    pub blocks: u32,
    /// Blocks.
    pub n_blocks: u32,
    /// Positions of a block.
    pub block_len: u32,
    /// How keys are stored.
    pub kv: GpuKv,
    /// First word of the keys of the layer in a block.
    pub k: u32,
    /// Heads of keys.
    pub n_kv_heads: u32,
    /// Width of a head: one that [`GpuKv::of`] takes.
    pub d_head: u32,
    /// First word among the tables of the rotation, `[d_rope/2, (cos, sin)]` f32.
    pub angles: u32,
    /// Elements that are turned.
    pub d_rope: u32,
    /// Which of them form pairs.
    pub pairing: RopePairing,
    /// Positions at the beginning of the first block that stay as they are.
    pub n_kept: u32,
    /// First element of the value in a key that is one.
    pub value_from: Option<u32>,
}

impl MoveKeys {
    /// The run of the kernel [`Shader::move_keys`](crate::Shader::move_keys).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..12].copy_from_slice(&[
            self.d_head,
            self.block_len,
            self.kv as u32,
            self.blocks,
            self.k,
            self.angles,
            self.d_rope,
            u32::from(self.pairing == RopePairing::Norm),
            self.n_kept,
            self.kv.rotation(HeadRole::Key, self.d_head as usize),
            self.value_from.unwrap_or(NONE),
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.block_len, self.n_kv_heads, self.n_blocks],
        }
    }
}
