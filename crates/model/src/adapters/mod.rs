//! Adapters: small matrices whose product is added to that of a model's matrix (LoRA, Hu et al.
//! 2021).
//!
//! ```text
//! y = W x + b                          the base: the same bits as without adapters
//! y = y + s (B (A x))                  for each adapter of the row, in the order of its set
//! s = scale of the row · alpha / rank
//! ```
//! `A` and `B` are multiplied with the f32 inputs by the kernels of their own types. Rows of a
//! batch share the products of the base, whatever their adapters. What adapters add to a row
//! depends on that row alone; a row without adapters, or with scales of 0, has the bits of the
//! base.
//!
//! Adapters are read once and stay in private memory, wherever the weights are. This folder knows
//! which products have adapters, but no block that computes one.

mod apply;
mod bind;
mod merge;
mod parts;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atta_formats::TensorType;
use atta_kernels::{Layouts, Matrix};
use atta_store::Reservation;

use crate::{Error, Model, Role, blocks::MoeScratch, spec::ModelSpec};

pub(crate) use apply::{Adapted, AdapterScratch, Adapting};
pub use merge::MatrixChange;
pub use parts::{AdapterMatrix, AdapterPair};

/// Most adapters of a row.
pub const MAX_ADAPTERS: usize = 8;

/// An adapter of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterScale {
    /// Its index in [`Model::adapters`](crate::Model::adapters).
    pub adapter: usize,
    /// What multiplies its part; finite, and not 0.
    pub scale: f32,
}

/// The adapters that a row is computed with, in order. It is part of what a state depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdapterSet {
    n: u8,
    /// Index and bits of the scale; zeros from `n` on.
    list: [[u32; 2]; MAX_ADAPTERS],
}

impl AdapterSet {
    /// No adapters.
    pub const EMPTY: Self = Self {
        n: 0,
        list: [[0; 2]; MAX_ADAPTERS],
    };

    /// Appends an adapter; one with a scale of 0 changes nothing and is left out.
    ///
    /// # Errors
    /// [`Error::Adapter`] for a scale that is not finite, an adapter that is in the set, and more
    /// than [`MAX_ADAPTERS`].
    pub fn push(&mut self, AdapterScale { adapter, scale }: AdapterScale) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Adapter(why));
        if !scale.is_finite() {
            return refuse(format!("a scale is {scale}, expected a finite number"));
        }
        if self.iter().any(|other| other.adapter == adapter) {
            return refuse("it is named twice".to_owned());
        }
        if scale == 0.0 {
            return Ok(());
        }
        let Some(place) = self.list.get_mut(usize::from(self.n)) else {
            return refuse(format!("at most {MAX_ADAPTERS} work together"));
        };
        *place = [adapter as u32, scale.to_bits()];
        self.n += 1;
        Ok(())
    }

    /// The adapters in order.
    pub fn iter(&self) -> impl Iterator<Item = AdapterScale> + '_ {
        let used = &self.list[..usize::from(self.n)];
        used.iter().map(|&[adapter, bits]| AdapterScale {
            adapter: adapter as usize,
            scale: f32::from_bits(bits),
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The adapter at a place of the order.
    fn at(&self, rank: usize) -> Option<AdapterScale> {
        self.iter().nth(rank)
    }
}

/// An adapter of a model, in private memory.
pub struct Adapter {
    /// The products that it adds to; those of the whole model have no layer.
    pairs: HashMap<(Role, Option<usize>), LowRank>,
    /// The matrices of all pairs.
    bytes: Vec<u8>,
    _memory: Reservation,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter")
            .field("n_pairs", &self.pairs.len())
            .field("n_bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// Number of matrices of the model that it adds to.
    pub fn n_matrices(&self) -> usize {
        self.pairs.len()
    }

    /// Bytes in memory.
    pub fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn pair(&self, role: Role, layer: Option<usize>) -> Option<&LowRank> {
        self.pairs.get(&(role, layer))
    }
}

/// The matrices that an adapter has for one of the model, `W + s B A`; of experts, for each.
///
/// Of the embedding, whose rows are looked up, `A` is `[n_vocab, rank]` and `B` is `[d, rank]`:
/// a token's row is that of `A`, multiplied by `B`.
struct LowRank {
    /// `[rank, d_in]`.
    a: Factor,
    /// `[d_out, rank]`.
    b: Factor,
    /// `alpha / rank`; 1 in a file without alpha.
    scale: f32,
}

/// One of the two matrices.
#[derive(Clone, Copy)]
struct Factor {
    ty: TensorType,
    n_rows: usize,
    d_in: usize,
    /// The first row of the first expert in the bytes of the adapter.
    start: usize,
    /// Bytes from one expert to the next.
    stride: usize,
}

impl Factor {
    /// The matrix of an expert, or the only one.
    fn of<'a>(&self, adapter: &'a Adapter, expert: usize) -> Matrix<'a> {
        let start = self.start + expert * self.stride;
        let row_bytes = self.ty.row_bytes(self.d_in).unwrap_or(0);
        let bytes = &adapter.bytes[start..][..self.n_rows * row_bytes];
        Matrix::new(self.ty, self.n_rows, self.d_in, bytes)
            .expect("sizes were checked when it was bound")
    }

    fn layout(&self) -> Layouts {
        Matrix::layout_of(self.ty).expect("types were checked when it was bound")
    }
}

impl Model {
    /// Adds adapters, which rows of batches may name by their index.
    #[must_use]
    pub fn with_adapters(mut self, adapters: impl Into<Arc<[Adapter]>>) -> Self {
        self.adapters = adapters.into();
        self
    }

    /// Its adapters, which other parts of the same model may share.
    pub fn adapters(&self) -> &Arc<[Adapter]> {
        &self.adapters
    }
}

/// Sizes that decide on the memory of a step with adapters; zeros without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterSizes {
    /// The largest rank.
    rank: usize,
    /// The widest input of a product.
    d_in: usize,
    /// The widest result of a product.
    d_out: usize,
    /// The widest result of a gate.
    d_gate: usize,
    /// Adapters, and scales of their pairs, all different ones of each.
    n_adapters: usize,
    n_scales: usize,
}

impl AdapterSizes {
    /// Those of some adapters.
    pub fn of(adapters: &[Adapter]) -> Self {
        let mut sizes = Self::default();
        for (&(role, _), pair) in adapters.iter().flat_map(|adapter| &adapter.pairs) {
            let is_gate = role.is_gated();
            let d_gate = if is_gate { pair.b.n_rows } else { 0 };
            sizes.rank = sizes.rank.max(pair.b.d_in);
            sizes.d_in = sizes.d_in.max(pair.a.d_in);
            sizes.d_out = sizes.d_out.max(pair.b.n_rows);
            sizes.d_gate = sizes.d_gate.max(d_gate);
        }
        let n_scales = |adapter: &Adapter| {
            let scales = adapter.pairs.values().map(|pair| pair.scale.to_bits());
            scales.collect::<HashSet<_>>().len()
        };
        sizes.n_adapters = adapters.len();
        sizes.n_scales = adapters.iter().map(n_scales).sum();
        sizes
    }

    /// The largest rank; 0 without adapters.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The widest result of a product.
    pub fn d_out(&self) -> usize {
        self.d_out
    }

    /// The most factors of a row, if each scale of a pair counts for every place that an adapter
    /// may have in the order of a row.
    pub fn n_factors(&self) -> usize {
        self.n_adapters.min(MAX_ADAPTERS) * self.n_scales
    }

    /// Bytes of the buffers of steps of `n_rows` rows.
    pub fn bytes(&self, spec: &ModelSpec, n_rows: usize) -> u64 {
        match self.rank {
            0 => 0,
            _ => AdapterScratch::bytes(self, MoeScratch::n_act_rows(spec, n_rows)),
        }
    }
}

impl Role {
    /// Whether the matrix is one factor of a gated MLP, which kernels multiply with the other.
    fn is_gated(self) -> bool {
        use Role::{FfnGate, FfnGateExps, FfnGateShexp, FfnUp, FfnUpExps, FfnUpShexp};
        matches!(
            self,
            FfnGate | FfnUp | FfnGateShexp | FfnUpShexp | FfnGateExps | FfnUpExps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &[(usize, f32)]) -> Result<AdapterSet, Error> {
        let mut set = AdapterSet::EMPTY;
        for &(adapter, scale) in list {
            set.push(AdapterScale { adapter, scale })?;
        }
        Ok(set)
    }

    #[test]
    fn a_scale_of_zero_is_no_adapter() {
        assert_eq!(set(&[(1, 0.0), (2, -0.0)]).unwrap(), AdapterSet::EMPTY);
        assert_eq!(
            set(&[(1, 0.0), (0, 2.0)]).unwrap(),
            set(&[(0, 2.0)]).unwrap()
        );
    }

    #[test]
    fn order_and_scales_are_part_of_a_set() {
        let ab = set(&[(0, 1.0), (1, 1.0)]).unwrap();
        assert_ne!(ab, set(&[(1, 1.0), (0, 1.0)]).unwrap());
        assert_ne!(ab, set(&[(0, 1.0), (1, 0.5)]).unwrap());
        assert_eq!(ab.at(1).unwrap().adapter, 1);
        assert_eq!(ab.at(2), None);
    }

    #[test]
    fn what_cannot_be_computed_is_refused() {
        assert!(set(&[(0, f32::NAN)]).is_err());
        assert!(set(&[(0, 1.0), (0, 1.0)]).is_err());
        let many: Vec<_> = (0..=MAX_ADAPTERS).map(|i| (i, 1.0)).collect();
        let error = set(&many).unwrap_err();
        assert!(error.to_string().contains("at most 8"), "{error}");
        assert!(set(&many[1..]).is_ok());
    }
}
