//! NEON of 32-bit ARM: Q4_0, Q8_0, Q4_K, Q5_K, Q6_K and F16 with their inner loops in assembly;
//! other formats go through `algo/gemm.rs`.
//!
//! ```text
//! K-quants: for each weight row r and all of its blocks, or for each block and each r
//!     for each activation row t: acc[t][r] += f32 rule, all in assembly
//! blocks of 32: for each four weight rows and eight groups of them
//!     for each activation row t: acc[t][r to r + 3] += f32 rule, all in assembly
//! F16, with VFPv4: the sixteen lanes of each weight row and activation row in assembly
//! ```
//! One activation row waits for memory, so weight rows are read from end to end. Several meet a
//! block of all weight rows of the row tile while their own blocks stay in L1. A block is unpacked
//! again for each activation row, which takes about a third of the instructions.

mod f16;
mod k_quants;
mod legacy;

pub(crate) use f16::halves;

use crate::activations::{Codes, Quants, Sums};
use crate::algo::gemm;
use crate::algo::matmul::RowTile;
use crate::format::{KQuant, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Quant32};
use crate::isa::armv7::Armv7;
use crate::registry::Format;
use std::ops::Range;

/// Activation rows whose blocks stay in L1 together: 4 KB of codes.
const AT_ONCE: usize = 16;

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Armv7, row_tile: RowTile<'_>) {
    match F::FORMAT {
        Format::Q4_K => blocks_256::<Q4_K>(isa, row_tile),
        Format::Q5_K => blocks_256::<Q5_K>(isa, row_tile),
        Format::Q6_K => blocks_256::<Q6_K>(isa, row_tile),
        _ => gemm::k_quant::<_, F>(isa, row_tile),
    }
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Armv7, row_tile: RowTile<'_>) {
    match F::FORMAT {
        Format::Q4_0 => blocks_32::<Q4_0>(isa, row_tile),
        Format::Q8_0 => blocks_32::<Q8_0>(isa, row_tile),
        _ => gemm::quant_32::<_, F>(isa, row_tile),
    }
}

/// A K-quant whose blocks are multiplied in assembly.
trait Block256: KQuant {
    /// `acc = acc + dx·(d·Σ scale·(code − OFFSET)·x − dmin·Σ min·Σx)` for each block, in order.
    fn add_blocks(isa: Armv7, blocks: &[Self::Block], x: &BlocksOfRow<'_>, acc: &mut f32);
}

/// Blocks of an activation row.
struct BlocksOfRow<'a> {
    /// Every `stride`th one is of the row, from the first on; so are the others.
    codes: &'a [Codes],
    scales: &'a [f32],
    sums: &'a [Sums],
    stride: usize,
}

impl<'a> BlocksOfRow<'a> {
    /// Those from block `b` of row `t` on.
    #[inline(always)]
    fn new(x: &'a Quants<f32, Sums>, b: usize, t: usize) -> Self {
        let at = x.at(b, t);
        Self {
            codes: &x.codes[at..],
            scales: &x.scales[at..],
            sums: &x.sums[at..],
            stride: x.at(1, 0),
        }
    }

    /// Asserts that there are `n` blocks, and not none.
    #[inline(always)]
    fn assert_blocks(&self, n: usize) {
        assert!(n > 0);
        let last = self.stride.saturating_mul(n - 1);
        assert!(last < self.codes.len() && last < self.scales.len() && last < self.sums.len());
    }
}

/// A format with blocks of 32 weights that are multiplied in assembly.
trait Block32: Quant32 {
    /// `acc = acc + (d·dx)·Σ (code − OFFSET)·x` for groups of four weight rows, in order; at most
    /// eight groups, as many of each row.
    fn add_groups(isa: Armv7, rows: [&[Self::Block]; 4], x: &EightGroups<'_>, acc: &mut [f32; 4]);
}

/// Eight groups of an activation row.
struct EightGroups<'a> {
    codes: &'a [i8; 256],
    scales: &'a [f32; 8],
    sums: &'a [i16; 8],
}

impl<'a> EightGroups<'a> {
    /// Those of block `b` of row `t`.
    #[inline(always)]
    fn new(x: &'a Quants<[f32; 8], [i16; 8]>, b: usize, t: usize) -> Self {
        let at = x.at(b, t);
        Self {
            codes: &x.codes[at].0,
            scales: &x.scales[at],
            sums: &x.sums[at],
        }
    }
}

/// Calls `f(r, run)` for weight rows, or tiles of them, and runs of their blocks: all blocks for
/// one activation row, else one after the other.
#[inline(always)]
fn for_each_run(
    n_activation_rows: usize,
    n_tiles: usize,
    n_blocks: usize,
    mut f: impl FnMut(usize, Range<usize>),
) {
    let n = if n_activation_rows == 1 { n_blocks } else { 1 };
    for first in (0..n_blocks).step_by(n.max(1)) {
        for r in 0..n_tiles {
            f(r, first..first + n);
        }
    }
}

fn blocks_256<F: Block256>(isa: Armv7, mut row_tile: RowTile<'_>) {
    while !row_tile.rows.is_empty() {
        blocks_256_of_rows::<F>(isa, row_tile.take_rows(AT_ONCE));
    }
}

/// The same of a few activation rows.
fn blocks_256_of_rows<F: Block256>(isa: Armv7, row_tile: RowTile<'_>) {
    let RowTile {
        w,
        x,
        rows,
        acc,
        width,
        ..
    } = row_tile;
    let x = x.q8_256();
    let blocks = F::blocks(w.bytes());
    let n_blocks = w.d_in() / 256;
    for_each_run(rows.len(), w.d_out(), n_blocks, |r, run| {
        let blocks = &blocks[r * n_blocks..][run.clone()];
        for (i, t) in rows.clone().enumerate() {
            let x = BlocksOfRow::new(x, run.start, t);
            F::add_blocks(isa, blocks, &x, &mut acc[i * width + r]);
        }
    });
}

fn blocks_32<F: Block32>(isa: Armv7, mut row_tile: RowTile<'_>) {
    while !row_tile.rows.is_empty() {
        blocks_32_of_rows::<F>(isa, row_tile.take_rows(AT_ONCE));
    }
}

/// The same of a few activation rows.
fn blocks_32_of_rows<F: Block32>(isa: Armv7, row_tile: RowTile<'_>) {
    let RowTile {
        w,
        x,
        rows,
        acc,
        width,
        ..
    } = row_tile;
    let x = x.q8_32();
    let blocks = F::blocks(w.bytes());
    let n_groups = w.d_in() / 32;
    let n_fours = w.d_out().div_ceil(4);
    for_each_run(rows.len(), n_fours, n_groups.div_ceil(8), |r, run| {
        for b in run {
            let groups = 8 * b..n_groups.min(8 * b + 8);
            // The last weight row is repeated where there are none left.
            let row = |k: usize| &blocks[(4 * r + k).min(w.d_out() - 1) * n_groups..];
            let four = [0, 1, 2, 3].map(|k| &row(k)[groups.clone()]);
            for (i, t) in rows.clone().enumerate() {
                let x = EightGroups::new(x, b, t);
                let acc = acc[i * width + 4 * r..].first_chunk_mut();
                F::add_groups(
                    isa,
                    four,
                    &x,
                    acc.expect("row tiles are fours of rows wide"),
                );
            }
        }
    });
}

#[cfg(test)]
mod tests;
