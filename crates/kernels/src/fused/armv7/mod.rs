//! NEON of 32-bit ARM: Q4_0, Q8_0, Q4_K, Q5_K, Q6_K and F16 with their inner loops in assembly;
//! other formats go through `algo/gemm.rs`.
//!
//! ```text
//! K-quants: for each weight row r and block b, whose header is read once
//!     for each activation row t: [isum, bias] in assembly; acc[t][r] += f32 rule, in VFP
//! blocks of 32: for each four weight rows and eight groups of them
//!     for each activation row t: acc[t][r to r + 3] += f32 rule, all in assembly
//! F16, with VFPv4: the sixteen lanes of each weight row and activation row in assembly
//! ```
//! One activation row waits for memory, so weight rows are read from end to end. Several meet a
//! block of all weight rows of the row tile while their own blocks stay in L1. A block is unpacked
//! again for each activation row, which is a quarter of the work: four in nineteen instructions of
//! Q4_K. So there is no panel (`algo/panel.rs`).

mod f16;
mod k_quants;
mod legacy;

pub(crate) use f16::halves;

use crate::activations::Sums;
use crate::algo::gemm;
use crate::algo::matmul::RowTile;
use crate::format::float::widen_f16;
use crate::format::{BlockHeader, KQuant, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Quant32};
use crate::isa::armv7::Armv7;
use crate::registry::Format;

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
    /// `[Σ scale·(code − OFFSET)·x, Σ min·Σx]`; the latter is 0 in formats without minima.
    fn sums(
        isa: Armv7,
        block: &Self::Block,
        header: &BlockHeader,
        x: &[i8; 256],
        sums: &Sums,
    ) -> [i32; 2];
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

/// Calls `f(i, b)` for some tiles of weight rows and their blocks: row by row for one activation
/// row, else block by block.
#[inline(always)]
fn for_each_block(
    n_activation_rows: usize,
    n_tiles: usize,
    n_blocks: usize,
    mut f: impl FnMut(usize, usize),
) {
    let by_row = n_activation_rows == 1;
    let n_outer = if by_row { n_tiles } else { n_blocks };
    let n_inner = if by_row { n_blocks } else { n_tiles };
    for outer in 0..n_outer {
        for inner in 0..n_inner {
            let i = if by_row { outer } else { inner };
            let b = if by_row { inner } else { outer };
            f(i, b);
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
    for_each_block(rows.len(), w.d_out(), w.d_in() / 256, |r, b| {
        let block = &F::blocks(w.row(r))[b];
        let header = F::head(block);
        let d = widen_f16(header.d) * F::K;
        let dmin = widen_f16(header.dmin);
        for (t, acc) in rows.clone().zip(acc.chunks_exact_mut(width)) {
            let at = x.at(b, t);
            let [isum, bias] = F::sums(isa, block, &header, &x.codes[at].0, &x.sums[at]);
            let mut v = d * isum as f32;
            if F::MINS {
                v -= dmin * bias as f32;
            }
            acc[r] += x.scales[at] * v;
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
    let n_groups = w.d_in() / 32;
    for_each_block(
        rows.len(),
        w.d_out().div_ceil(4),
        n_groups.div_ceil(8),
        |i, b| {
            let groups = 8 * b..n_groups.min(8 * b + 8);
            // The last weight row is repeated where there are none left.
            let row = |k: usize| F::blocks(w.row((4 * i + k).min(w.d_out() - 1)));
            let four = [0, 1, 2, 3].map(|k| &row(k)[groups.clone()]);
            for (t, acc) in rows.clone().zip(acc.chunks_exact_mut(width)) {
                let at = x.at(b, t);
                let groups = EightGroups {
                    codes: &x.codes[at].0,
                    scales: &x.scales[at],
                    sums: &x.sums[at],
                };
                F::add_groups(isa, four, &groups, &mut acc.as_chunks_mut().0[i]);
            }
        },
    );
}

#[cfg(test)]
mod tests;
