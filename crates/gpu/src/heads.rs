//! The kernel for heads of queries, keys and values: norms, rope, and the KV cache.
//!
//! It knows where a head is read and stored, and no layer. The one idea: queries, keys and values
//! take the same steps with other constants, so that the constants are records among the weights,
//! and one dispatch does all three.

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId};
use atta_kernels::{D_HEAD_MAX, KvElem, RopePairing};

/// How a KV cache on a GPU holds keys or values: the bytes of the CPU's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GpuKv {
    /// [`KvElem::F32`].
    Floats,
    /// [`KvElem::F16`]: codes of 16 bits, and scales.
    Codes,
    /// [`KvElem::Q8`]: codes of 8 bits with an f16 scale.
    Bytes,
    /// [`KvElem::Q4`]: codes of 4 bits in groups.
    Nibbles,
}

impl GpuKv {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Floats, Self::Codes, Self::Bytes, Self::Nibbles];

    /// The one for an element type, and heads of width `d`: even, for 8 and 4 bits a multiple of 8,
    /// and at most 1024. `None`: GPUs have no kernels for that.
    pub fn of(elem: KvElem, d: usize) -> Option<Self> {
        let (kv, unit) = match elem {
            KvElem::F32 => (Self::Floats, 2),
            KvElem::F16 => (Self::Codes, 2),
            KvElem::Q8 => (Self::Bytes, 8),
            KvElem::Q4 => (Self::Nibbles, 8),
        };
        (d.is_multiple_of(unit) && d <= D_HEAD_MAX).then_some(kv)
    }

    /// The element type.
    pub fn elem(self) -> KvElem {
        match self {
            Self::Floats => KvElem::F32,
            Self::Codes => KvElem::F16,
            Self::Bytes => KvElem::Q8,
            Self::Nibbles => KvElem::Q4,
        }
    }

    /// Elements of a block of the rotation that stored keys or values of width `d` have; 0: they
    /// are not rotated. Queries are rotated by the kernel of attention.
    pub fn rotation(self, role: HeadRole, d: usize) -> u32 {
        let is_rotated = match role {
            HeadRole::Query => false,
            HeadRole::Key => matches!(self, Self::Bytes | Self::Nibbles),
            HeadRole::Value => self != Self::Floats,
        };
        if is_rotated {
            1 << d.trailing_zeros()
        } else {
            0
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

/// The norm of a head; weights are f32 from a word of the buffer of weights on. Norms over all
/// heads of a row are [`AddNormed`](crate::AddNormed)'s, of the row alone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HeadNorm {
    /// There is none.
    None,
    /// The root mean square norm before the rope.
    First {
        /// First word of the weight, `[d_head]`.
        weight: u32,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// The root mean square norm behind the rope.
    Last {
        /// First word of the weight, `[d_head]`.
        weight: u32,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// The root mean square norm before the rope, without a weight.
    Unit {
        /// Added to the mean of squares.
        eps: f32,
    },
    /// The norm of mean and variance before the rope, each head with a weight of its own.
    Layer {
        /// First word of the weights, `[n_heads, d_head]`.
        weight: u32,
        /// Added to the variance.
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
    /// Elements of a block of their rotation before they are stored: [`GpuKv::rotation`].
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
            HeadNorm::Unit { eps } => [1, NONE, eps.to_bits()],
            HeadNorm::Layer { weight, eps } => [3, weight, eps.to_bits()],
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
    /// How many there are: three, two if keys are the values, or one for queries alone.
    pub n_records: u32,
    /// The most heads of a record.
    pub n_heads: u32,
    /// Width of a head: one that [`GpuKv::of`] takes.
    pub d_head: u32,
    /// Rows.
    pub n_rows: u32,
    /// How keys are stored.
    pub keys: GpuKv,
    /// How values are stored.
    pub values: GpuKv,
    /// Positions of a KV block.
    pub block_len: u32,
    /// First word among the tables of the rotations, `[n_rows, d_rope/2, (cos, sin)]` f32.
    pub rope: u32,
    /// First word among the tables of the factors of queries, `[n_rows]` f32, if there are some.
    pub factors: Option<u32>,
    /// First word among the tables of the places of the rows: `[n_rows]` pairs of the first word of
    /// the KV block, and of the position in it.
    pub slots: u32,
    /// First element of the value in a key that is one.
    pub value_from: Option<u32>,
}

impl StoreHeads {
    /// The run of the kernel [`Shader::heads`](crate::Shader::heads).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..10].copy_from_slice(&[
            self.records,
            self.d_head,
            self.block_len,
            self.rope,
            self.factors.unwrap_or(NONE),
            self.slots,
            self.keys as u32,
            self.values as u32,
            self.value_from.unwrap_or(NONE),
        ]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, self.n_records],
        }
    }
}
