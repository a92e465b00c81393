//! T2, T3 and T4: searches the scales and symbols of a block, and packs them.
//!
//! It refuses to know tensors and files; the layout is that of [`atta_formats::layout::Trellis`],
//! the search of one sub-block that of [`TrellisSearch`]. The one idea: scales of sub-blocks and
//! the factor of the block are searched in turn.
//!
//! ```text
//! s_b = √(Σ q·w² / Σ q) of each sub-block; d = 32·UNIT·1.06·max(s_b) / 16
//! round 0: each sub-block takes the best of the scale codes c − 4 to c + 4, c the nearest to s_b
//! d = Σ q·w·y / Σ q·y², y the level times the scale; round 1 with c − 1 to c + 1; d again;
//! round 2 with c
//! the round with the least Σ q·(w − d·y)² is written
//! ```
//! d is always rounded to f16 before it is used. Searches are in f32, in order of time; sums of a
//! block in f64, in order of weights. The first rounds of several scales are worth 0.4 to 1.2 dB.

use atta_formats::{
    f16::{f16_to_f32, f32_to_f16},
    layout::Trellis,
};
use atta_kernels::{Kernels, TrellisPath, TrellisSearch};

use super::SmallScales;

/// Weights of a sub-block.
const SUB_BLOCK: usize = Trellis::SUB_BLOCK;
/// Sub-blocks of a whole block.
const N_SUB_BLOCKS: usize = Trellis::N_SUB_BLOCKS;
/// How far scale codes are searched on both sides, round by round.
const ROUNDS: [u8; 3] = [4, 1, 0];
/// The largest scale code.
const LARGEST_CODE: u8 = 15;
/// By how much the largest scale exceeds the largest spread, so that the search can raise it.
const HEADROOM: f64 = 1.06;
/// The least importance of a column, as a part of the mean.
const LEAST_IMPORTANCE: f64 = 1e-3;

/// A quantizer of one of the types, with room to work in; for one thread.
pub(super) struct TrellisQuantizer {
    layout: Trellis,
    /// The distance of levels that differ by 1, in units of the spread of a sub-block, from which
    /// the search starts; the best of several on Gaussian weights and those of four models.
    unit: f64,
    search: TrellisSearch,
    /// What an error of each column counts, `[d_row]`; empty: 1 each.
    importance: Vec<f32>,
    small_scales: SmallScales,
}

impl TrellisQuantizer {
    /// A quantizer for rows with this importance, `[d_row]`, which is made safe.
    pub(super) fn new(layout: Trellis, kernels: Kernels, importance: Option<&[f32]>) -> Self {
        let levels = layout.levels();
        Self {
            layout,
            unit: match levels.len() {
                16 => 0.0416,
                32 => 0.051,
                _ => 0.0565,
            },
            search: TrellisSearch::new(kernels, levels),
            importance: importance.map(safe).unwrap_or_default(),
            small_scales: SmallScales::default(),
        }
    }

    /// The scales so far that were too small.
    pub(super) fn small_scales(&self) -> SmallScales {
        self.small_scales
    }

    /// Quantizes a row of finite weights into `out`, the bytes of a row.
    pub(super) fn row(&mut self, x: &[f32], out: &mut [u8]) {
        let n_weights = SUB_BLOCK * N_SUB_BLOCKS;
        let blocks = x
            .chunks(n_weights)
            .zip(out.chunks_mut(self.layout.block_bytes(N_SUB_BLOCKS)));
        for (i, (x, out)) in blocks.enumerate() {
            let importance = self.importance.get(i * n_weights..).unwrap_or_default();
            let block = Block::new(x, importance);
            match block.x.iter().all(|x| *x == 0.0) {
                true => out.fill(0),
                false => self.search(&block).write(self.layout, out),
            }
        }
    }

    /// Counts wanted scales, in units of the least one, that are less than half of it.
    fn count(&mut self, scales: &[f64]) {
        let too_small = scales.iter().filter(|scale| **scale < 0.5);
        self.small_scales.n += too_small.count() as u64;
        self.small_scales.of += scales.len() as u64;
    }

    /// The best factor, scales and levels of a block.
    fn search(&mut self, block: &Block) -> Coded {
        let spreads = block.spreads();
        let largest = spreads.iter().copied().fold(0.0, f64::max);
        let mut d = half(32.0 * self.unit * HEADROOM * largest / f64::from(LARGEST_CODE + 1));
        let scales = spreads.map(|spread| spread * self.unit * 32.0 / f64::from(f16_to_f32(d)));
        self.count(&scales[..block.n]);
        let nearest = |scale: f64| scale.round_ties_even() - 1.0;
        let mut codes = scales.map(|scale| nearest(scale).clamp(0.0, LARGEST_CODE.into()) as u8);
        let mut best: Option<(f64, Coded)> = None;
        for reach in ROUNDS {
            let mut coded = Coded {
                d,
                paths: Vec::with_capacity(block.n),
            };
            for (b, code) in codes[..block.n].iter_mut().enumerate() {
                let last = code.saturating_add(reach).min(LARGEST_CODE);
                let tried = code.saturating_sub(reach)..last + 1;
                let step = f16_to_f32(d) * Trellis::K;
                let path = self
                    .search
                    .best(&block.in_time[b], &block.importance[b], step, tried);
                *code = path.code;
                coded.paths.push(path);
            }
            let fit = block.fit(&coded, self.layout.levels());
            d = fit.d.map_or(d, half);
            if best.as_ref().is_none_or(|(error, _)| fit.error < *error) {
                best = Some((fit.error, coded));
            }
        }
        best.expect("there are rounds").1
    }
}

/// Importance without columns that are lost: at least a thousandth of its mean everywhere, 1 where
/// it is 0; divided by a power of two near its mean, which changes no comparison.
fn safe(importance: &[f32]) -> Vec<f32> {
    let sum: f64 = importance.iter().map(|&q| f64::from(q)).sum();
    let mean = sum / importance.len() as f64;
    if !(mean.is_finite() && mean > 0.0) {
        return vec![1.0; importance.len()];
    }
    let exponent = mean.to_bits() >> 52;
    let power = f64::from_bits((2046 - exponent) << 52);
    let safe = |&q: &f32| (f64::from(q).max(LEAST_IMPORTANCE * mean) * power) as f32;
    importance.iter().map(safe).collect()
}

/// The f16 nearest to a factor above 0, and above 0 too.
fn half(d: f64) -> u16 {
    f32_to_f16(d as f32).max(1)
}

/// The weight of a sub-block that is searched at time `t`: symbols run from the last to the first.
fn weight_at(t: usize) -> usize {
    let symbol = SUB_BLOCK - 1 - t;
    8 * (symbol % 4) + symbol / 4
}

/// The weights of a block.
struct Block<'a> {
    x: &'a [f32],
    /// Sub-blocks.
    n: usize,
    /// Weights in order of time, `[n][32]`.
    in_time: [[f32; SUB_BLOCK]; N_SUB_BLOCKS],
    /// The importance of each of them.
    importance: [[f32; SUB_BLOCK]; N_SUB_BLOCKS],
}

/// How well a coded block fits.
struct Fit {
    /// `Σ q·(w − d·y)²`.
    error: f64,
    /// The best factor for the same scales and levels, if there is one.
    d: Option<f64>,
}

impl<'a> Block<'a> {
    /// The weights `x` with the importance of at least as many columns, or none at all.
    fn new(x: &'a [f32], importance: &[f32]) -> Self {
        let mut in_time = [[0.0; SUB_BLOCK]; N_SUB_BLOCKS];
        let mut weights = [[1.0; SUB_BLOCK]; N_SUB_BLOCKS];
        for (b, x) in x.as_chunks::<SUB_BLOCK>().0.iter().enumerate() {
            in_time[b] = std::array::from_fn(|t| x[weight_at(t)]);
            if !importance.is_empty() {
                weights[b] = std::array::from_fn(|t| importance[SUB_BLOCK * b + weight_at(t)]);
            }
        }
        Self {
            x,
            n: x.len() / SUB_BLOCK,
            in_time,
            importance: weights,
        }
    }

    /// Weight, importance and time of each weight of a sub-block, in order of weights.
    fn weights(&self, b: usize) -> impl Iterator<Item = (f64, f64, usize)> {
        (0..SUB_BLOCK).map(move |i| {
            let t = SUB_BLOCK - 1 - (4 * (i % 8) + i / 8);
            (self.in_time[b][t].into(), self.importance[b][t].into(), t)
        })
    }

    /// The root of the mean square of each sub-block.
    fn spreads(&self) -> [f64; N_SUB_BLOCKS] {
        std::array::from_fn(|b| {
            let mut squares = 0.0;
            let mut sum = 0.0;
            for (w, q, _) in self.weights(b) {
                squares += q * w * w;
                sum += q;
            }
            (squares / sum).sqrt()
        })
    }

    /// Compares a coded block, and finds the best factor for it.
    fn fit(&self, coded: &Coded, levels: &[i8]) -> Fit {
        let d = f64::from(f16_to_f32(coded.d));
        let mut error = 0.0;
        let mut products = 0.0;
        let mut squares = 0.0;
        for (b, path) in coded.paths.iter().enumerate() {
            let scale = f64::from(Trellis::K) * f64::from(path.code + 1);
            for (w, q, t) in self.weights(b) {
                let y = scale * f64::from(levels[usize::from(path.levels[t])]);
                let e = w - d * y;
                error += q * e * e;
                products += q * w * y;
                squares += q * y * y;
            }
        }
        let is_above = products > 0.0 && squares > 0.0;
        Fit {
            error,
            d: is_above.then(|| products / squares),
        }
    }
}

/// Factor, scales and levels of a block.
struct Coded {
    /// f16.
    d: u16,
    /// The path of each sub-block.
    paths: Vec<TrellisPath>,
}

impl Coded {
    /// Packs the block into `out`.
    fn write(&self, layout: Trellis, out: &mut [u8]) {
        let n = self.paths.len();
        out.fill(0);
        out[..2].copy_from_slice(&self.d.to_le_bytes());
        let (scales, rest) = out[2..].split_at_mut(n.div_ceil(2));
        let (symbols, upper) = rest.split_at_mut(8 * n);
        for (b, path) in self.paths.iter().enumerate() {
            scales[b / 2] |= path.code << (4 * (b % 2));
            let symbol = |(t, &level): (usize, &u8)| u64::from(level & 3) << (62 - 2 * t);
            let x = path.levels.iter().enumerate().map(symbol).sum::<u64>();
            symbols[8 * b..][..8].copy_from_slice(&x.to_le_bytes());
        }
        match layout.levels().len() {
            16 => {}
            32 => {
                let lanes = self.lanes(1);
                for (l, h) in upper.iter_mut().enumerate() {
                    *h = lanes[l] | lanes[4 * n + l] << 4;
                }
            }
            _ => upper.copy_from_slice(&self.lanes(2)[..8 * n]),
        }
    }

    /// The tables of the levels, of `width` bits each, symbol 4j + f of sub-block b in lane 8b + j.
    fn lanes(&self, width: usize) -> [u8; 64] {
        let mut lanes = [0; 64];
        for (b, path) in self.paths.iter().enumerate() {
            for (t, &level) in path.levels.iter().enumerate() {
                let symbol = SUB_BLOCK - 1 - t;
                lanes[8 * b + symbol / 4] |= level >> 4 << (width * (symbol % 4));
            }
        }
        lanes
    }
}
