//! Several activation rows times a strip of quantized weight rows: prefill, bound by arithmetic.
//!
//! ```text
//! for each block b of 256 weights, in order:
//!     panel = the strip's rows, transposed: lane = weight row, word k = codes 4k to 4k + 3      (L1, R vectors of rows)
//!     for T activation rows at once:
//!         for each group g: c[r][t] = −offset·sum of x
//!             for each word k: x_t = word k of row t in all lanes;  c[r][t] += panel[k][r]·x_t      (no horizontal sums)
//!             isum[r][t] += scale[g][r]·c[r][t]
//!         bias[r][t] = min · (256·high + low of the sums of x)                                  (byte dot products)
//!         out[t][r] += f32 rule
//! ```
//! Measured on Zen 5 (a probe of the same loop), R = 4, T = 3 of 16-lane vectors: 72-74 % of the peak of byte dot products; R2 T7 71, R4 T4 71, R2 T4
//! 67, R1 T12 64. Transposing the decoder's codes instead of unpacking transposed bytes keeps one decoder per format and
//! costs about 2 % at 512 rows. The panel and the staging rows live on the stack.

use super::matmul::Strip;
use crate::activations::{Codes, Sums};
use crate::format::{Half, Head, KQuant, Quant32};
use crate::isa::Lanes;

/// Rows of a strip at most.
const ROWS: usize = 64;

/// 256 weights of R vectors of rows, lane = row.
pub(super) struct Panel<I: Lanes, const R: usize> {
    pub(super) codes: [[I::W; R]; 64],
    /// Integer scales of the groups of a K-quant.
    pub(super) scale: [[I::N; R]; 16],
    /// Their minima, four in a word.
    pub(super) min: [[I::W; R]; 4],
    /// `d` of each group of 32; of the K-quants `d·K` and `dmin`.
    pub(super) d: [[I::L; R]; 8],
    /// `m` of each group of 32.
    pub(super) m: [[I::L; R]; 8],
}

impl<I: Lanes, const R: usize> Panel<I, R> {
    #[inline(always)]
    pub(super) fn new(isa: I) -> Self {
        let (w, zero) = (isa.splat4(&[0; 4]), isa.splat(0));
        let d = [[isa.splat_float(0.0); R]; 8];
        Self { codes: [[w; R]; 64], scale: [[zero; R]; 16], min: [[w; R]; 4], d, m: d }
    }
}

/// The decoded rows of one vector, before they are transposed.
#[repr(C, align(64))]
pub(super) struct Stage {
    codes: [[u8; 256]; 16],
    scale: [[u8; 16]; 16],
    min: [[u8; 16]; 16],
    /// f16, as `dmin` and `m_32`.
    d: [u16; 16],
    dmin: [u16; 16],
    /// Of the groups of 32, each what the format says.
    pub(super) d_32: [[u16; 16]; 8],
    pub(super) m_32: [[u16; 16]; 8],
}

impl Stage {
    pub(super) const NOTHING: Self = Self {
        codes: [[0; 256]; 16],
        scale: [[0; 16]; 16],
        min: [[0; 16]; 16],
        d: [0; 16],
        dmin: [0; 16],
        d_32: [[0; 16]; 8],
        m_32: [[0; 16]; 8],
    };

    #[inline(always)]
    fn codes<I: Lanes>(&mut self, isa: I, row: usize, g: usize, codes: I::V) {
        isa.store(codes, &mut self.codes[row].as_chunks_mut::<32>().0[g]);
    }

    #[inline(always)]
    fn head(&mut self, row: usize, head: &Head) {
        for (out, words) in [(&mut self.scale[row], head.scale), (&mut self.min[row], head.min)] {
            out[..8].copy_from_slice(&words[0].to_le_bytes());
            out[8..].copy_from_slice(&words[1].to_le_bytes());
        }
        (self.d[row], self.dmin[row]) = (head.d, head.dmin);
    }
}

/// Vectors of so many lanes have tiles of two activation rows, too: a tile of one waits for its own sums. Others do without, so
/// that a program for boards stays small.
const WIDE: usize = 16;

/// Of `n` activation rows: how many go in tiles of T, and where the tiles of two behind those end.
#[inline(always)]
fn parts<I: Lanes, const T: usize>(n: usize) -> (usize, usize) {
    let whole = n / T * T;
    if I::LANES < WIDE {
        return (whole, whole);
    }
    // A row left alone makes two pairs with a tile of three.
    let whole = if T == 3 && n % T == 1 && n > T { whole - T } else { whole };
    (whole, n - (n - whole) % 2)
}

/// The rows of a strip, the last one repeated where there are none left.
#[inline(always)]
pub(super) fn blocks<'a, B>(strip: &Strip<'a>, of: impl Fn(&'a [u8]) -> &'a [B]) -> [&'a [B]; ROWS] {
    let w = strip.w;
    std::array::from_fn(|r| of(w.row(r.min(w.d_out() - 1))))
}

/// Strip of a K-quant, `R·LANES` rows wide.
#[inline(always)]
pub(crate) fn k_quant<I: Lanes, F: KQuant, const R: usize, const T: usize>(isa: I, strip: Strip<'_>) {
    let (rows, x) = (blocks(&strip, F::blocks), strip.x.q8_256());
    let (mut panel, mut stage) = (Panel::<I, R>::new(isa), Stage::NOTHING);
    for b in 0..rows[0].len() {
        for r in 0..R {
            k_quant_vector::<I, F, R>(isa, &rows[r * I::LANES..], b, &mut stage, &mut panel, r);
        }
        let of_block = x.at(b, strip.rows.start)..x.at(b, strip.rows.end);
        let x =
            Inputs { codes: &x.codes[of_block.clone()], scales: &x.scales[of_block.clone()], sums: &x.sums[of_block] };
        let (whole, pairs) = parts::<I, T>(strip.rows.len());
        for t in (0..whole).step_by(T) {
            k_quant_tile::<I, F, R, T>(isa, &panel, &x.at(t), &mut strip.acc[t * R * I::LANES..]);
        }
        if WIDE <= I::LANES {
            for t in (whole..pairs).step_by(2) {
                k_quant_tile::<I, F, R, 2>(isa, &panel, &x.at(t), &mut strip.acc[t * R * I::LANES..]);
            }
        }
        for t in pairs..strip.rows.len() {
            k_quant_tile::<I, F, R, 1>(isa, &panel, &x.at(t), &mut strip.acc[t * R * I::LANES..]);
        }
    }
}

/// Bytes of its own row that a block is unpacked ahead of what is asked for from memory: with few activation rows this
/// algorithm waits for memory, and processors do not follow 64 rows at once by themselves.
const AHEAD: usize = 640;
/// The same for vectors of [`WIDE`] lanes.
const WIDE_AHEAD: usize = 432;

/// How far ahead of what stands `at` so many bytes of a row of `row_bytes` bytes memory is asked: behind the end of the row its
/// successor is the row of the next strip, of which nothing has been read, and not the next row. Narrower vectors do without
/// that, so that a program for boards stays small.
#[inline(always)]
fn ahead<I: Lanes, const R: usize>(at: usize, row_bytes: usize) -> usize {
    if I::LANES < WIDE {
        return AHEAD;
    }
    match at + WIDE_AHEAD < row_bytes {
        true => WIDE_AHEAD,
        false => WIDE_AHEAD + (R * I::LANES - 1) * row_bytes,
    }
}

/// Asks for the lines so many bytes behind those that begin in the block.
#[inline(always)]
fn prefetch<I: Lanes>(isa: I, block: &[u8], ahead: usize) {
    for line in 0..block.len().div_ceil(64) {
        isa.prefetch(block, ahead + 64 * line);
    }
}

/// Block `b` of the first `LANES` rows into vector `r` of the panel.
#[inline(always)]
pub(super) fn k_quant_vector<I: Lanes, F: KQuant, const R: usize>(
    isa: I,
    rows: &[&[F::Block]],
    b: usize,
    stage: &mut Stage,
    panel: &mut Panel<I, R>,
    r: usize,
) {
    let block_bytes = size_of::<F::Block>();
    let ahead = ahead::<I, R>(b * block_bytes, size_of_val(rows[0]));
    for (i, row) in rows[..I::LANES].iter().enumerate() {
        let block = &row[b];
        prefetch(isa, block.as_ref(), ahead);
        stage.head(i, &F::head(block));
        for g in 0..8 {
            stage.codes(isa, i, g, F::codes(isa, block, g));
        }
    }
    transpose_codes(isa, stage, panel, r);
    for c in 0..F::GROUPS / 4 {
        let words = isa.columns(&stage.scale, 0);
        for j in 0..4 {
            panel.scale[4 * c + j][r] = isa.byte(words[c], j);
        }
    }
    if F::MINS {
        let words = isa.columns(&stage.min, 0);
        for c in 0..4 {
            panel.min[c][r] = words[c];
        }
    }
    panel.d[0][r] = isa.mul_lanes(isa.widen_lanes(&stage.d), isa.splat_float(F::K));
    panel.d[1][r] = isa.widen_lanes(&stage.dmin);
}

#[inline(always)]
fn transpose_codes<I: Lanes, const R: usize>(isa: I, stage: &Stage, panel: &mut Panel<I, R>, r: usize) {
    for c in 0..16 {
        let words = isa.columns(&stage.codes, c);
        for j in 0..4 {
            panel.codes[4 * c + j][r] = words[j];
        }
    }
}

/// A block of some activation rows.
pub(super) struct Inputs<'a, S, M> {
    pub(super) codes: &'a [Codes],
    pub(super) scales: &'a [S],
    pub(super) sums: &'a [M],
}

impl<S, M> Inputs<'_, S, M> {
    /// From row `t` on.
    #[inline(always)]
    fn at(&self, t: usize) -> Self {
        Self { codes: &self.codes[t..], scales: &self.scales[t..], sums: &self.sums[t..] }
    }
}

/// The first T activation rows of `x`; `acc` is `[T, R·LANES]`.
#[inline(always)]
fn k_quant_tile<I: Lanes, F: KQuant, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    x: &Inputs<'_, f32, Sums>,
    acc: &mut [f32],
) {
    let codes: [&[[i8; 4]; 64]; T] = words_of(x.codes);
    let sums: [&Sums; T] = std::array::from_fn(|t| &x.sums[t]);
    let words = 64 / F::GROUPS;
    let mut isum = [[isa.splat(0); T]; R];
    for g in 0..F::GROUPS {
        let mut c = [[isa.splat(0); T]; R];
        if F::OFFSET != 0 {
            for t in 0..T {
                let offset = isa.splat(-i32::from(F::OFFSET) * i32::from(sums[t].of(F::GROUPS).whole[g]));
                (0..R).for_each(|r| c[r][t] = offset);
            }
        }
        for k in g * words..(g + 1) * words {
            let x: [I::W; T] = std::array::from_fn(|t| isa.splat4(&codes[t][k]));
            for r in 0..R {
                for t in 0..T {
                    let w = panel.codes[k][r];
                    c[r][t] =
                        if F::OFFSET > 64 { isa.dot4_bytes(c[r][t], w, x[t]) } else { isa.dot4(c[r][t], w, x[t]) };
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                isum[r][t] = isa.add(isum[r][t], isa.mul(c[r][t], panel.scale[g][r]));
            }
        }
    }
    let width = R * I::LANES;
    let bias = if F::MINS { bias::<I, F, R, T>(isa, panel, sums) } else { [[isa.splat(0); T]; R] };
    for t in 0..T {
        let dx = isa.splat_float(x.scales[t]);
        for r in 0..R {
            let mut v = isa.mul_lanes(panel.d[0][r], isa.to_floats(isum[r][t]));
            if F::MINS {
                v = isa.sub_lanes(v, isa.mul_lanes(panel.d[1][r], isa.to_floats(bias[r][t])));
            }
            let out = &mut acc[t * width + r * I::LANES..][..I::LANES];
            isa.store_to(isa.add_lanes(isa.load_from(out), isa.mul_lanes(dx, v)), out);
        }
    }
}

/// The codes of T activation rows, in words.
#[inline(always)]
fn words_of<const T: usize>(codes: &[Codes]) -> [&[[i8; 4]; 64]; T] {
    std::array::from_fn(|t| codes[t].0.as_chunks::<4>().0.first_chunk().expect("256 codes are 64 words"))
}

/// `Σ min·sum`, by the bytes of the sums.
#[inline(always)]
fn bias<I: Lanes, F: KQuant, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    sums: [&Sums; T],
) -> [[I::N; T]; R] {
    let mut bias = [[isa.splat(0); T]; R];
    for low in [false, true] {
        for t in 0..T {
            let sums = sums[t].of(F::GROUPS);
            let bytes = if low { &sums.low } else { &sums.high };
            for r in 0..R {
                bias[r][t] = isa.times_256(bias[r][t]);
                for c in 0..F::GROUPS / 4 {
                    bias[r][t] = isa.dot4(bias[r][t], panel.min[c][r], isa.splat4(&bytes.as_chunks::<4>().0[c]));
                }
            }
        }
    }
    bias
}

/// Strip of a format with blocks of 32, `R·LANES` rows wide.
#[inline(always)]
pub(crate) fn quant_32<I: Lanes, F: Quant32, const R: usize, const T: usize>(isa: I, strip: Strip<'_>) {
    let (rows, x) = (blocks(&strip, F::blocks), strip.x.q8_32());
    let (mut panel, mut stage) = (Panel::<I, R>::new(isa), Stage::NOTHING);
    for b in 0..rows[0].len().div_ceil(8) {
        let n_groups = (rows[0].len() - 8 * b).min(8);
        for r in 0..R {
            quant_32_vector::<I, F, R>(isa, &rows[r * I::LANES..], 8 * b..8 * b + n_groups, &mut stage, &mut panel, r);
        }
        let of_block = x.at(b, strip.rows.start)..x.at(b, strip.rows.end);
        let x =
            Inputs { codes: &x.codes[of_block.clone()], scales: &x.scales[of_block.clone()], sums: &x.sums[of_block] };
        let (whole, pairs) = parts::<I, T>(strip.rows.len());
        for t in (0..whole).step_by(T) {
            quant_32_tile::<I, F, R, T>(isa, &panel, &x.at(t), n_groups, &mut strip.acc[t * R * I::LANES..]);
        }
        if WIDE <= I::LANES {
            for t in (whole..pairs).step_by(2) {
                quant_32_tile::<I, F, R, 2>(isa, &panel, &x.at(t), n_groups, &mut strip.acc[t * R * I::LANES..]);
            }
        }
        for t in pairs..strip.rows.len() {
            quant_32_tile::<I, F, R, 1>(isa, &panel, &x.at(t), n_groups, &mut strip.acc[t * R * I::LANES..]);
        }
    }
}

/// Up to 8 blocks of the first `LANES` rows into vector `r` of the panel.
#[inline(always)]
pub(super) fn quant_32_vector<I: Lanes, F: Quant32, const R: usize>(
    isa: I,
    rows: &[&[F::Block]],
    groups: std::ops::Range<usize>,
    stage: &mut Stage,
    panel: &mut Panel<I, R>,
    r: usize,
) {
    let block_bytes = size_of::<F::Block>();
    let ahead = ahead::<I, R>(groups.start * block_bytes, size_of_val(rows[0]));
    for (i, row) in rows[..I::LANES].iter().enumerate() {
        for (g, block) in row[groups.clone()].iter().enumerate() {
            prefetch(isa, block.as_ref(), ahead);
            stage.codes(isa, i, g, F::codes(isa, block));
            stage.d_32[g][i] = F::d(block);
            if F::MINS {
                stage.m_32[g][i] = F::m(block);
            }
        }
    }
    transpose_codes(isa, stage, panel, r);
    for g in 0..8 {
        panel.d[g][r] = match F::D {
            Half::F16 => isa.widen_lanes(&stage.d_32[g]),
            Half::Bf16 => isa.brain_lanes(&stage.d_32[g]),
        };
        if F::MINS {
            panel.m[g][r] = isa.widen_lanes(&stage.m_32[g]);
        }
    }
}

/// As [`k_quant_tile`]: `out += (d·dx)·isum`, then `out += (m·dx)·sum of x`, for each group.
#[inline(always)]
fn quant_32_tile<I: Lanes, F: Quant32, const R: usize, const T: usize>(
    isa: I,
    panel: &Panel<I, R>,
    x: &Inputs<'_, [f32; 8], [i16; 8]>,
    n_groups: usize,
    acc: &mut [f32],
) {
    let codes: [&[[i8; 4]; 64]; T] = words_of(x.codes);
    let width = R * I::LANES;
    let mut out = [[isa.splat_float(0.0); T]; R];
    for r in 0..R {
        for t in 0..T {
            out[r][t] = isa.load_from(&acc[t * width + r * I::LANES..][..I::LANES]);
        }
    }
    for g in 0..n_groups {
        let first: [I::N; T] = std::array::from_fn(|t| isa.splat(-i32::from(F::OFFSET) * i32::from(x.sums[t][g])));
        let mut c = [first; R];
        for k in 8 * g..8 * g + 8 {
            let x: [I::W; T] = std::array::from_fn(|t| isa.splat4(&codes[t][k]));
            for r in 0..R {
                for t in 0..T {
                    let w = panel.codes[k][r];
                    c[r][t] =
                        if F::OFFSET > 64 { isa.dot4_bytes(c[r][t], w, x[t]) } else { isa.dot4(c[r][t], w, x[t]) };
                }
            }
        }
        for t in 0..T {
            let (dx, sum) = (isa.splat_float(x.scales[t][g]), isa.splat_float(f32::from(x.sums[t][g])));
            for r in 0..R {
                let scale = isa.mul_lanes(panel.d[g][r], dx);
                out[r][t] = isa.add_lanes(out[r][t], isa.mul_lanes(scale, isa.to_floats(c[r][t])));
                if F::MINS {
                    out[r][t] = isa.add_lanes(out[r][t], isa.mul_lanes(isa.mul_lanes(panel.m[g][r], dx), sum));
                }
            }
        }
    }
    for r in 0..R {
        for t in 0..T {
            isa.store_to(out[r][t], &mut acc[t * width + r * I::LANES..][..I::LANES]);
        }
    }
}
