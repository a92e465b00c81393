//! Row tiles with the vectors of RISC-V: one weight row times one activation row after the other,
//! or many activation rows times a panel (`panel.rs`).
//!
//! ```text
//! for each activation row, for each weight row:
//!     for up to sixteen blocks at once:
//!         isum, bias = the integer sums of each block                       sums.rs
//!         d, dmin = their factors, widened together                         rule.rs
//!         out += the f32 rule of each, by an ordered sum                    rule.rs
//! ```
//! Formats without sums here are decoded by the plain code, and multiplied with vectors. Float
//! weights have a loop of their own (`floats.rs`).
//!
//! It refuses to know how long a vector is. The one idea: no result leaves the vector unit before
//! all blocks are summed, because each step from there to a scalar register waits for it.

mod floats;
mod panel;
mod rule;
mod sums;
mod unpack;

use crate::activations::{Codes, Quants, Sums};
use crate::algo::matmul::{MatMul, RowTile};
use crate::algo::{gemm, measure};
use crate::format::{FloatFormat, KQuant, Q4_0, Q4_K, Q6_K, Q8_0, Quant32, Second};
use crate::isa::rvv::Rvv;
use crate::registry::Format;

/// Blocks that are summed at once.
const AT_ONCE: usize = 16;
/// Groups of 32 weights that meet a block of activations.
const GROUPS: usize = 8;

/// Integer sums of blocks of 256 weights.
struct BlockSums {
    isum: [i32; AT_ONCE],
    /// Zeros in formats without minima.
    bias: [i32; AT_ONCE],
}

/// The blocks of an activation row that meet consecutive blocks of weights.
#[derive(Clone, Copy)]
struct BlockInputs<'a> {
    /// From the first block on.
    codes: &'a [Codes],
    /// From the first block on.
    sums: &'a [Sums],
    /// From the first block on.
    scales: &'a [f32],
    /// From a block of the row to its next one.
    stride: usize,
}

impl<'a> BlockInputs<'a> {
    /// Blocks from `b` on of row `t`.
    #[inline(always)]
    fn new(x: &'a Quants<f32, Sums>, b: usize, t: usize) -> Self {
        let at = x.at(b, t);
        Self {
            codes: &x.codes[at..],
            sums: &x.sums[at..],
            scales: &x.scales[at..],
            stride: x.at(b + 1, t) - at,
        }
    }

    /// Asserts that there are `n` blocks, at least one and at most [`AT_ONCE`].
    #[inline(always)]
    fn assert_has(&self, n: usize) {
        assert!((1..=AT_ONCE).contains(&n), "{n} blocks at once");
        let last = (n - 1) * self.stride;
        let shortest = self.codes.len().min(self.sums.len());
        assert!(
            last < shortest.min(self.scales.len()),
            "activations of {n} blocks"
        );
    }
}

/// Blocks of 256 weights with sums in assembly; `d·K` is `d`.
trait Summed<const B: usize>: KQuant<Block = [u8; B]> {
    /// The first byte of `d`; `dmin` is behind it, if there are minima.
    const D_AT: usize;

    /// Writes the sums of the blocks, at most [`AT_ONCE`].
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; B]],
        x: BlockInputs<'_>,
        out: &mut BlockSums,
    );
}

impl Summed<144> for Q4_K {
    const D_AT: usize = 0;

    #[inline(always)]
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; 144]],
        x: BlockInputs<'_>,
        out: &mut BlockSums,
    ) {
        isa.q4_k(blocks, x, out);
    }
}

impl Summed<210> for Q6_K {
    const D_AT: usize = 208;

    #[inline(always)]
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; 210]],
        x: BlockInputs<'_>,
        out: &mut BlockSums,
    ) {
        isa.q6_k(blocks, x, out);
    }
}

/// Blocks of 32 weights with sums in assembly; their scale comes first.
trait Summed32<const B: usize>: Quant32<Block = [u8; B]> {
    /// What a sum of the activations' codes is multiplied with and added to `isum`.
    const CORRECTION: i32;

    /// Writes `Σ code·x` of each block.
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; B]],
        x: &Codes,
        out: &mut [i32; GROUPS],
    );
}

impl Summed32<18> for Q4_0 {
    const CORRECTION: i32 = -8;

    #[inline(always)]
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; 18]],
        x: &Codes,
        out: &mut [i32; GROUPS],
    ) {
        isa.q4_0(blocks, x, out);
    }
}

impl Summed32<34> for Q8_0 {
    const CORRECTION: i32 = 0;

    #[inline(always)]
    fn sums<const LONG: bool>(
        isa: Rvv<LONG>,
        blocks: &[[u8; 34]],
        x: &Codes,
        out: &mut [i32; GROUPS],
    ) {
        isa.q8_0(blocks, x, out);
    }
}

/// Activation rows from which on a panel takes less time than row by row.
const MANY: usize = 4;

impl<const LONG: bool> MatMul for Rvv<LONG> {
    #[inline(always)]
    fn k_quant<F: KQuant>(self, row_tile: RowTile<'_>) {
        if row_tile.rows.len() >= MANY {
            return panel::k_quant::<F, LONG>(self, row_tile);
        }
        match F::FORMAT {
            Format::Q4_K => k_quant::<Q4_K, LONG, _>(self, row_tile),
            Format::Q6_K => k_quant::<Q6_K, LONG, _>(self, row_tile),
            _ => gemm::k_quant::<_, F>(self, row_tile),
        }
    }

    #[inline(always)]
    fn quant_32<F: Quant32>(self, row_tile: RowTile<'_>) {
        if row_tile.rows.len() >= MANY && F::SECOND != Second::Scale {
            return panel::quant_32::<F, LONG>(self, row_tile);
        }
        match F::FORMAT {
            Format::Q4_0 => quant_32::<Q4_0, LONG, _>(self, row_tile),
            Format::Q8_0 => quant_32::<Q8_0, LONG, _>(self, row_tile),
            _ => gemm::quant_32::<_, F>(self, row_tile),
        }
    }

    #[inline(always)]
    fn float<F: FloatFormat>(self, row_tile: RowTile<'_>) {
        floats::float::<F, LONG>(self, row_tile);
    }

    #[inline(always)]
    fn dots(self, rounds: usize) -> u64 {
        measure::dots_of_arrays(self, rounds)
    }
}

/// Calls `product(row, t)` for every weight row and activation row, and keeps the results.
#[inline(always)]
fn for_each_product(row_tile: RowTile<'_>, product: impl Fn(&[u8], usize) -> f32) {
    let RowTile {
        w,
        rows,
        acc,
        width,
        ..
    } = row_tile;
    for (t, acc) in rows.zip(acc.chunks_exact_mut(width)) {
        for (r, out) in acc[..w.d_out()].iter_mut().enumerate() {
            *out = product(w.row(r), t);
        }
    }
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
fn k_quant<F: Summed<B>, const LONG: bool, const B: usize>(isa: Rvv<LONG>, row_tile: RowTile<'_>) {
    let x = row_tile.x.q8_256();
    for_each_product(row_tile, |row, t| k_quant_row::<F, LONG, B>(isa, row, x, t));
}

/// One product.
#[inline(always)]
fn k_quant_row<F: Summed<B>, const LONG: bool, const B: usize>(
    isa: Rvv<LONG>,
    row: &[u8],
    x: &Quants<f32, Sums>,
    t: usize,
) -> f32 {
    let mut out = 0.0;
    let mut sums = BlockSums {
        isum: [0; AT_ONCE],
        bias: [0; AT_ONCE],
    };
    for (i, blocks) in F::blocks(row).chunks(AT_ONCE).enumerate() {
        let inputs = BlockInputs::new(x, i * AT_ONCE, t);
        F::sums(isa, blocks, inputs, &mut sums);
        let factors = [
            isa.factors(blocks, F::D_AT),
            match F::MINS {
                true => isa.factors(blocks, F::D_AT + 2),
                false => [0.0; AT_ONCE],
            },
        ];
        out = isa.add_blocks(out, blocks.len(), &sums, &factors, inputs);
    }
    out
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
fn quant_32<F: Summed32<B>, const LONG: bool, const B: usize>(
    isa: Rvv<LONG>,
    row_tile: RowTile<'_>,
) {
    let x = row_tile.x.q8_32();
    for_each_product(row_tile, |row, t| {
        quant_32_row::<F, LONG, B>(isa, row, x, t)
    });
}

/// One product.
#[inline(always)]
fn quant_32_row<F: Summed32<B>, const LONG: bool, const B: usize>(
    isa: Rvv<LONG>,
    row: &[u8],
    x: &Quants<[f32; 8], [i16; 8]>,
    t: usize,
) -> f32 {
    let mut out = 0.0;
    let mut sums = [0; GROUPS];
    for (i, blocks) in F::blocks(row).chunks(AT_ONCE).enumerate() {
        let d = isa.factors(blocks, 0);
        let parts = blocks.chunks(GROUPS).zip(d.as_chunks::<GROUPS>().0);
        for (j, (blocks, d)) in parts.enumerate() {
            let at = x.at(i * (AT_ONCE / GROUPS) + j, t);
            F::sums(isa, blocks, &x.codes[at], &mut sums);
            let inputs = rule::GroupInputs {
                scales: &x.scales[at],
                sums: &x.sums[at],
                correction: F::CORRECTION,
            };
            out = isa.add_groups(out, blocks.len(), &sums, d, inputs);
        }
    }
    out
}
