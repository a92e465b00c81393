//! IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: entries of a codebook (grid) for 8 or 4 magnitudes at
//! once, signs, and a 4-bit scale per sub-block under one scale per block.
//!
//! Scales are searched as for other types, but the codes of a candidate are moved to codebook
//! entries before its error is computed. If only 7 of 8 signs are stored, the number of minus signs
//! must be even; otherwise the weight with the smallest error weight changes its sign.

use atta_formats::layout::grids;

use super::{
    pack::put_f16,
    search::{Codebook, nearest, shared_scale},
    weighted::sum_of_squares,
};

type BlockWeights = [f32; 256];

/// The parameters of the search, which differ between the types.
#[derive(Clone, Copy)]
struct SearchParams {
    /// BlockWeights in a sub-block.
    d_sub: usize,
    /// Whether the number of minus signs of 8 weights must be even.
    even_signs: bool,
    /// Factor of the block's mean square in error weights.
    mean_squares: f32,
    /// A sub-block becomes zeros if all its weights are smaller.
    least: f32,
    /// Candidates map the largest weight to the largest number plus -`steps` to `steps` times
    /// `step`.
    steps: i8,
    step: f32,
    /// The final scale of a block is multiplied by this.
    factor: f32,
    /// The entries that are chosen again under the best scale.
    second_pass: SecondPass,
}

/// Which entries are chosen again under the best scale.
#[derive(Clone, Copy, PartialEq)]
enum SecondPass {
    /// Entries whose rounded codes were not on the grid.
    Moved,
    /// All entries, if rounded codes of one of them were not on the grid.
    AllIfMoved,
    /// All entries. Candidates are spread around the best scale without a codebook, not around that
    /// of the largest weight.
    All,
}

const IQ2_XXS: SearchParams = SearchParams {
    d_sub: 32,
    even_signs: true,
    mean_squares: 1.0,
    least: 1e-15,
    steps: 6,
    step: 0.1,
    factor: 1.0,
    second_pass: SecondPass::All,
};
const IQ2_XS: SearchParams = SearchParams {
    d_sub: 16,
    steps: 9,
    second_pass: SecondPass::Moved,
    ..IQ2_XXS
};
const IQ2_S: SearchParams = SearchParams {
    even_signs: false,
    mean_squares: 2.0,
    least: 1e-8,
    factor: 0.9875,
    ..IQ2_XS
};
const IQ3_XXS: SearchParams = SearchParams {
    d_sub: 32,
    even_signs: true,
    mean_squares: 2.0,
    least: 1e-8,
    steps: 15,
    step: 0.2,
    factor: 1.0125,
    second_pass: SecondPass::Moved,
};
const IQ3_S: SearchParams = SearchParams {
    even_signs: false,
    least: f32::from_bits(1),
    steps: 9,
    factor: 1.033,
    second_pass: SecondPass::AllIfMoved,
    ..IQ3_XXS
};

pub(super) fn iq2_xxs_book() -> Codebook<8> {
    Codebook::new(&grids::IQ2_XXS, &[8, 25, 43], 2)
}

pub(super) fn iq2_xs_book() -> Codebook<8> {
    Codebook::new(&grids::IQ2_XS, &[8, 25, 43], 2)
}

pub(super) fn iq2_s_book() -> Codebook<8> {
    Codebook::new(&grids::IQ2_S, &[8, 25, 43], 1)
}

pub(super) fn iq3_xxs_book() -> Codebook<4> {
    Codebook::new(&grids::IQ3_XXS, &[4, 12, 20, 28, 36, 44, 52, 62], 2)
}

pub(super) fn iq3_s_book() -> Codebook<4> {
    Codebook::new(&grids::IQ3_S, &[1, 3, 5, 7, 9, 11, 13, 15], 3)
}

pub(super) fn iq2_xxs(
    book: &Codebook<8>,
    x: &BlockWeights,
    importance: &BlockWeights,
    block: &mut [u8; 66],
) {
    let found = FoundBlock::find(book, x, &by_importance(x, importance, IQ2_XXS), IQ2_XXS);
    put_f16(block, 0, found.d);
    for (s, out) in block[2..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let entries: [u8; 4] = std::array::from_fn(|k| found.entries[4 * s + k] as u8);
        out[..4].copy_from_slice(&entries);
        out[4..].copy_from_slice(&found.signs_and_scale(s));
    }
}

pub(super) fn iq2_xs(
    book: &Codebook<8>,
    x: &BlockWeights,
    importance: &BlockWeights,
    block: &mut [u8; 74],
) {
    let found = FoundBlock::find(book, x, &by_importance(x, importance, IQ2_XS), IQ2_XS);
    put_f16(block, 0, found.d);
    for (k, out) in block[2..66].as_chunks_mut().0.iter_mut().enumerate() {
        *out = (found.entries[k] | u16::from(found.signs[k] & 127) << 9).to_le_bytes();
    }
    block[66..].copy_from_slice(&found.nibbles());
}

pub(super) fn iq2_s(
    book: &Codebook<8>,
    x: &BlockWeights,
    importance: Option<&BlockWeights>,
    block: &mut [u8; 82],
) {
    let weights = match importance {
        Some(importance) => by_importance(x, importance, IQ2_S),
        None => {
            let mean_square = IQ2_S.mean_square(x);
            x.map(|x| 0.25 * mean_square + x * x)
        }
    };
    let found = FoundBlock::find(book, x, &weights, IQ2_S);
    put_f16(block, 0, found.d);
    block[2..74].fill(0);
    for (k, &entry) in found.entries[..32].iter().enumerate() {
        block[2 + k] = entry as u8;
        block[66 + k / 4] |= (entry >> 8 << (2 * (k % 4))) as u8;
    }
    block[34..66].copy_from_slice(&found.signs);
    block[74..].copy_from_slice(&found.nibbles());
}

pub(super) fn iq3_xxs(
    book: &Codebook<4>,
    x: &BlockWeights,
    importance: Option<&BlockWeights>,
    block: &mut [u8; 98],
) {
    let weights = importance.map_or_else(
        || x.map(|x| x * x),
        |importance| by_importance(x, importance, IQ3_XXS),
    );
    let found = FoundBlock::find(book, x, &weights, IQ3_XXS);
    put_f16(block, 0, found.d);
    block[2..66].copy_from_slice(&found.entries.map(|entry| entry as u8));
    for (s, out) in block[66..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *out = found.signs_and_scale(s);
    }
}

pub(super) fn iq3_s(
    book: &Codebook<4>,
    x: &BlockWeights,
    importance: Option<&BlockWeights>,
    block: &mut [u8; 110],
) {
    let weights = importance.map_or_else(
        || x.map(|x| x * x),
        |importance| by_importance(x, importance, IQ3_S),
    );
    let found = FoundBlock::find(book, x, &weights, IQ3_S);
    put_f16(block, 0, found.d);
    block[2..74].fill(0);
    for (k, &entry) in found.entries.iter().enumerate() {
        block[2 + k] = entry as u8;
        block[66 + k / 8] |= (entry >> 8 << (k % 8)) as u8;
    }
    block[74..106].copy_from_slice(&found.signs);
    block[106..].copy_from_slice(&found.nibbles()[..4]);
}

impl SearchParams {
    /// The weighted mean square of a block.
    fn mean_square(&self, x: &BlockWeights) -> f32 {
        self.mean_squares * sum_of_squares(x) / 256.0
    }
}

fn by_importance(
    x: &BlockWeights,
    importance: &BlockWeights,
    params: SearchParams,
) -> BlockWeights {
    let mean_square = params.mean_square(x);
    std::array::from_fn(|i| importance[i] * (mean_square + x[i] * x[i]).sqrt())
}

/// The result of the search for a block.
struct FoundBlock {
    d: f32,
    /// 64 entries of 4 weights, or 32 of 8.
    entries: [u16; 64],
    /// Sign bits, 8 weights per byte.
    signs: [u8; 32],
    /// Scale codes of 8 or 16 sub-blocks.
    scales: [u8; 16],
}

impl FoundBlock {
    const ZEROS: Self = Self {
        d: 0.0,
        entries: [0; 64],
        signs: [0; 32],
        scales: [0; 16],
    };

    fn find<const N: usize>(
        book: &Codebook<N>,
        x: &BlockWeights,
        weights: &BlockWeights,
        params: SearchParams,
    ) -> Self {
        let mut block = Self::ZEROS;
        let mut scales = [0.0; 16];
        let d_sub = params.d_sub;
        for (s, (x, weights)) in x.chunks(d_sub).zip(weights.chunks(d_sub)).enumerate() {
            let mut sub = SubBlock::new(x, weights, params);
            let largest = sub.x[..d_sub]
                .iter()
                .fold(sub.x[0], |max: f32, &x| if max > x { max } else { x });
            if largest < params.least {
                continue;
            }
            let Some(scale) = sub.search(book, largest, params) else {
                continue;
            };
            scales[s] = scale;
            block.entries[s * d_sub / N..][..d_sub / N].copy_from_slice(&sub.entries[..d_sub / N]);
            block.signs[s * d_sub / 8..][..d_sub / 8].copy_from_slice(&sub.signs[..d_sub / 8]);
        }
        block.set_scales(&scales, params);
        block
    }

    /// Sets the block scale and the 4-bit scale codes, which stand for odd numbers up to 31.
    fn set_scales(&mut self, scales: &[f32; 16], params: SearchParams) {
        let largest = scales.iter().fold(
            0.0,
            |max: f32, &scale| if max > scale { max } else { scale },
        );
        if largest == 0.0 {
            // With a scale of zero, the entries do not matter. Which ones to write differs by type
            // in ggml.
            *self = if params.even_signs {
                Self::ZEROS
            } else {
                Self {
                    d: 0.0,
                    scales: [0; 16],
                    ..*self
                }
            };
            return;
        }
        let d = largest / 31.0;
        let per_scale = 1.0 / d;
        self.d = d * params.factor;
        self.scales =
            scales.map(|scale| nearest(0.5 * (per_scale * scale - 1.0)).clamp(0, 15) as u8);
    }

    /// Four groups of 7 signs, and the scale of sub-block `s` of 32 weights.
    fn signs_and_scale(&self, s: usize) -> [u8; 4] {
        let signs = (0..4).fold(0, |word, k| {
            word | u32::from(self.signs[4 * s + k] & 127) << (7 * k)
        });
        (signs | u32::from(self.scales[s]) << 28).to_le_bytes()
    }

    fn nibbles(&self) -> [u8; 8] {
        std::array::from_fn(|i| self.scales[2 * i] | self.scales[2 * i + 1] << 4)
    }
}

/// A sub-block of 16 or 32 weights; the rest of the arrays is unused.
struct SubBlock {
    d_sub: usize,
    /// Magnitudes, negative if the stored sign differs from that of the weight.
    x: [f32; 32],
    /// Error weights.
    weights: [f32; 32],
    /// Sign bits, 8 weights per byte.
    signs: [u8; 4],
    entries: [u16; 8],
    /// Whether the rounded codes were on the grid.
    rounded: [bool; 8],
}

impl SubBlock {
    fn new(x: &[f32], weights: &[f32], params: SearchParams) -> Self {
        let mut sub = Self {
            d_sub: x.len(),
            x: [0.0; 32],
            weights: [0.0; 32],
            signs: [0; 4],
            entries: [0; 8],
            rounded: [params.second_pass != SecondPass::AllIfMoved; 8],
        };
        sub.x[..x.len()].copy_from_slice(x);
        sub.weights[..x.len()].copy_from_slice(weights);
        let eights = sub
            .x
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(sub.weights.as_chunks::<8>().0);
        for ((x, weights), signs) in eights.zip(&mut sub.signs) {
            *signs = split_signs(x, weights, params.even_signs);
        }
        sub
    }

    /// Finds entries and the scale, which is not negative. `None` if no positive scale exists.
    fn search<const N: usize>(
        &mut self,
        book: &Codebook<N>,
        largest: f32,
        params: SearchParams,
    ) -> Option<f32> {
        let number = 2.0 * book.highest() + 1.0;
        let (mut scale, spread) = match params.second_pass {
            SecondPass::All => {
                let (scale, _) = shared_scale(&self.x, &self.weights, book.highest() as i32 + 2);
                (scale, scale * (book.highest() + 1.0))
            }
            SecondPass::Moved | SecondPass::AllIfMoved => (largest / number, largest),
        };
        if spread <= 0.0 {
            return None;
        }
        let roots = self.weights.map(f32::sqrt);
        let mut best = 0.0;
        for step in -params.steps..=params.steps {
            let per_weight = (number + f32::from(step) * params.step) / spread;
            let (entries, rounded) = self.choose(book, &roots, 1.0 / per_weight, per_weight);
            let (xq, qq) = self.sums(book, &entries);
            if qq > 0.0 && xq * xq > best * qq {
                scale = xq / qq;
                best = scale * xq;
                (self.entries, self.rounded) = (entries, rounded);
            }
        }
        if scale > 0.0 {
            scale = self.second_pass(book, &roots, scale, params);
        }
        if scale < 0.0 {
            self.signs = self.signs.map(|signs| !signs);
        }
        Some(scale.abs())
    }

    /// Chooses entries again under the best scale and returns the new scale.
    fn second_pass<const N: usize>(
        &mut self,
        book: &Codebook<N>,
        roots: &[f32; 32],
        scale: f32,
        params: SearchParams,
    ) -> f32 {
        let n_entries = self.d_sub / N;
        let any_moved = self.rounded[..n_entries].contains(&false);
        if !any_moved && params.second_pass != SecondPass::All {
            return scale;
        }
        let (entries, _) = self.choose(book, roots, scale, 1.0 / scale);
        for (k, &entry) in entries[..n_entries].iter().enumerate() {
            if !self.rounded[k] || params.second_pass != SecondPass::Moved {
                self.entries[k] = entry;
            }
        }
        let (xq, qq) = self.sums(book, &self.entries);
        if qq > 0.0 { xq / qq } else { scale }
    }

    fn choose<const N: usize>(
        &self,
        book: &Codebook<N>,
        roots: &[f32; 32],
        scale: f32,
        per_weight: f32,
    ) -> ([u16; 8], [bool; 8]) {
        let mut entries = [0; 8];
        let mut rounded = [true; 8];
        let parts = self.x[..self.d_sub]
            .as_chunks::<N>()
            .0
            .iter()
            .zip(roots.as_chunks::<N>().0);
        for (k, (x, roots)) in parts.enumerate() {
            let chosen = book.choose(x, roots, scale, per_weight);
            (entries[k], rounded[k]) = (chosen.entry, chosen.rounded);
        }
        (entries, rounded)
    }

    /// `Σ w·x·q` and `Σ w·q²`, where `q` are the numbers of the entries.
    fn sums<const N: usize>(&self, book: &Codebook<N>, entries: &[u16; 8]) -> (f32, f32) {
        let mut xq = 0.0;
        let mut qq = 0.0;
        for (i, (&x, &w)) in self.x[..self.d_sub].iter().zip(&self.weights).enumerate() {
            let q = book.numbers(entries[i / N])[i % N];
            xq += w * x * q;
            qq += w * q * q;
        }
        (xq, qq)
    }
}

/// Replaces 8 weights by their magnitudes and returns the sign bits. If their number must be even
/// and is not, the sign of the weight with the smallest error is flipped, and its magnitude becomes
/// negative.
fn split_signs(x: &mut [f32; 8], weights: &[f32; 8], even: bool) -> u8 {
    let signs = x
        .iter()
        .enumerate()
        .fold(0, |signs, (i, &x)| signs | u8::from(x < 0.0) << i);
    *x = x.map(|x| if x < 0.0 { -x } else { x });
    if !even || signs.count_ones().is_multiple_of(2) {
        return signs;
    }
    let count = |i: usize| weights[i] * x[i] * x[i];
    let least = (1..8).fold(
        0,
        |least, i| if count(i) < count(least) { i } else { least },
    );
    x[least] = -x[least];
    signs ^ 1 << least
}
