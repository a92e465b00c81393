//! What adapters add to the products of a step.
//!
//! ```text
//! for each place of the order, each adapter there:   rows that have it
//!     h = A x                          one region of the pool
//!     y = B h                          one region
//!     out += s y                       one region
//! ```
//! Rows are taken some at a time, which bounds the buffers and decides on no bit.

use std::ops::Range;

use atta_kernels::{Activations, Job, Kernels, Pool, Store};

use super::{Adapter, AdapterScale, AdapterSizes, LowRank};
use crate::{Role, Row};

/// Most rows that are multiplied at once.
const PIECE: usize = 64;
/// Floats of their results; only a single row has more.
const PIECE_FLOATS: usize = 1 << 20;

/// Rows of results of `d_out` that are multiplied at once.
fn piece(d_out: usize) -> usize {
    (PIECE_FLOATS / d_out.max(1)).clamp(1, PIECE)
}

/// Floats of the results of the widest product, `d_out`, and of all others.
fn n_result_floats(d_out: usize) -> usize {
    PIECE.saturating_mul(d_out).min(PIECE_FLOATS.max(d_out))
}

/// Buffers for the products of adapters; empty for a model without.
#[derive(Default)]
pub(crate) struct AdapterScratch {
    /// The adapters of the batch, by place.
    ranked: Vec<RankedAdapter>,
    /// The rows at hand.
    picks: Vec<Pick>,
    /// Inputs of these rows, `[PIECE, d_in]`, and of the second product, `[PIECE, rank]`.
    inputs: Option<Box<[Activations; 2]>>,
    /// `A x`, `[PIECE, rank]`.
    h: Vec<f32>,
    /// `B h`, `[piece, d_out]`.
    y: Vec<f32>,
    /// The second factors of gated MLPs, `[n_rows, d_gate]`.
    pub(crate) ups: Vec<f32>,
}

/// An adapter at a place of the order of some row.
#[derive(Clone, Copy, PartialEq)]
struct RankedAdapter {
    rank: usize,
    adapter: usize,
}

/// A row of inputs that an adapter is applied to.
struct Pick {
    row: usize,
    scale: f32,
}

impl AdapterScratch {
    /// Buffers for steps of `n_rows` rows, as many as a group of experts may have.
    pub(crate) fn new(sizes: &AdapterSizes, n_rows: usize) -> Self {
        if sizes.rank == 0 {
            return Self::default();
        }
        let [first, second] = [sizes.d_in, sizes.rank].map(|d| Activations::new(PIECE, d));
        Self {
            ranked: Vec::with_capacity(n_rows),
            picks: Vec::with_capacity(n_rows),
            inputs: Some(Box::new([first, second])),
            h: vec![0.0; PIECE * sizes.rank],
            y: vec![0.0; n_result_floats(sizes.d_out)],
            ups: vec![0.0; n_rows * sizes.d_gate],
        }
    }

    /// Bytes of these buffers.
    pub(crate) fn bytes(sizes: &AdapterSizes, n_rows: usize) -> u64 {
        let n_rows = n_rows as u64;
        let lists = n_rows * (size_of::<RankedAdapter>() + size_of::<Pick>()) as u64;
        let floats = (PIECE * sizes.rank + n_result_floats(sizes.d_out)) as u64;
        let ups = n_rows.saturating_mul(sizes.d_gate as u64);
        [sizes.d_in, sizes.rank]
            .iter()
            .map(|&d| Activations::bytes(PIECE, d))
            .fold(lists, u64::saturating_add)
            .saturating_add(floats.saturating_add(ups).saturating_mul(4))
    }

    /// Finds the adapters of a batch.
    fn rank(&mut self, rows: &[Row]) {
        self.ranked.clear();
        for row in rows {
            for (rank, AdapterScale { adapter, .. }) in row.adapters.iter().enumerate() {
                let ranked = RankedAdapter { rank, adapter };
                if !self.ranked.contains(&ranked) {
                    self.ranked.push(ranked);
                }
            }
        }
        self.ranked.sort_by_key(|ranked| ranked.rank);
    }
}

/// A product of the model, to which adapters add.
pub(crate) struct Adapted<'a> {
    pub(crate) role: Role,
    /// `None`: a matrix of the whole model.
    pub(crate) layer: Option<usize>,
    /// 0 unless the matrix is one of an expert.
    pub(crate) expert: usize,
    /// The inputs of the product, in f32.
    pub(crate) x: &'a Activations,
    /// The rows of inputs and results that were multiplied with the matrix.
    pub(crate) rows: Range<usize>,
    /// What multiplies the product.
    pub(crate) factor: f32,
    /// The results, `[n, d_out]` of all n rows of inputs.
    pub(crate) out: &'a mut [f32],
}

impl<'a> Adapted<'a> {
    /// The product of all rows with a matrix of layer `l`.
    pub(crate) fn of_layer(l: usize, role: Role, x: &'a Activations, out: &'a mut [f32]) -> Self {
        Self {
            role,
            layer: Some(l),
            expert: 0,
            rows: 0..x.n_rows(),
            x,
            factor: 1.0,
            out,
        }
    }
}

/// The adapters of the rows of a step.
pub(crate) struct Adapting<'a> {
    pub(crate) kernels: Kernels,
    pub(crate) pool: &'a Pool,
    adapters: &'a [Adapter],
    rows: &'a [Row],
    pub(crate) s: &'a mut AdapterScratch,
}

impl<'a> Adapting<'a> {
    /// Those of a batch.
    pub(crate) fn new(
        kernels: Kernels,
        pool: &'a Pool,
        adapters: &'a [Adapter],
        rows: &'a [Row],
        s: &'a mut AdapterScratch,
    ) -> Self {
        s.rank(rows);
        Self {
            kernels,
            pool,
            adapters,
            rows,
            s,
        }
    }

    /// Whether some row has an adapter of one of these matrices.
    pub(crate) fn has(&self, layer: Option<usize>, roles: &[Role]) -> bool {
        let has = |adapter: usize| {
            let adapter = &self.adapters[adapter];
            roles
                .iter()
                .any(|&role| adapter.pair(role, layer).is_some())
        };
        self.s.ranked.iter().any(|ranked| has(ranked.adapter))
    }

    /// Adds to a product whose rows are those of the batch.
    pub(crate) fn add(&mut self, product: Adapted<'_>) {
        self.add_at(product, |row| row);
    }

    /// Adds to a product; `row_of` is the row of the batch of a row of inputs.
    pub(crate) fn add_at(&mut self, mut product: Adapted<'_>, row_of: impl Fn(usize) -> usize) {
        for i in 0..self.s.ranked.len() {
            let ranked = self.s.ranked[i];
            let adapter = &self.adapters[ranked.adapter];
            let Some(pair) = adapter.pair(product.role, product.layer) else {
                continue;
            };
            self.pick(ranked, product.rows.clone(), &row_of);
            let n_piece = piece(pair.b.n_rows);
            for start in (0..self.s.picks.len()).step_by(n_piece) {
                let end = self.s.picks.len().min(start + n_piece);
                self.multiply(adapter, pair, &product, start..end);
                self.store(pair, &mut product, start..end);
            }
        }
    }

    /// Adds to logits, whose rows are these of the batch.
    pub(crate) fn add_to_logits(&mut self, x: &Activations, out: &mut [f32], rows: &[u32]) {
        let product = Adapted {
            layer: None,
            ..Adapted::of_layer(0, Role::Output, x, out)
        };
        self.add_at(product, |i| rows[i] as usize);
    }

    /// Adds to the embeddings of tokens; `token` is that of a row, if it has one.
    pub(crate) fn add_to_embeddings(
        &mut self,
        out: &mut [f32],
        token: impl Fn(usize) -> Option<u32> + Sync,
    ) {
        for i in 0..self.s.ranked.len() {
            let ranked = self.s.ranked[i];
            let adapter = &self.adapters[ranked.adapter];
            let Some(pair) = adapter.pair(Role::TokenEmbd, None) else {
                continue;
            };
            self.pick(ranked, 0..self.rows.len(), &|row| row);
            self.s.picks.retain(|pick| token(pick.row).is_some());
            let n_piece = piece(pair.b.n_rows);
            for start in (0..self.s.picks.len()).step_by(n_piece) {
                let end = self.s.picks.len().min(start + n_piece);
                self.look_up(adapter, pair, start..end, &token);
                self.store_rows(pair, 1.0, out, start..end);
            }
        }
    }

    /// Finds the rows of inputs whose row of the batch has the adapter at its place.
    fn pick(
        &mut self,
        ranked: RankedAdapter,
        rows: Range<usize>,
        row_of: &impl Fn(usize) -> usize,
    ) {
        let batch = self.rows;
        self.s.picks.clear();
        self.s.picks.extend(rows.filter_map(|row| {
            let at = batch[row_of(row)].adapters.at(ranked.rank)?;
            let scale = at.scale;
            (at.adapter == ranked.adapter).then_some(Pick { row, scale })
        }));
    }

    /// `y = B (A x)` of some picked rows.
    fn multiply(
        &mut self,
        adapter: &Adapter,
        pair: &LowRank,
        product: &Adapted<'_>,
        picks: Range<usize>,
    ) {
        let kernels = self.kernels;
        let pool = self.pool;
        let Some(inputs) = &mut self.s.inputs else {
            return;
        };
        let [first, _] = &mut **inputs;
        let n = picks.len();
        let d = product.x.d();
        let picks = &self.s.picks[picks];
        let x = product.x.rows();
        first.fill(kernels, pool, (n, d), pair.a.layout(), |i, out| {
            out.copy_from_slice(&x[picks[i].row * d..][..d]);
        });
        let job = Job {
            w: pair.a.of(adapter, product.expert),
            bias: None,
            out: &mut self.s.h[..n * pair.a.n_rows],
            mode: Store::Set,
        };
        kernels.matmul(pool, first, &mut [job]);
        self.multiply_up(adapter, pair, product.expert, n);
    }

    /// `y = B h`, where `h` are the rows of `A` of tokens.
    fn look_up(
        &mut self,
        adapter: &Adapter,
        pair: &LowRank,
        picks: Range<usize>,
        token: &(impl Fn(usize) -> Option<u32> + Sync),
    ) {
        let table = pair.a.of(adapter, 0);
        let picks = &self.s.picks[picks];
        for (pick, h) in picks.iter().zip(self.s.h.chunks_exact_mut(pair.a.d_in)) {
            let id = token(pick.row).unwrap_or(0);
            self.kernels.decode_row(table, id as usize, h);
        }
        let n = picks.len();
        self.multiply_up(adapter, pair, 0, n);
    }

    /// `y = B h` of `n` rows.
    fn multiply_up(&mut self, adapter: &Adapter, pair: &LowRank, expert: usize, n: usize) {
        let kernels = self.kernels;
        let pool = self.pool;
        let Some(inputs) = &mut self.s.inputs else {
            return;
        };
        let [_, second] = &mut **inputs;
        let d = pair.b.d_in;
        let h = &self.s.h;
        second.fill(kernels, pool, (n, d), pair.b.layout(), |i, out| {
            out.copy_from_slice(&h[i * d..][..d]);
        });
        let job = Job {
            w: pair.b.of(adapter, expert),
            bias: None,
            out: &mut self.s.y[..n * pair.b.n_rows],
            mode: Store::Set,
        };
        kernels.matmul(pool, second, &mut [job]);
    }

    fn store(&self, pair: &LowRank, product: &mut Adapted<'_>, picks: Range<usize>) {
        self.store_rows(pair, product.factor, product.out, picks);
    }

    /// `out += factor s y` of some picked rows, which are in order.
    fn store_rows(&self, pair: &LowRank, factor: f32, out: &mut [f32], picks: Range<usize>) {
        let d = pair.b.n_rows;
        let picks = &self.s.picks[picks];
        let [Some(first), Some(last)] = [picks.first(), picks.last()] else {
            return;
        };
        let y = &self.s.y;
        let out = &mut out[first.row * d..(last.row + 1) * d];
        self.pool.for_each_row(out, d, |i, out| {
            let Ok(at) = picks.binary_search_by_key(&(first.row + i), |pick| pick.row) else {
                return;
            };
            let s = factor * (picks[at].scale * pair.scale);
            let y = &y[at * d..][..d];
            out.iter_mut().zip(y).for_each(|(out, y)| *out += s * y);
        });
    }
}
