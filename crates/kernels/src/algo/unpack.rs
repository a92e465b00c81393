//! Blocks of weight rows made into a panel: transposed, so that a lane is a row.
//!
//! Knows how blocks become vectors, and how they are prefetched from memory; not how they are
//! multiplied. There are two ways: [`DecodedRows`] decodes row by row with the decoder that each
//! format has anyway, and transposes the codes; [`TransposedBlocks`] transposes the blocks as they
//! lie in memory and unpacks all rows at once, which takes fewer instructions. A format must say
//! how, and the program for boards would grow too large with it. Q4_K times 8 activation rows, from
//! the level 2 cache, went from 7.9 to 10.0 GB/s of weights on a core with AVX-512.
//!
//! With few activation rows it is memory that is waited for, and no processor follows 64 rows at
//! once by itself. [`TilePrefetch`] prefetches the row tile that the thread computes next, a few
//! lines at a time all along, in four streams: a core has a dozen or so lines under way, waits when
//! it asks for more, and is helped by its prefetcher only where several streams lie far apart (one
//! core of a Xeon, 8 rows of Q4_K, GB/s: the lines of a block of 16 rows at once 5.2, in one stream
//! 6.0, two 7.7, four 8.1, eight 8.0).

use super::matmul::RowTile;
use crate::Matrix;
use crate::format::{BlockHeader, KQuant, PanelColumns, Quant32, ScaleKind, Second};
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use crate::isa::Words;
use crate::isa::{Lanes, Row};
use crate::scratch;
use std::ops::Range;

/// Minimum lanes of vectors that have [`TilePrefetch`]. A program for boards, which must stay
/// small, has it for wider vectors only.
const WIDE: usize = if cfg!(feature = "avx512") { 8 } else { 16 };

/// Whether there are tiles of two activation rows; in a program for boards, which must stay small,
/// for wide vectors only.
#[inline(always)]
pub(super) const fn has_pairs<I: Lanes>() -> bool {
    cfg!(feature = "avx512") || WIDE <= I::LANES
}

/// Whether codes biased by `offset` are multiplied as any bytes.
#[inline(always)]
pub(super) const fn is_any<I: Lanes>(offset: i16) -> bool {
    offset > I::ANY_ABOVE
}

/// Whether products are those of codes biased by `offset`, and sums of activations correct them.
#[inline(always)]
pub(super) const fn is_corrected<I: Lanes>(offset: i16) -> bool {
    offset != 0 && !(I::SIGNED_CODES && is_any::<I>(offset))
}

/// The shorter blocks that end rows `first` to `first + N − 1` of `w`, widened, the last row
/// repeated where there are none left; `None` if rows end in whole blocks.
#[inline(always)]
pub(crate) fn tails<F: KQuant, const N: usize>(
    w: Matrix<'_>,
    first: usize,
) -> Option<[F::Block; N]> {
    if !F::HAS_TAIL {
        return None;
    }
    let mut tails = [F::tail(w.row(first))?; N];
    for r in 1..N.min(w.d_out() - first) {
        tails[r] = F::tail(w.row(first + r))?;
    }
    let last = tails[N.min(w.d_out() - first) - 1];
    tails[N.min(w.d_out() - first)..].fill(last);
    Some(tails)
}

/// Each of the blocks as a row.
#[inline(always)]
pub(crate) fn as_rows<B, const N: usize>(blocks: &[B; N]) -> [&[B]; N] {
    let mut rows = [std::slice::from_ref(&blocks[0]); N];
    for (row, block) in rows.iter_mut().zip(blocks) {
        *row = std::slice::from_ref(block);
    }
    rows
}

/// The rows that have block `b`, and its number in them: `ends` is [`as_rows`] of the shorter
/// blocks behind the whole ones of `rows`.
#[inline(always)]
pub(crate) fn rows_at<'r, 'a, F: KQuant, const N: usize>(
    rows: &'r [&'a [F::Block]; N],
    ends: &'r [&'a [F::Block]; N],
    b: usize,
) -> (&'r [&'a [F::Block]; N], usize) {
    if F::HAS_TAIL && b == rows[0].len() {
        (ends, 0)
    } else {
        (rows, b)
    }
}

/// 256 weights of R vectors of rows, lane = row.
pub(crate) struct Panel<I: Lanes, const R: usize> {
    pub(super) codes: [[I::W; R]; 64],
    /// Integer scales of the groups of a K-quant.
    pub(super) scale: [[I::N; R]; 16],
    /// Their minima, four in a word.
    pub(super) min: [[I::W; R]; 4],
    /// `d` of each group of 32; of the K-quants `d·K` and `dmin`.
    pub(super) d: [[I::L; R]; 8],
    /// What each group of 32 has beside it, if the format says so.
    pub(super) second: [[I::L; R]; 8],
}

impl<I: Lanes, const R: usize> Panel<I, R> {
    #[inline(always)]
    pub(super) fn new(isa: I) -> Self {
        const { assert!(size_of::<Self>() <= scratch::PANEL) };
        let (w, zero) = (isa.splat4(&[0; 4]), isa.splat(0));
        let d = [[isa.splat_float(0.0); R]; 8];
        Self {
            codes: [[w; R]; 64],
            scale: [[zero; R]; 16],
            min: [[w; R]; 4],
            d,
            second: d,
        }
    }

    #[inline(always)]
    fn vector(&mut self, isa: I, r: usize, offset: i16) -> PanelVector<'_, I, R> {
        PanelVector {
            isa,
            panel: self,
            r,
            offset,
        }
    }
}

/// Vector `r` of a panel, of codes biased by `offset`.
struct PanelVector<'a, I: Lanes, const R: usize> {
    isa: I,
    panel: &'a mut Panel<I, R>,
    r: usize,
    offset: i16,
}

impl<I: Lanes, const R: usize> PanelColumns<I> for PanelVector<'_, I, R> {
    #[inline(always)]
    fn codes(&mut self, k: usize, codes: I::W) {
        self.panel.codes[k][self.r] = if is_any::<I>(self.offset) {
            self.isa.any_codes(codes, self.offset)
        } else {
            codes
        };
    }

    #[inline(always)]
    fn scales(&mut self, c: usize, scales: I::W) {
        for j in 0..4 {
            self.panel.scale[4 * c + j][self.r] = self.isa.scale(scales, j);
        }
    }

    #[inline(always)]
    fn minima(&mut self, c: usize, minima: I::W) {
        self.panel.min[c][self.r] = minima;
    }

    #[inline(always)]
    fn factors(&mut self, d: I::L, dmin: I::L) {
        (self.panel.d[0][self.r], self.panel.d[1][self.r]) = (d, dmin);
    }
}

/// A way from blocks to vectors of a panel.
pub(crate) trait Unpack<I: Lanes> {
    fn new() -> Self;

    /// Block `b` of the first `LANES` rows into vector `r`.
    fn k_quant<F: KQuant, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        b: usize,
        panel: &mut Panel<I, R>,
        r: usize,
    );

    /// Up to 8 blocks of the first `LANES` rows into vector `r`. The codes of groups that are
    /// missing, at the end of a row, mean nothing; their factors are zero in vectors that are
    /// [`WIDE`], and mean nothing in others.
    fn quant_32<F: Quant32, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        groups: Range<usize>,
        panel: &mut Panel<I, R>,
        r: usize,
    );
}

/// The way of this program.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
pub(crate) type PanelUnpack = TransposedBlocks;
/// The way of this program.
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
)))]
pub(crate) type PanelUnpack = DecodedRows;

/// The decoded rows of one vector, before they are transposed.
#[repr(C, align(64))]
pub(crate) struct DecodedRows {
    codes: [[u8; 256]; 16],
    scale: [[u8; 16]; 16],
    min: [[u8; 16]; 16],
    /// f16, as `dmin` and `m_32`.
    d: [u16; 16],
    dmin: [u16; 16],
    factors: GroupFactors,
}

/// Of the groups of 32, each what the format says.
struct GroupFactors {
    d: [[u16; 16]; 8],
    second: [[u16; 16]; 8],
}

impl GroupFactors {
    const EMPTY: Self = Self {
        d: [[0; 16]; 8],
        second: [[0; 16]; 8],
    };

    /// Groups from `g` on are missing.
    #[inline(always)]
    fn end(&mut self, g: usize) {
        for g in g..8 {
            (self.d[g], self.second[g]) = ([0; 16], [0; 16]);
        }
    }

    /// Group `s` of a block is group `g` of row `i`.
    #[inline(always)]
    fn take<F: Quant32>(&mut self, i: usize, g: usize, (block, s): (&F::Block, usize)) {
        self.d[g][i] = F::d(block, s);
        if F::SECOND != Second::Nothing {
            self.second[g][i] = F::second(block, s);
        }
    }

    #[inline(always)]
    fn give<I: Lanes, F: Quant32, const R: usize>(
        &self,
        isa: I,
        panel: &mut Panel<I, R>,
        r: usize,
    ) {
        for g in 0..8 {
            let d = match F::D {
                ScaleKind::F16 => isa.widen_lanes(&self.d[g]),
                ScaleKind::E8M0 => isa.power_lanes(&self.d[g]),
            };
            panel.d[g][r] = if F::K == 1.0 {
                d
            } else {
                isa.mul_lanes(d, isa.splat_float(F::K))
            };
            if F::SECOND != Second::Nothing {
                panel.second[g][r] = isa.widen_lanes(&self.second[g]);
            }
        }
    }
}

impl DecodedRows {
    #[inline(always)]
    fn codes<I: Lanes>(&mut self, isa: I, row: usize, g: usize, codes: I::V) {
        isa.store(codes, &mut self.codes[row].as_chunks_mut::<32>().0[g]);
    }

    #[inline(always)]
    fn head(&mut self, row: usize, head: &BlockHeader) {
        for (out, words) in [
            (&mut self.scale[row], head.scale),
            (&mut self.min[row], head.min),
        ] {
            out[..8].copy_from_slice(&words[0].to_le_bytes());
            out[8..].copy_from_slice(&words[1].to_le_bytes());
        }
        (self.d[row], self.dmin[row]) = (head.d, head.dmin);
    }

    #[inline(always)]
    fn transpose_codes<I: Lanes>(&self, isa: I, out: &mut impl PanelColumns<I>) {
        for c in 0..16 {
            let words = isa.columns(&self.codes, c);
            for j in 0..4 {
                out.codes(4 * c + j, words[j]);
            }
        }
    }
}

impl<I: Lanes> Unpack<I> for DecodedRows {
    #[inline(always)]
    fn new() -> Self {
        Self {
            codes: [[0; 256]; 16],
            scale: [[0; 16]; 16],
            min: [[0; 16]; 16],
            d: [0; 16],
            dmin: [0; 16],
            factors: GroupFactors::EMPTY,
        }
    }

    #[inline(always)]
    fn k_quant<F: KQuant, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        b: usize,
        panel: &mut Panel<I, R>,
        r: usize,
    ) {
        for (i, row) in rows[..I::LANES].iter().enumerate() {
            let block = &row[b];
            prefetch(isa, block.as_ref());
            self.head(i, &F::head(block));
            let signs = F::signs(isa, block);
            for g in 0..8 {
                self.codes(isa, i, g, F::biased_codes(isa, block, signs.as_ref(), g));
            }
        }
        let mut out = panel.vector(isa, r, F::OFFSET);
        self.transpose_codes(isa, &mut out);
        let words = isa.columns(&self.scale, 0);
        for c in 0..F::GROUPS / 4 {
            out.scales(c, words[c]);
        }
        if F::MINS {
            let words = isa.columns(&self.min, 0);
            for c in 0..4 {
                out.minima(c, words[c]);
            }
        }
        let d = isa.mul_lanes(isa.widen_lanes(&self.d), isa.splat_float(F::K));
        out.factors(d, isa.widen_lanes(&self.dmin));
    }

    #[inline(always)]
    fn quant_32<F: Quant32, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        groups: Range<usize>,
        panel: &mut Panel<I, R>,
        r: usize,
    ) {
        for (i, row) in rows[..I::LANES].iter().enumerate() {
            for (j, g) in groups.clone().enumerate() {
                let (block, s) = F::group(row, g);
                if s == 0 {
                    prefetch(isa, block.as_ref());
                }
                self.codes(isa, i, j, F::codes(isa, block, s));
                self.factors.take::<F>(i, j, (block, s));
            }
        }
        self.transpose_codes(isa, &mut panel.vector(isa, r, F::OFFSET));
        if WIDE <= I::LANES {
            self.factors.end(groups.len());
        }
        self.factors.give::<I, F, R>(isa, panel, r);
    }
}

/// Blocks are transposed as they lie in memory, if the format says how to go on; else as
/// [`DecodedRows`].
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
pub(crate) struct TransposedBlocks {
    factors: GroupFactors,
    /// Made when it is wanted.
    staged: Option<DecodedRows>,
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
impl TransposedBlocks {
    #[inline(always)]
    fn staged<I: Lanes>(&mut self) -> &mut DecodedRows {
        self.staged
            .get_or_insert_with(<DecodedRows as Unpack<I>>::new)
    }
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
impl<I: Words> Unpack<I> for TransposedBlocks {
    #[inline(always)]
    fn new() -> Self {
        Self {
            factors: GroupFactors::EMPTY,
            staged: None,
        }
    }

    #[inline(always)]
    fn k_quant<F: KQuant, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        b: usize,
        panel: &mut Panel<I, R>,
        r: usize,
    ) {
        let blocks = blocks_at(rows, I::LANES, b);
        for block in &blocks[..I::LANES] {
            prefetch(isa, block.as_ref());
        }
        if !F::transposed(isa, &blocks, &mut panel.vector(isa, r, F::OFFSET)) {
            self.staged::<I>().k_quant::<F, R>(isa, rows, b, panel, r);
        }
    }

    #[inline(always)]
    fn quant_32<F: Quant32, const R: usize>(
        &mut self,
        isa: I,
        rows: &[&[F::Block]],
        groups: Range<usize>,
        panel: &mut Panel<I, R>,
        r: usize,
    ) {
        for (g, b) in groups.clone().enumerate() {
            if F::GROUPS != 1 {
                return self
                    .staged::<I>()
                    .quant_32::<F, R>(isa, rows, groups, panel, r);
            }
            let blocks = blocks_at(rows, I::LANES, b);
            for block in &blocks[..I::LANES] {
                prefetch(isa, block.as_ref());
            }
            let Some(codes) = F::transposed(isa, &blocks) else {
                return self
                    .staged::<I>()
                    .quant_32::<F, R>(isa, rows, groups, panel, r);
            };
            let mut out = panel.vector(isa, r, F::OFFSET);
            for k in 0..8 {
                out.codes(8 * g + k, codes[k]);
            }
            for i in 0..I::LANES {
                self.factors.take::<F>(i, g, (blocks[i], 0));
            }
        }
        self.factors.end(groups.len());
        self.factors.give::<I, F, R>(isa, panel, r);
    }
}

/// Block `b` of each of `n` rows, the first one in place of those that are missing.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
#[inline(always)]
fn blocks_at<'a, B>(rows: &[&'a [B]], n: usize, b: usize) -> [&'a B; 16] {
    let mut blocks = [&rows[0][b]; 16];
    for i in 1..n {
        blocks[i] = &rows[i][b];
    }
    blocks
}

/// Bytes from a block to the lines of its row that are prefetched with it, where there is no
/// [`TilePrefetch`].
const NEAR: usize = 640;

/// Prefetches the lines so far behind those that begin in the block.
#[inline(always)]
fn prefetch<I: Lanes>(isa: I, block: &[u8]) {
    if I::LANES < WIDE {
        for line in 0..block.len().div_ceil(64) {
            isa.prefetch(block, NEAR + 64 * line);
        }
    }
}

/// The row tile that a thread computes next, as it is prefetched from memory: line after line, one
/// of each of its [`Self::STREAMS`] parts in turn, because a core reads several streams that lie
/// far apart faster than one.
pub(crate) struct NextTile<'a> {
    /// The first row of this row tile.
    row: &'a [u8],
    /// Where the next row tile starts, behind the start of this one; 0 if no row tile comes next:
    /// then it is this one.
    start: usize,
    /// Bytes of a part.
    part: usize,
}

impl<'a> NextTile<'a> {
    const LINE: usize = 64;
    const STREAMS: usize = 4;

    /// The row tile that follows one of `n_rows` rows.
    #[inline(always)]
    pub(crate) fn new(row_tile: &RowTile<'a>, n_rows: usize) -> Self {
        let row = row_tile.w.row(0);
        let n_bytes = n_rows * row.len();
        let part = n_bytes.div_ceil(Self::STREAMS * Self::LINE) * Self::LINE;
        Self {
            row,
            start: row_tile.prefetch_distance * n_bytes,
            part,
        }
    }

    /// The rest of it, after `n_bytes` bytes.
    #[inline(always)]
    pub(crate) fn behind(&self, n_bytes: usize) -> Self {
        Self {
            start: self.start + n_bytes / Self::STREAMS,
            ..*self
        }
    }

    /// Prefetches the lines of a block of part `i % STREAMS`, behind `i / STREAMS` others.
    #[inline(always)]
    pub(crate) fn block<I: Row>(&self, isa: I, i: usize, n_bytes: usize) {
        let at = self.start + self.part * (i % Self::STREAMS) + i / Self::STREAMS * n_bytes;
        for line in 0..n_bytes.div_ceil(Self::LINE) {
            isa.prefetch(self.row, at + Self::LINE * line);
        }
    }
}

/// The [`NextTile`] row tile in pieces: for each block of this one as many bytes as the blocks of
/// all its rows have. Lines are prefetched four at a time, one of each part, because what chooses
/// one of them costs as much as four.
pub(super) struct TilePrefetch<'a> {
    next: NextTile<'a>,
    /// Lines of each part that are prefetched.
    line: usize,
    /// Lines of each part that are left of the piece.
    n_left: usize,
    at_once: usize,
}

impl<'a> TilePrefetch<'a> {
    /// The row tile that follows one of `n_rows` rows.
    #[inline(always)]
    pub(super) fn new(row_tile: &RowTile<'a>, n_rows: usize) -> Self {
        Self {
            next: NextTile::new(row_tile, n_rows),
            line: 0,
            n_left: 0,
            at_once: 0,
        }
    }

    /// Makes the next `n_bytes` bytes the piece; `n_times` calls of [`prefetch`](Self::prefetch)
    /// fetch all of it.
    #[inline(always)]
    pub(super) fn piece(&mut self, n_bytes: usize, n_times: usize) {
        self.n_left = n_bytes.div_ceil(NextTile::STREAMS * NextTile::LINE);
        self.rest(n_times);
    }

    /// As many times are left.
    #[inline(always)]
    pub(super) fn rest(&mut self, n_times: usize) {
        self.at_once = self.n_left.div_ceil(n_times.max(1));
    }

    /// Prefetches a few lines.
    #[inline(always)]
    pub(super) fn prefetch<I: Lanes>(&mut self, isa: I) {
        if I::LANES < WIDE || self.next.start == 0 {
            return;
        }
        let n = self.at_once.min(self.n_left);
        for line in self.line..self.line + n {
            let at = self.next.start + NextTile::LINE * line;
            for part in 0..NextTile::STREAMS {
                isa.prefetch(self.next.row, at + self.next.part * part);
            }
        }
        self.line += n;
        self.n_left -= n;
    }
}
