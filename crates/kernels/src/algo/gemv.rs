//! One activation row times a row tile of quantized weight rows: decoding a token, bound by memory.
//!
//! ```text
//! for 8 weight rows at once (4 of formats with minima):
//!     for each block b, in order:
//!         for each row: prefetch, decode 32 codes at a time, multiply with x and the scales, add
//!         eight sums (8 isum; or 4 isum and 4 bias) -> one vector by a tree of horizontal adds
//!         out[rows] += f32 rule
//! ```
//! Codes never leave the registers. It prefetches the row tile that the thread computes next,
//! in the four streams of [`NextTile`] and spread over the arithmetic: without it a core waits for
//! memory half of the time.

use super::matmul::RowTile;
use super::unpack::{NextTile, as_rows, rows_at, tails};
use crate::activations::{Quants, Sums};
use crate::format::{KQuant, Quant32, ScaleKind, Second};
use crate::isa::Wide;
#[cfg(not(any(
    all(target_arch = "x86_64", feature = "avx512"),
    target_arch = "aarch64"
)))]
use crate::registry::Format;

/// Up to how many activation rows are multiplied one by one, not as a panel.
#[cfg(not(any(
    all(target_arch = "x86_64", feature = "avx512"),
    target_arch = "aarch64"
)))]
pub(crate) const fn few(_: Format) -> usize {
    1
}

/// Multiplies a row tile of a K-quant, one activation row after the other.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: impl Wide, mut row_tile: RowTile<'_>) {
    while !row_tile.rows.is_empty() {
        k_quant_row::<F>(isa, row_tile.take_rows(1));
    }
}

/// One activation row.
#[inline(always)]
fn k_quant_row<F: KQuant>(isa: impl Wide, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("gemv");
    let (step, d_out) = (if F::MINS { 4 } else { 8 }, row_tile.w.d_out());
    let next = NextTile::new(&row_tile, d_out);
    for r in (0..d_out).step_by(step) {
        let sums =
            k_quant_rows::<_, F>(isa, &row_tile, r, next.behind(r * row_tile.w.row(0).len()));
        let out = &mut row_tile.acc[r..d_out.min(r + step)];
        out.copy_from_slice(&sums[..out.len()]);
    }
}

/// Products of the rows from `r`, the last one repeated where there are none left.
#[inline(always)]
fn k_quant_rows<I: Wide, F: KQuant>(
    isa: I,
    row_tile: &RowTile<'_>,
    r: usize,
    next: NextTile<'_>,
) -> [f32; 8] {
    let (x, w) = (row_tile.x.q8_256(), row_tile.w);
    let n_rows = if F::MINS { 4 } else { 8 };
    let rows: [&[F::Block]; 8] =
        std::array::from_fn(|i| F::blocks(w.row((r + i).min(w.d_out() - 1))));
    let n = rows[0].len();
    let rows = rows.map(|row| &row[..n]);
    let tails = tails::<F, 8>(w, r);
    let ends = tails.as_ref().map_or(rows, as_rows);
    let mut out = isa.splat8(0.0);
    for b in 0..n + usize::from(tails.is_some()) {
        let (rows, i_block) = rows_at::<F, _>(&rows, &ends, b);
        let at = x.at(b, row_tile.rows.start);
        let (mut sums, mut d) = ([isa.start(0); 8], [0; 8]);
        for i in 0..n_rows {
            next.block(isa, n_rows * b + i, size_of::<F::Block>());
            let block = &rows[i][i_block];
            let head = F::head(block);
            sums[i] = block_sum::<I, F>(isa, block, head.scale, x, at);
            d[i] = head.d;
            if F::MINS {
                sums[i + 4] = isa.dot_sums(head.min, &x.sums[at].of(F::GROUPS).whole, 1);
                d[i + 4] = head.dmin;
            }
        }
        let mut d = isa.widen8(&d);
        if F::K != 1.0 {
            d = isa.mul8(d, isa.splat8(F::K));
        }
        let mut v = isa.mul8(d, isa.totals(sums));
        if F::MINS {
            v = isa.low_minus_high(v);
        }
        out = isa.add8(out, isa.mul8(isa.splat8(x.scales[at]), v));
    }
    let mut sums = [0.0; 8];
    isa.store8(out, &mut sums);
    sums
}

/// `isum` of a block.
#[inline(always)]
fn block_sum<I: Wide, F: KQuant>(
    isa: I,
    block: &F::Block,
    scale: [u64; 2],
    x: &Quants<f32, Sums>,
    at: usize,
) -> I::A {
    let scales = if F::GROUPS == 8 {
        isa.scales_of_32(scale[0])
    } else {
        isa.scales_of_16(scale)
    };
    let mut sum = match F::OFFSET {
        0 => isa.start(0),
        65.. if I::SIGNED => isa.start(0),
        offset => isa.dot_sums(scale, &x.sums[at].of(F::GROUPS).whole, -i32::from(offset)),
    };
    let (codes, signs) = (x.codes[at].0.as_chunks::<32>().0, F::signs(isa, block));
    for g in 0..8 {
        let v = F::biased_codes(isa, block, signs.as_ref(), g);
        sum = match F::OFFSET {
            65.. => isa.dot_scaled_bytes(sum, isa.any_codes(v, F::OFFSET), &codes[g], scales, g),
            _ => isa.dot_scaled(sum, v, &codes[g], scales, g),
        };
    }
    sum
}

/// Multiplies a row tile of a format with blocks of 32, one activation row after the other.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: impl Wide, mut row_tile: RowTile<'_>) {
    while !row_tile.rows.is_empty() {
        quant_32_row::<F>(isa, row_tile.take_rows(1));
    }
}

/// One activation row.
#[inline(always)]
fn quant_32_row<F: Quant32>(isa: impl Wide, row_tile: RowTile<'_>) {
    let d_out = row_tile.w.d_out();
    let next = NextTile::new(&row_tile, d_out);
    for r in (0..d_out).step_by(8) {
        let sums =
            quant_32_rows::<_, F>(isa, &row_tile, r, next.behind(r * row_tile.w.row(0).len()));
        let out = &mut row_tile.acc[r..d_out.min(r + 8)];
        out.copy_from_slice(&sums[..out.len()]);
    }
}

/// As [`k_quant_rows`].
#[inline(always)]
fn quant_32_rows<I: Wide, F: Quant32>(
    isa: I,
    row_tile: &RowTile<'_>,
    r: usize,
    next: NextTile<'_>,
) -> [f32; 8] {
    let (x, w) = (row_tile.x.q8_32(), row_tile.w);
    let rows: [&[F::Block]; 8] =
        std::array::from_fn(|i| F::blocks(w.row((r + i).min(w.d_out() - 1))));
    let n = rows[0].len();
    let rows = rows.map(|row| &row[..n]);
    let mut out = isa.splat8(0.0);
    for b in 0..n {
        for g in 0..F::GROUPS {
            let (at, j) = (
                x.at((b * F::GROUPS + g) / 8, row_tile.rows.start),
                (b * F::GROUPS + g) % 8,
            );
            let (codes, dx) = (&x.codes[at].0.as_chunks::<32>().0[j], x.scales[at][j]);
            let group = GroupOfRows::<F> { rows: &rows, b, g };
            let prefetch = |i: usize| {
                if g == 0 {
                    next.block(isa, 8 * b + i, size_of::<F::Block>());
                }
            };
            out = group.add(isa, codes, (dx, x.sums[at][j]), out, prefetch);
        }
    }
    let mut sums = [0.0; 8];
    isa.store8(out, &mut sums);
    sums
}

/// Group `g` of block `b` of eight rows.
struct GroupOfRows<'a, F: Quant32> {
    rows: &'a [&'a [F::Block]; 8],
    b: usize,
    g: usize,
}

impl<F: Quant32> GroupOfRows<'_, F> {
    /// `out` plus the group's products with the codes `x`, of scale `dx` and sum `sum`.
    #[inline(always)]
    fn add<I: Wide>(
        &self,
        isa: I,
        x: &[i8; 32],
        (dx, sum): (f32, i16),
        out: I::F8,
        prefetch: impl Fn(usize),
    ) -> I::F8 {
        let dx = isa.splat8(dx);
        if F::SECOND == Second::Scale {
            let first = only_half(x, 0);
            let (isum, d, _) = self.sums(isa, &first, sum_of(&first), prefetch);
            let out = isa.add8(out, isa.mul8(isa.mul8(isa.widen8(&d), dx), isum));
            let last = only_half(x, 1);
            let (isum, _, d) = self.sums(isa, &last, sum_of(&last), |_| ());
            return isa.add8(out, isa.mul8(isa.mul8(isa.widen8(&d), dx), isum));
        }
        let (isum, d, second) = self.sums(isa, x, sum, prefetch);
        let d = match F::D {
            ScaleKind::F16 => isa.widen8(&d),
            ScaleKind::E8M0 => isa.powers8(&d),
        };
        let d = if F::K == 1.0 {
            d
        } else {
            isa.mul8(d, isa.splat8(F::K))
        };
        let out = isa.add8(out, isa.mul8(isa.mul8(d, dx), isum));
        if F::SECOND == Second::Nothing {
            return out;
        }
        let min = isa.mul8(isa.widen8(&second), dx);
        isa.add8(out, isa.mul8(min, isa.splat8(f32::from(sum))))
    }

    /// `isum` of each row, and both factors.
    #[inline(always)]
    fn sums<I: Wide>(
        &self,
        isa: I,
        x: &[i8; 32],
        sum: i16,
        prefetch: impl Fn(usize),
    ) -> (I::F8, [u16; 8], [u16; 8]) {
        let any = F::OFFSET > 64;
        let first = if any && I::SIGNED {
            0
        } else {
            -i32::from(F::OFFSET) * i32::from(sum)
        };
        let first = isa.start(first);
        let (mut sums, mut d, mut second) = ([first; 8], [0; 8], [0; 8]);
        for i in 0..8 {
            prefetch(i);
            let block = &self.rows[i][self.b];
            let v = F::codes(isa, block, self.g);
            sums[i] = if any {
                isa.dot_bytes(first, isa.any_codes(v, F::OFFSET), x)
            } else {
                isa.dot_codes(first, v, x)
            };
            (d[i], second[i]) = (F::d(block, self.g), F::second(block, self.g));
        }
        (isa.totals(sums), d, second)
    }
}

/// The sum of some codes.
#[inline(always)]
fn sum_of(codes: &[i8; 32]) -> i16 {
    codes.iter().map(|&code| i16::from(code)).sum()
}

/// The first or the last 16 of `codes`, zeros in place of the others.
#[inline(always)]
fn only_half(codes: &[i8; 32], half: usize) -> [i8; 32] {
    let mut out = [0; 32];
    out.as_chunks_mut::<16>().0[half] = codes.as_chunks::<16>().0[half];
    out
}
