//! As `panel.rs`, on the matrix tiles of AMX: many activation rows times a row tile of quantized
//! weight rows.
//!
//! ```text
//! for each block b of 256 weights, in order:
//!     panel = the row tile's rows, transposed, as there
//!     K-quants: planes = low and high bytes of (code − offset)·scale: a block is one product
//!     for 32 activation rows at once, for each vector r of weight rows:
//!         tiles: sums of low and of high bytes over 256 weights (blocks of 32: over each group)
//!         meanwhile, vectors: isum = 256·high + low of the last tiles; bias; out += f32 rule
//! ```
//! Applying the scales before the product instead of after every group is exact and leaves next to
//! no work for vectors; the product is done twice, which tiles can afford. The f32 rule and its
//! order are those of `panel.rs`, so the bits are too.

use super::matmul::RowTile;
use super::panel::{Inputs, ROWS, blocks};
use super::unpack::{Panel, TilePrefetch, TransposedBlocks, Unpack, as_rows, tails};
use crate::activations::{Codes, Sums};
use crate::format::{KQuant, Quant32, Second};
use crate::isa::Lanes;
use crate::isa::amx::{self, Amx, Tiles};
use crate::isa::avx512::Avx512;
use std::arch::x86_64::{__m512, __m512i};
use std::marker::PhantomData;
use std::ops::Range;

/// Vectors of weight rows in a row tile.
const R: usize = 4;
/// Results of an activation row.
type Out = [[f32; 16]; R];
/// Activation rows of two tiles.
const T: usize = 2 * amx::ROWS;
/// Activation rows that vectors finish between two products of tiles: as many as take about as
/// long.
const AT_ONCE: usize = 2;

/// Multiplies a row tile of a K-quant, 64 rows wide.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Amx, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("tile");
    let (rows, x) = (blocks(&row_tile, F::blocks), row_tile.x.q8_256());
    let (mut panel, mut unpack) = (
        Panel::<Avx512, R>::new(isa.vectors()),
        <TransposedBlocks as Unpack<Avx512>>::new(),
    );
    let mut ahead = TilePrefetch::new(&row_tile, 16 * R);
    let mut planes = [[[isa.vectors().splat(0); R]; 64]; 2];
    let mut tiles = isa.configure([amx::ROWS; 2], 64);
    let n_whole = rows[0].len();
    let tails = tails::<F, ROWS>(row_tile.w, 0);
    let ends = tails.as_ref().map_or(rows, as_rows);
    for b in 0..n_whole + usize::from(tails.is_some()) {
        let (rows, i) = if F::HAS_TAIL && b == n_whole {
            (&ends, 0)
        } else {
            (&rows, b)
        };
        ahead.piece(16 * R * size_of::<F::Block>(), R);
        for r in 0..R {
            ahead.prefetch(isa.vectors());
            unpack.k_quant::<F, R>(isa.vectors(), &rows[r * 16..], i, &mut panel, r);
        }
        split::<F>(isa, &panel, &mut planes);
        let of_block = x.at(b, row_tile.rows.start)..x.at(b, row_tile.rows.end);
        let x = Inputs {
            codes: &x.codes[of_block.clone()],
            scales: &x.scales[of_block.clone()],
            sums: &x.sums[of_block],
        };
        let acc = row_tile.acc.as_chunks_mut().0.as_chunks_mut().0;
        k_quant_block::<F>(
            &mut tiles,
            &Block {
                isa: isa.vectors(),
                panel: &panel,
                x,
            },
            &planes,
            acc,
        );
    }
}

/// The panel's codes times their scales, in two planes of bytes.
#[inline(always)]
fn split<F: KQuant>(isa: Amx, panel: &Panel<Avx512, R>, planes: &mut [amx::Plane<R>; 2]) {
    let words = 64 / F::GROUPS;
    for k in 0..64 {
        for r in 0..R {
            let [low, high] = isa.planes(panel.codes[k][r], F::OFFSET, panel.scale[k / words][r]);
            (planes[0][k][r], planes[1][k][r]) = (low, high);
        }
    }
}

/// A block of the weights of a row tile and of all its activation rows.
struct Block<'a, S, M> {
    isa: Avx512,
    panel: &'a Panel<Avx512, R>,
    x: Inputs<'a, S, M>,
}

impl<S, M> Block<'_, S, M> {
    /// The two tiles of the activation rows from `t`; the second is never empty, it then repeats
    /// the last row.
    #[inline(always)]
    fn tiles(&self, tiles: &mut Tiles, t: usize) -> [&[Codes]; 2] {
        let codes = &self.x.codes[t..self.x.codes.len().min(t + T)];
        let first = codes.len().min(amx::ROWS);
        let second = first.min(codes.len() - 1);
        tiles.reshape([first, codes.len() - second]);
        [&codes[..first], &codes[second..]]
    }
}

/// All activation rows times a block of a K-quant. While the tiles multiply [`T`] rows with a
/// vector of weight rows, vectors finish the piece before.
#[inline(always)]
fn k_quant_block<F: KQuant>(
    tiles: &mut Tiles,
    block: &Block<'_, f32, Sums>,
    planes: &[amx::Plane<R>; 2],
    acc: &mut [Out],
) {
    let (n, mut sums) = (acc.len(), [[[block.isa.splat(0); T]; 2]; 2]);
    let n_pieces = n / T * R;
    for i in 0..n_pieces {
        let (x, r) = (block.tiles(tiles, i / R * T), i % R);
        let [even, odd] = &mut sums;
        let (now, last) = if i % 2 == 0 {
            (even, &*odd)
        } else {
            (odd, &*even)
        };
        tiles.clear();
        if i == 0 {
            (0..4).for_each(|k| tiles.planes(x, planes, r, k));
        } else {
            let mut before = KQuantRest::<F>::new(block, (i - 1) / R * T, (i - 1) % R, acc);
            for k in 0..4 {
                tiles.first_low(x, planes, r, k);
                before.finish(last, 8 * k);
                tiles.first_high(planes, r, k);
                before.finish(last, 8 * k + 2);
                tiles.second_low(x, k);
                before.finish(last, 8 * k + 4);
                tiles.second_high();
                before.finish(last, 8 * k + 6);
            }
        }
        tiles.store(now);
    }
    if n_pieces > 0 {
        let mut last = KQuantRest::<F>::new(block, n / T * T - T, R - 1, acc);
        for j in (0..T).step_by(AT_ONCE) {
            last.finish(&sums[(n_pieces - 1) % 2], j);
        }
    }
    if n % T > 0 {
        let x = block.tiles(tiles, n / T * T);
        for r in 0..R {
            tiles.clear();
            (0..4).for_each(|k| tiles.planes(x, planes, r, k));
            tiles.store(&mut sums[0]);
            KQuantRest::<F>::few(block, n / T * T, r, acc, &sums[0]);
        }
    }
}

/// What vectors have to do for [`T`] activation rows and a vector of weight rows that tiles have
/// multiplied.
struct KQuantRest<'a, F> {
    isa: Avx512,
    /// Vector of weight rows.
    r: usize,
    d: [__m512; 2],
    min: [__m512i; 4],
    sums: &'a [Sums; T],
    scales: &'a [f32; T],
    out: &'a mut [Out; T],
    format: PhantomData<F>,
}

impl<'a, F: KQuant> KQuantRest<'a, F> {
    /// Of the activation rows from `t`.
    #[inline(always)]
    fn new(block: &'a Block<'a, f32, Sums>, t: usize, r: usize, acc: &'a mut [Out]) -> Self {
        let (panel, many) = (block.panel, "a whole piece");
        Self {
            isa: block.isa,
            r,
            d: [panel.d[0][r], panel.d[1][r]],
            min: minima(panel, r),
            sums: block.x.sums[t..].first_chunk().expect(many),
            scales: block.x.scales[t..].first_chunk().expect(many),
            out: acc[t..].first_chunk_mut().expect(many),
            format: PhantomData,
        }
    }

    /// The sums of [`AT_ONCE`] activation rows from `j` by the f32 rule into `out`.
    #[inline(always)]
    fn finish(&mut self, [low, high]: &[amx::Sums; 2], j: usize) {
        for j in j..j + AT_ONCE {
            let isum = self.isa.add(low[j], self.isa.times_256(high[j]));
            k_quant_rule::<F>(
                self.isa,
                isum,
                (&self.d, &self.min),
                (&self.sums[j], self.scales[j]),
                &mut self.out[j][self.r],
            );
        }
    }

    /// All of fewer than [`T`] rows from `t`.
    #[inline(always)]
    fn few(
        block: &'a Block<'a, f32, Sums>,
        t: usize,
        r: usize,
        acc: &'a mut [Out],
        [low, high]: &[amx::Sums; 2],
    ) {
        let (isa, panel) = (block.isa, block.panel);
        let (d, min) = ([panel.d[0][r], panel.d[1][r]], minima(panel, r));
        for (j, t) in (t..acc.len()).enumerate() {
            let isum = isa.add(low[j], isa.times_256(high[j]));
            k_quant_rule::<F>(
                isa,
                isum,
                (&d, &min),
                (&block.x.sums[t], block.x.scales[t]),
                &mut acc[t][r],
            );
        }
    }
}

/// Of vector `r`; not by `map`, which copies the whole array first.
#[inline(always)]
fn minima(panel: &Panel<Avx512, R>, r: usize) -> [__m512i; 4] {
    [
        panel.min[0][r],
        panel.min[1][r],
        panel.min[2][r],
        panel.min[3][r],
    ]
}

/// `out += dx·(d·isum − dmin·bias)`.
#[inline(always)]
fn k_quant_rule<F: KQuant>(
    isa: Avx512,
    isum: __m512i,
    (d, min): (&[__m512; 2], &[__m512i; 4]),
    (sums, dx): (&Sums, f32),
    out: &mut [f32; 16],
) {
    let mut v = isa.mul_lanes(d[0], isa.to_floats(isum));
    if F::MINS {
        let sums = sums.of(F::GROUPS);
        let mut bias = isa.splat(0);
        for bytes in [&sums.high, &sums.low] {
            bias = isa.times_256(bias);
            for c in 0..F::GROUPS / 4 {
                bias = isa.dot4(bias, min[c], isa.splat4(&bytes.as_chunks::<4>().0[c]));
            }
        }
        v = isa.sub_lanes(v, isa.mul_lanes(d[1], isa.to_floats(bias)));
    }
    isa.store_to(
        isa.add_lanes(isa.load_from(out), isa.mul_lanes(isa.splat_float(dx), v)),
        out,
    );
}

/// Multiplies a row tile of a format with blocks of 32, 64 rows wide.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Amx, row_tile: RowTile<'_>) {
    const { assert!(!matches!(F::SECOND, Second::Scale)) };
    let (rows, x) = (blocks(&row_tile, F::blocks), row_tile.x.q8_32());
    let n_groups = rows[0].len() * F::GROUPS;
    let (mut panel, mut unpack) = (
        Panel::<Avx512, R>::new(isa.vectors()),
        <TransposedBlocks as Unpack<Avx512>>::new(),
    );
    let mut ahead = TilePrefetch::new(&row_tile, 16 * R);
    let mut tiles = isa.configure([amx::ROWS; 2], 32);
    for b in 0..n_groups.div_ceil(8) {
        let groups = 8 * b..n_groups.min(8 * b + 8);
        let n_bytes = groups.len() * size_of::<F::Block>() / F::GROUPS;
        ahead.piece(16 * R * n_bytes, R);
        for r in 0..R {
            ahead.prefetch(isa.vectors());
            unpack.quant_32::<F, R>(
                isa.vectors(),
                &rows[r * 16..],
                groups.clone(),
                &mut panel,
                r,
            );
        }
        for code in panel.codes.as_flattened_mut() {
            *code = isa.signed(*code, F::OFFSET);
        }
        let of_block = x.at(b, row_tile.rows.start)..x.at(b, row_tile.rows.end);
        let x = Inputs {
            codes: &x.codes[of_block.clone()],
            scales: &x.scales[of_block.clone()],
            sums: &x.sums[of_block],
        };
        let acc = row_tile.acc.as_chunks_mut().0.as_chunks_mut().0;
        quant_32_block::<F>(
            &mut tiles,
            &Block {
                isa: isa.vectors(),
                panel: &panel,
                x,
            },
            acc,
        );
    }
}

/// All activation rows times eight groups of 32, two at a time. While the tiles multiply two,
/// vectors finish the two before.
#[inline(always)]
fn quant_32_block<F: Quant32>(
    tiles: &mut Tiles,
    block: &Block<'_, [f32; 8], [i16; 8]>,
    acc: &mut [Out],
) {
    let (n, mut sums) = (acc.len(), [[[block.isa.splat(0); T]; 2]; 2]);
    let n_pieces = n / T * R * 4;
    for i in 0..n_pieces {
        let (x, r, g) = (block.tiles(tiles, i / (4 * R) * T), i / 4 % R, i % 4 * 2);
        let [even, odd] = &mut sums;
        let (now, last) = if i % 2 == 0 {
            (even, &*odd)
        } else {
            (odd, &*even)
        };
        tiles.clear();
        if i == 0 {
            tiles.group(x, &block.panel.codes, r, g);
            tiles.group(x, &block.panel.codes, r, g + 1);
            tiles.store(now);
            continue;
        }
        let mut before = Quant32Rest::<F>::new(block, i - 1, acc);
        tiles.group(x, &block.panel.codes, r, g);
        before.finish(last, 0..12);
        tiles.group(x, &block.panel.codes, r, g + 1);
        before.finish(last, 12..24);
        tiles.store(now);
        before.finish(last, 24..T);
    }
    if n_pieces > 0 {
        Quant32Rest::<F>::new(block, n_pieces - 1, acc).finish(&sums[(n_pieces - 1) % 2], 0..T);
    }
    if n % T > 0 {
        quant_32_few::<F>(tiles, block, &mut sums[0], acc);
    }
}

/// The last of the activation rows, fewer than [`T`].
#[inline(always)]
fn quant_32_few<F: Quant32>(
    tiles: &mut Tiles,
    block: &Block<'_, [f32; 8], [i16; 8]>,
    sums: &mut [amx::Sums; 2],
    acc: &mut [Out],
) {
    let first = acc.len() / T * T;
    let x = block.tiles(tiles, first);
    for i in 0..4 * R {
        let (r, g) = (i / 4, i % 4 * 2);
        tiles.clear();
        tiles.group(x, &block.panel.codes, r, g);
        tiles.group(x, &block.panel.codes, r, g + 1);
        tiles.store(sums);
        let rule = Quant32Rule::<F>::new(block, r, g);
        for (j, t) in (first..acc.len()).enumerate() {
            rule.add(
                [sums[0][j], sums[1][j]],
                &block.x.scales[t],
                &block.x.sums[t],
                &mut acc[t][r],
            );
        }
    }
}

/// As [`KQuantRest`], of two groups.
struct Quant32Rest<'a, F> {
    r: usize,
    rule: Quant32Rule<F>,
    scales: &'a [[f32; 8]; T],
    sums: &'a [[i16; 8]; T],
    out: &'a mut [Out; T],
}

impl<'a, F: Quant32> Quant32Rest<'a, F> {
    #[inline(always)]
    fn new(block: &'a Block<'a, [f32; 8], [i16; 8]>, i: usize, acc: &'a mut [Out]) -> Self {
        let (many, t, r, g) = ("a whole piece", i / (4 * R) * T, i / 4 % R, i % 4 * 2);
        Self {
            r,
            rule: Quant32Rule::new(block, r, g),
            scales: block.x.scales[t..].first_chunk().expect(many),
            sums: block.x.sums[t..].first_chunk().expect(many),
            out: acc[t..].first_chunk_mut().expect(many),
        }
    }

    #[inline(always)]
    fn finish(&mut self, [first, second]: &[amx::Sums; 2], rows: Range<usize>) {
        for j in rows {
            self.rule.add(
                [first[j], second[j]],
                &self.scales[j],
                &self.sums[j],
                &mut self.out[j][self.r],
            );
        }
    }
}

/// The f32 rule of the groups `g` and `g + 1` of a vector of weight rows.
struct Quant32Rule<F> {
    isa: Avx512,
    g: usize,
    d: [__m512; 2],
    second: [__m512; 2],
    format: PhantomData<F>,
}

impl<F: Quant32> Quant32Rule<F> {
    #[inline(always)]
    fn new<S, M>(block: &Block<'_, S, M>, r: usize, g: usize) -> Self {
        let (isa, Panel { d, second, .. }) = (block.isa, block.panel);
        Self {
            isa,
            g,
            d: [d[g][r], d[g + 1][r]],
            second: [second[g][r], second[g + 1][r]],
            format: PhantomData,
        }
    }

    /// `out += (d·dx)·isum`, then `out += (m·dx)·sum of x`, of both groups, in order.
    #[inline(always)]
    fn add(&self, isum: [__m512i; 2], scales: &[f32; 8], sums: &[i16; 8], out: &mut [f32; 16]) {
        let isa = self.isa;
        let mut y = isa.load_from(out);
        for i in 0..2 {
            let dx = isa.splat_float(scales[self.g + i]);
            y = isa.add_lanes(
                y,
                isa.mul_lanes(isa.mul_lanes(self.d[i], dx), isa.to_floats(isum[i])),
            );
            if F::SECOND == Second::Minimum {
                let sum = isa.splat_float(f32::from(sums[self.g + i]));
                y = isa.add_lanes(y, isa.mul_lanes(isa.mul_lanes(self.second[i], dx), sum));
            }
        }
        isa.store_to(y, out);
    }
}
