//! The operations that models are made of, as methods of a value: [`Kernels`] is the choice of an
//! instruction set.
//!
//! Row operations are serial and meant to be called inside regions of the pool.
//! [`Kernels::matmul`], [`Kernels::matmul_gated`] and [`Kernels::attention`] are one region each.

use crate::table::{self, Table};
use crate::tiles::{self, Chain, Columns, Strip};
use crate::{Activation, Activations, Attention, Error, Matrix, Pool, attention, scratch};
use std::ops::Range;

mod grouped;
mod streams;
mod transposed;

pub use grouped::{GatedGroups, Groups};
pub use streams::STREAMS_MAX;
pub use transposed::D_TRANSPOSED_MAX;

/// Matrices of one region; more are done in several.
const JOBS: usize = 8;
/// Floats of a row tile's results for one activation row, for a few and for many; on the stack of
/// the thread. Three sizes, because filling the largest with zeros takes longer than one row.
const ACC_ROW: usize = 64;
const ACC_FEW: usize = 1024;
const ACC: usize = 512 * 64;

/// Results of a row tile, on cache lines of their own: vectors that straddle two lines cost twice.
#[repr(align(64))]
struct Acc<const N: usize>([f32; N]);

// Gate and up have one each.
const _: () = assert!(2 * size_of::<Acc<ACC>>() + scratch::PANEL <= scratch::THREAD);

impl<const N: usize> Acc<N> {
    /// The first `n`, zeros; they are already where `first_row` is 0.
    fn rows(&mut self, n: usize, first_row: usize) -> &mut [f32] {
        let acc = &mut self.0[..n];
        if first_row > 0 {
            acc.fill(0.0);
        }
        acc
    }
}

/// The kernels of one instruction set. A value: nothing global, free to copy.
#[derive(Clone, Copy)]
pub struct Kernels(&'static Table);

/// What becomes of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Store {
    /// `out = y`.
    Set,
    /// `out += factor·y`: the residual stream.
    Add(f32),
}

/// One matrix of [`Kernels::matmul`]: `y = W x + bias`.
pub struct Job<'a> {
    /// Weights, `[d_out, d_in]`; if they are some rows of a larger matrix, only those columns of
    /// `out` are written.
    pub w: Matrix<'a>,
    /// Added to every row, `[d_out]` of the whole matrix.
    pub bias: Option<&'a [f32]>,
    /// Where `y` goes, `[n_rows, d_out]` of the whole matrix.
    pub out: &'a mut [f32],
    /// How it goes there.
    pub mode: Store,
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// The first half of a gated feed-forward block: `out = activation(gate x + gate_bias) · (up x +
/// up_bias)`.
pub struct Gated<'a> {
    /// Weights, `[d_ff, d_in]`, or some rows of them, as in [`Job`].
    pub gate: Matrix<'a>,
    /// Weights, `[d_ff, d_in]`, the same rows.
    pub up: Matrix<'a>,
    /// Added to the gate, `[d_ff]`.
    pub gate_bias: Option<&'a [f32]>,
    /// Added to the other factor, `[d_ff]`.
    pub up_bias: Option<&'a [f32]>,
    /// Applied to the gate.
    pub activation: Activation,
    /// `[n_rows, d_ff]`.
    pub out: &'a mut [f32],
}

impl std::fmt::Debug for Gated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gated").finish_non_exhaustive()
    }
}

/// A [`Job`] without its output.
#[derive(Clone, Copy)]
struct Product<'a> {
    w: Matrix<'a>,
    bias: Option<&'a [f32]>,
    mode: Store,
}

/// What a product is of.
pub(crate) struct Input<'a> {
    pub(crate) x: &'a Activations,
    pub(crate) rows: Range<usize>,
    /// How many row tiles further on the thread continues; 0 if it does not.
    pub(crate) prefetch_distance: usize,
}

/// The two products of a gated half.
struct Factors<'a> {
    gate: Product<'a>,
    up: Product<'a>,
    activation: Activation,
}

impl<'a> Product<'a> {
    /// A product of `x` whose `n_out` outputs are set.
    fn new(x: &Activations, w: Matrix<'a>, bias: Option<&'a [f32]>, n_out: usize) -> Self {
        check(x, w, n_out);
        assert!(
            bias.is_none_or(|bias| bias.len() == w.n_whole()),
            "length of a bias"
        );
        Self {
            w,
            bias,
            mode: Store::Set,
        }
    }

    /// Multiplies the row tile's results `y`, `[rows, width]`, by the scale of the weights, and
    /// adds the row tile's part of the bias.
    fn scale_and_bias(&self, columns: Range<usize>, width: usize, y: &mut [f32]) {
        let scale = self.w.scale();
        if scale != 1.0 {
            y.iter_mut().for_each(|y| *y *= scale);
        }
        let Some(bias) = self.bias else { return };
        for y in y.chunks_exact_mut(width) {
            y.iter_mut()
                .zip(&bias[columns.clone()])
                .for_each(|(y, bias)| *y += bias);
        }
    }

    /// `prefetch_distance` if the matrix has columns that many row tiles of `width` further on,
    /// else 0.
    fn within(&self, columns: &Range<usize>, width: usize, prefetch_distance: usize) -> usize {
        if columns.start + prefetch_distance * width < self.w.rows().end {
            prefetch_distance
        } else {
            0
        }
    }

    /// Stores the row tile's results `y`, `[columns]`, of one row.
    fn store(&self, columns: Range<usize>, y: &mut [f32], out: &mut [f32]) {
        self.scale_and_bias(columns, y.len(), y);
        match self.mode {
            Store::Set => out.copy_from_slice(y),
            Store::Add(factor) => out
                .iter_mut()
                .zip(y)
                .for_each(|(out, y)| *out += factor * *y),
        }
    }
}

impl Kernels {
    /// The best instruction set of this CPU.
    pub fn detect() -> Self {
        Self(table::detect())
    }

    /// The instruction set with this name, such as `scalar`.
    ///
    /// # Errors
    /// [`Error::UnknownIsa`], listing those that are there, if this CPU or build does not have it.
    pub fn named(name: &str) -> Result<Self, Error> {
        table::named(name).map(Self)
    }

    /// Name of the instruction set.
    pub fn isa(self) -> &'static str {
        self.0.name
    }

    /// Names of the instruction sets that this CPU and build offer, best first.
    pub fn available() -> Vec<&'static str> {
        table::names()
    }

    pub(crate) fn table(self) -> &'static Table {
        self.0
    }

    /// Row `row` of `w` as f32 in `out`, `[d_in]`: the value that the format defines, bit for bit.
    /// For embeddings.
    ///
    /// # Panics
    /// If there is no such row or `out` has another length.
    pub fn decode_row(self, w: Matrix<'_>, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), w.d_in(), "length of a decoded row");
        atta_formats::decode(w.tensor_type(), w.row(row), out)
            .expect("every type with a kernel has a codec");
        if w.scale() != 1.0 {
            out.iter_mut().for_each(|x| *x *= w.scale());
        }
    }

    /// Several products of one input, in one region: `y = W x + bias` for each job.
    ///
    /// # Panics
    /// If shapes do not agree, or `x` was not filled in the layout that a matrix reads.
    pub fn matmul(self, pool: &Pool, x: &Activations, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunks_mut(JOBS) {
            let (mut products, mut outs) = ([const { None }; JOBS], [const { None }; JOBS]);
            for ((job, product), out) in jobs.iter_mut().zip(&mut products).zip(&mut outs) {
                *product = Some(Product {
                    mode: job.mode,
                    ..Product::new(x, job.w, job.bias, job.out.len())
                });
                *out = Some(Columns::new(job.out, x.n_rows(), self.0.tile_rows).only(job.w.rows()));
            }
            let mut parts = Chain(outs);
            tiles::deal_in_turn(pool, &mut parts, |turn, (k, strip)| {
                let product = products[k].expect("an output has a product");
                self.product_of(
                    &product,
                    Input {
                        x,
                        rows: 0..x.n_rows(),
                        prefetch_distance: turn.skip(),
                    },
                    strip,
                );
            });
        }
    }

    /// One row tile of a product.
    fn product_of(self, product: &Product<'_>, input: Input<'_>, out: Strip<'_>) {
        match input.rows.len() * self.0.tile_rows {
            n if n <= ACC_ROW => self.product::<ACC_ROW>(product, input, out),
            n if n <= ACC_FEW => self.product::<ACC_FEW>(product, input, out),
            _ => self.product::<ACC>(product, input, out),
        }
    }

    /// The same, as many rows at a time as `N` floats hold. Not inlined: where one function holds
    /// the frames of all `N`, a single row, too, touches every page of the largest.
    #[inline(never)]
    fn product<const N: usize>(self, product: &Product<'_>, input: Input<'_>, mut out: Strip<'_>) {
        let Input {
            x,
            rows: all,
            prefetch_distance,
        } = input;
        let (columns, mut acc) = (out.columns(), Acc([0.0; N]));
        let (w, width) = (product.w.row_range(out.columns()), self.0.tile_rows);
        let prefetch_distance = product.within(&columns, width, prefetch_distance);
        for start in all.clone().step_by(N / width) {
            let rows = start..all.end.min(start + N / width);
            let acc = acc.rows(rows.len() * width, start - all.start);
            self.row_tile(
                w,
                Input {
                    x,
                    rows: rows.clone(),
                    prefetch_distance,
                },
                acc,
            );
            for (t, y) in rows.zip(acc.chunks_exact_mut(width)) {
                product.store(
                    columns.clone(),
                    &mut y[..columns.len()],
                    out.row(t - all.start),
                );
            }
        }
    }

    /// `out = activation(gate x + gate_bias) · (up x + up_bias)`, in one region; the two factors of
    /// an output are made by the same thread.
    ///
    /// # Panics
    /// If shapes do not agree, or `x` was not filled in the layouts that the matrices read.
    pub fn matmul_gated(self, pool: &Pool, x: &Activations, job: Gated<'_>) {
        let Gated {
            gate,
            up,
            gate_bias,
            up_bias,
            activation,
            out,
        } = job;
        assert_eq!(gate.rows(), up.rows(), "rows of the two factors");
        let factor = |w, bias| Product::new(x, w, bias, out.len());
        let factors = Factors {
            gate: factor(gate, gate_bias),
            up: factor(up, up_bias),
            activation,
        };
        let mut parts = Columns::new(out, x.n_rows(), self.0.tile_rows).only(gate.rows());
        tiles::deal_in_turn(pool, &mut parts, |turn, strip| {
            self.gated_of(
                &factors,
                Input {
                    x,
                    rows: 0..x.n_rows(),
                    prefetch_distance: turn.skip(),
                },
                strip,
            );
        });
    }

    /// One row tile of a gated product.
    fn gated_of(self, factors: &Factors<'_>, input: Input<'_>, out: Strip<'_>) {
        match input.rows.len() * self.0.tile_rows {
            n if n <= ACC_ROW => self.gated::<ACC_ROW>(factors, input, out),
            n if n <= ACC_FEW => self.gated::<ACC_FEW>(factors, input, out),
            _ => self.gated::<ACC>(factors, input, out),
        }
    }

    /// The same, as many rows at a time as `N` floats hold. Not inlined, as [`Self::product`].
    #[inline(never)]
    fn gated<const N: usize>(self, factors: &Factors<'_>, input: Input<'_>, mut out: Strip<'_>) {
        let Input {
            x,
            rows: all,
            prefetch_distance,
        } = input;
        let Factors {
            gate,
            up,
            activation,
        } = factors;
        let (columns, width) = (out.columns(), self.0.tile_rows);
        let (gate_w, up_w) = (
            gate.w.row_range(columns.clone()),
            up.w.row_range(columns.clone()),
        );
        let prefetch_distance = gate.within(&columns, width, prefetch_distance);
        let (mut gate_acc, mut up_acc) = (Acc([0.0; N]), Acc([0.0; N]));
        for start in all.clone().step_by(N / width) {
            let (rows, done) = (start..all.end.min(start + N / width), start - all.start);
            let (gate_acc, up_acc) = (
                gate_acc.rows(rows.len() * width, done),
                up_acc.rows(rows.len() * width, done),
            );
            self.row_tile(
                gate_w,
                Input {
                    x,
                    rows: rows.clone(),
                    prefetch_distance,
                },
                gate_acc,
            );
            self.row_tile(
                up_w,
                Input {
                    x,
                    rows: rows.clone(),
                    prefetch_distance,
                },
                up_acc,
            );
            gate.scale_and_bias(columns.clone(), width, gate_acc);
            up.scale_and_bias(columns.clone(), width, up_acc);
            self.gate(*activation, gate_acc, up_acc);
            for (t, y) in rows.zip(gate_acc.chunks_exact(width)) {
                out.row(t - all.start).copy_from_slice(&y[..columns.len()]);
            }
        }
    }

    /// Softmax attention of query rows over cached keys and values, in one region.
    ///
    /// # Panics
    /// If shapes do not agree, a row sees nothing, or a block table points outside the arena.
    pub fn attention(self, pool: &Pool, a: Attention<'_>) {
        attention::attention(self, pool, a);
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernels").field(&self.isa()).finish()
    }
}

fn check(x: &Activations, w: Matrix<'_>, n_out: usize) {
    assert_eq!(
        w.d_in(),
        x.d(),
        "{} weights [{}, {}] and inputs",
        w.tensor_type(),
        w.d_out(),
        w.d_in()
    );
    assert_eq!(
        n_out,
        x.n_rows() * w.n_whole(),
        "outputs are [n_rows, d_out]"
    );
    assert!(
        x.layouts().contains(w.layout()),
        "the inputs were not filled for {} weights",
        w.tensor_type()
    );
}

#[cfg(test)]
mod tests;
