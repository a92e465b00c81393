//! The kernel for heads of queries, keys and values: norms, rope, and the KV cache.
//!
//! It knows where a head is read and stored, and no layer. The one idea: queries, keys and values
//! take the same steps with other constants, so that the constants are records among the weights,
//! and one dispatch does all three.

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId};
use atta_kernels::{KvElem, RopePairing};

/// How a KV cache on a GPU holds keys and values: the bytes of the CPU's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GpuKv {
    /// [`KvElem::F32`].
    Floats,
    /// [`KvElem::F16`]: codes of 16 bits, and scales.
    Codes,
}

impl GpuKv {
    /// The one for an element type, if GPUs have kernels for it.
    pub fn of(elem: KvElem) -> Option<Self> {
        match elem {
            KvElem::F32 => Some(Self::Floats),
            KvElem::F16 => Some(Self::Codes),
            KvElem::Q8 | KvElem::Q4 => None,
        }
    }

    /// The element type.
    pub fn elem(self) -> KvElem {
        match self {
            Self::Floats => KvElem::F32,
            Self::Codes => KvElem::F16,
        }
    }

    /// Elements of a block of the rotation of stored values of width `d`; 0: they are not rotated.
    pub fn rotation(self, d: usize) -> u32 {
        match self {
            Self::Floats => 0,
            Self::Codes => 1 << d.trailing_zeros(),
        }
    }
}

/// What a head is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadRole {
    /// Written back to the values.
    Query,
    /// Stored.
    Key,
    /// Stored, rotated if its type is.
    Value,
}

/// The root mean square norm of a head; its weight is `[d_head]` f32 from a word of the weights on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HeadNorm {
    /// There is none.
    None,
    /// Before the rope.
    First {
        /// First word of the weight.
        weight: u32,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// Behind the rope.
    Last {
        /// First word of the weight.
        weight: u32,
        /// Added to the mean of squares.
        eps: f32,
    },
}

/// Powers of two that multiply the channels of heads, f32 among the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadPowers {
    /// First word, `[n_heads, d_head]`.
    pub at: u32,
    /// Heads that have some.
    pub n_heads: u32,
    /// Neighbours that share those of one head.
    pub group: u32,
}

impl HeadPowers {
    /// Place, heads and group, of none if there are none.
    pub(crate) fn words(powers: Option<Self>) -> [u32; 3] {
        powers.map_or([NONE, 1, 1], |p| [p.at, p.n_heads, p.group])
    }
}

/// The constants of the queries, the keys or the values of a layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeadRecord {
    /// What they are.
    pub role: HeadRole,
    /// First word among the values, `[n_rows, n_heads, d_head]`.
    pub x: u32,
    /// Heads of a row.
    pub n_heads: u32,
    /// Their norm.
    pub norm: HeadNorm,
    /// Elements that the rope turns; 0: none.
    pub d_rope: u32,
    /// Which of them form pairs.
    pub pairing: RopePairing,
    /// Powers of two of the channels.
    pub powers: Option<HeadPowers>,
    /// First word of their rows in a KV block.
    pub stored: u32,
    /// Elements of a block of their rotation before they are stored: [`GpuKv::rotation`] for
    /// values, 0 for keys.
    pub rotation: u32,
}

impl HeadRecord {
    /// Words of a record.
    pub const WORDS: usize = 16;

    /// The record as it lies among the weights.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let [norm, weight, eps] = match self.norm {
            HeadNorm::None => [0, NONE, 0],
            HeadNorm::First { weight, eps } => [1, weight, eps.to_bits()],
            HeadNorm::Last { weight, eps } => [2, weight, eps.to_bits()],
        };
        let are_neighbours = u32::from(self.pairing == RopePairing::Norm);
        let [powers, n_powers, group] = HeadPowers::words(self.powers);
        let mut out = [0; Self::WORDS];
        out[..8].copy_from_slice(&[
            self.role as u32,
            self.x,
            self.n_heads,
            norm,
            weight,
            eps,
            self.d_rope,
            are_neighbours,
        ]);
        out[8..13].copy_from_slice(&[powers, n_powers, group, self.stored, self.rotation]);
        out
    }
}

/// Heads of some rows of a layer.
#[derive(Clone, Copy, Debug)]
pub struct StoreHeads {
    /// First word of the records among the weights.
    pub records: u32,
    /// How many there are: three, or one for queries alone.
    pub n_records: u32,
    /// The most heads of a record.
    pub n_heads: u32,
    /// Width of a head: even, at most 1024.
    pub d_head: u32,
    /// Rows.
    pub n_rows: u32,
    /// How keys and values are stored.
    pub kv: GpuKv,
    /// Positions of a KV block.
    pub block_len: u32,
    /// First word among the tables of the rotations, `[n_rows, d_rope/2, (cos, sin)]` f32.
    pub rope: u32,
    /// First word among the tables of the factors of queries, `[n_rows]` f32, if there are some.
    pub factors: Option<u32>,
    /// First word among the tables of the places of the rows: `[n_rows]` pairs of the first word of
    /// the KV block, and of the position in it.
    pub slots: u32,
}

impl StoreHeads {
    /// The run of the kernel [`Shader::heads`](crate::Shader::heads).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..8].copy_from_slice(&[
            self.records,
            self.d_head,
            self.block_len,
            self.rope,
            self.factors.unwrap_or(NONE),
            self.slots,
            self.kv as u32,
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, self.n_records],
        }
    }
}
