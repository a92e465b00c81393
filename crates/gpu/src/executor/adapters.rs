//! What adapters (LoRA) add to the products of a step, row by row.
//!
//! ```text
//! y = W x + b;   y = y + s·(B (A x)) for each adapter of the row, in the order of its set
//! ```
//! Both products are computed for all rows, and added to those that have the adapter: `s` of each
//! row is a word of the tables, made here of the row's scale, the pair's and the residual's, in the
//! CPU's order.

use super::layout::Acts;
use super::pass::{Made, Recorded, RowProduct, SlotProduct};
use crate::quantize::NONE;
use crate::weights::{GpuExpertPair, GpuPair, MatrixKey};
use crate::{AddScaled, GpuWeights, ProductEnd, RowFunction};
use atta_model::spec::ModelSpec;
use atta_model::{AdapterSizes, MAX_ADAPTERS, Role, Row};
use std::collections::HashMap;

/// The factors of rows, for an adapter at a place of the order of some row.
#[derive(Debug)]
struct RankedAdapter {
    adapter: usize,
    /// The first word of the factors of all rows, by what multiplies the scales of rows.
    factors: HashMap<FactorKind, u32>,
}

/// What multiplies the scale of a row: the scale of a pair, then the factor of the sublayer's
/// result; of the head's, whose rows are those that want logits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FactorKind {
    scale: u32,
    factor: u32,
    is_head: bool,
}

/// The adapters of a part, and those of the rows of a step.
#[derive(Debug, Default)]
pub(super) struct AdapterTables {
    /// Of each adapter: what its matrices multiply scales with.
    kinds: Vec<HashMap<MatrixKey, FactorKind>>,
    ranked: Vec<RankedAdapter>,
}

/// Words of the factors of a row, at most.
pub(super) fn n_factors(spec: &ModelSpec, sizes: &AdapterSizes) -> usize {
    let mut scales: Vec<u32> = vec![1f32.to_bits()];
    scales.extend(spec.layers.iter().map(|l| l.residual_scale.to_bits()));
    scales.sort_unstable();
    scales.dedup();
    // One more for those of the head.
    sizes.n_factors() * (scales.len() + 1)
}

impl AdapterTables {
    /// The adapters of these weights; `factor` is what multiplies the product of a matrix.
    pub(super) fn new(weights: &GpuWeights, factor: impl Fn(MatrixKey) -> f32) -> Self {
        let kinds = weights.adapters().iter().map(|adapter| {
            let kinds = adapter.scales().map(|(key, scale)| {
                let kind = FactorKind {
                    scale: scale.to_bits(),
                    factor: factor(key).to_bits(),
                    is_head: key == (Role::Output, None),
                };
                (key, kind)
            });
            kinds.collect()
        });
        Self {
            kinds: kinds.collect(),
            ranked: Vec::new(),
        }
    }

    /// Appends the factors of the rows of a step; those `wanted` want logits.
    pub(super) fn fill(&mut self, words: &mut Vec<u32>, rows: &[Row], wanted: &[usize]) {
        self.ranked.clear();
        for place in 0..MAX_ADAPTERS {
            for adapter in 0..self.kinds.len() {
                let scales = scales_at(rows, place, adapter);
                if scales.iter().all(Option::is_none) {
                    continue;
                }
                let mut factors = HashMap::new();
                for kind in self.kinds[adapter].values() {
                    factors.entry(*kind).or_insert_with(|| {
                        let at = words.len() as u32;
                        match kind.is_head {
                            true => words.extend(wanted.iter().map(|&t| kind.of(scales[t]))),
                            false => words.extend(scales.iter().map(|scale| kind.of(*scale))),
                        }
                        at
                    });
                }
                self.ranked.push(RankedAdapter { adapter, factors });
            }
        }
    }

    /// The adapters of the step that add to a matrix, in order, and the first word of the factors
    /// of rows.
    pub(super) fn of(&self, key: MatrixKey) -> Vec<(usize, u32)> {
        let of_key = |ranked: &RankedAdapter| {
            let kind = self.kinds[ranked.adapter].get(&key)?;
            Some((ranked.adapter, *ranked.factors.get(kind)?))
        };
        self.ranked.iter().filter_map(of_key).collect()
    }
}

impl FactorKind {
    /// The word of a row.
    fn of(self, scale: Option<f32>) -> u32 {
        let [factor, of_pair] = [self.factor, self.scale].map(f32::from_bits);
        scale.map_or(NONE, |scale| (factor * (scale * of_pair)).to_bits())
    }
}

/// The scale of an adapter in each row that has it at this place.
fn scales_at(rows: &[Row], place: usize, adapter: usize) -> Vec<Option<f32>> {
    let scale = |row: &Row| {
        let at = row.adapters.iter().nth(place)?;
        (at.adapter == adapter).then_some(at.scale)
    };
    rows.iter().map(scale).collect()
}

/// Rows of products that adapters add to.
struct AdaptedRows {
    acts: Acts,
    n_rows: u32,
    /// The results, and the words of the factors of these rows.
    out: u32,
    factors: u32,
}

impl Recorded<'_> {
    /// The adapters of the step that add to a matrix.
    fn adapters_of(&self, key: MatrixKey) -> Vec<(usize, u32)> {
        self.parts.tables.adapters().of(key)
    }

    /// The matrices of adapters that read the activations of a matrix.
    pub(super) fn readers(&self, key: MatrixKey) -> Vec<crate::ActLayout> {
        let adapters = self.parts.weights.adapters();
        let layout = |(i, _): &(usize, u32)| {
            let adapter = &adapters[*i];
            let of_experts = || Some(adapter.expert_pair(key)?.a.format);
            let format = adapter.pair(key).map(|pair| pair.a.format);
            format.or_else(of_experts).map(|format| format.acts())
        };
        self.adapters_of(key).iter().filter_map(layout).collect()
    }

    /// Adds the adapters' parts to the product of a matrix; `first` is the first of these rows
    /// among those that have factors.
    pub(super) fn adapt(&mut self, key: MatrixKey, product: &RowProduct, first: u32) {
        let weights = self.parts.weights;
        for (i, factors) in self.adapters_of(key) {
            let Some(pair) = weights.adapters()[i].pair(key) else {
                continue;
            };
            let most = (self.parts.layout.adapters.n_results / pair.b.d_out).max(1) as u32;
            for start in (0..product.n_rows).step_by(most as usize) {
                let n_rows = most.min(product.n_rows - start);
                self.adapt_rows(
                    pair,
                    &AdaptedRows {
                        acts: product.acts.behind(start as usize, pair.a.d_in),
                        n_rows,
                        out: product.out + start * pair.b.d_out as u32,
                        factors: factors + first + start,
                    },
                );
            }
        }
    }

    fn adapt_rows(&mut self, pair: GpuPair<'_>, rows: &AdaptedRows) {
        let regions = self.parts.layout.adapters;
        let low = RowProduct {
            acts: rows.acts,
            out: regions.low,
            end: ProductEnd::Set,
            n_rows: rows.n_rows,
        };
        self.multiply_rows(pair.a, &low);
        self.make_low(pair.b.d_in, rows.n_rows, pair.b.format.acts());
        let result = RowProduct {
            acts: regions.low_acts,
            out: regions.results,
            ..low
        };
        self.multiply_rows(pair.b, &result);
        self.add_scaled(AddScaled {
            n_rows: rows.n_rows,
            d: pair.b.d_out as u32,
            x: rows.out,
            y: regions.results,
            factors: rows.factors,
            n_shared: 1,
        });
    }

    /// Adds the adapters' parts to the products of slots.
    pub(super) fn adapt_slots(&mut self, key: MatrixKey, product: &SlotProduct) {
        let weights = self.parts.weights;
        for (i, factors) in self.adapters_of(key) {
            let Some(GpuExpertPair { a, b }) = weights.adapters()[i].expert_pair(key) else {
                continue;
            };
            let regions = self.parts.layout.adapters;
            let low = SlotProduct {
                out: regions.low,
                ..*product
            };
            self.multiply_slots(a, &low);
            self.make_low(b.d_in, product.slots.n_slots, b.format.acts());
            let result = SlotProduct {
                acts: regions.low_acts,
                n_shared: 1,
                out: regions.results,
                ..*product
            };
            self.multiply_slots(b, &result);
            self.add_scaled(AddScaled {
                n_rows: product.slots.n_slots,
                d: b.d_out as u32,
                x: product.out,
                y: regions.results,
                factors,
                n_shared: product.slots.n_slots / self.n_rows,
            });
        }
    }

    /// The results of `A`, for `B`.
    fn make_low(&mut self, rank: usize, n_rows: u32, layout: crate::ActLayout) {
        let regions = self.parts.layout.adapters;
        let made = Made {
            function: RowFunction::Copy,
            x: regions.low,
            d: rank,
            n_rows,
        };
        self.make_in(&made, regions.low_acts, &[layout]);
    }

    fn add_scaled(&mut self, added: AddScaled) {
        let kernel = self.parts.kernels.add_scaled;
        let bindings = self.parts.bindings;
        self.dispatches.push(added.dispatch(kernel, bindings));
    }
}
