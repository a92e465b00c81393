//! Q2_K, Q4_K and Q5_K: unsigned codes with a scale and a minimum per sub-block, which are
//! quantized with a scale of scales (`d`) and a scale of minima (`dmin`) per block. First a line is
//! searched per sub-block, then `d` and `dmin`; at last the weights are rounded again under the
//! quantized scales.

use atta_formats::layout;

use super::{
    pack::{bit_plane, four_bit_groups, put_f16, scales_and_minima, two_bit_groups},
    search::{
        Candidates, ErrorNorm, LANES, Lanes, Line, Tile, line, line_codes, nearest, shared_scale,
        tile,
    },
    weighted::{by_importance, sum_of_squares},
};

type BlockWeights = [f32; 256];

pub(super) fn q4_k(x: &BlockWeights, importance: Option<&BlockWeights>, block: &mut [u8; 144]) {
    let tried = Candidates {
        largest: 15.0,
        first: -1.0,
        step: 0.1,
        n: 21,
        error: ErrorNorm::Square,
    };
    let head = block
        .first_chunk_mut()
        .expect("a block begins with its scales");
    let codes = sub_blocks_of_32(x, importance, tried, head);
    four_bit_groups(
        &codes,
        block[16..].first_chunk_mut().expect("the codes follow"),
    );
}

pub(super) fn q5_k(x: &BlockWeights, importance: Option<&BlockWeights>, block: &mut [u8; 176]) {
    let tried = Candidates {
        largest: 31.0,
        first: -0.5,
        step: 0.1,
        n: 16,
        error: ErrorNorm::Square,
    };
    let head = block
        .first_chunk_mut()
        .expect("a block begins with its scales");
    let codes = sub_blocks_of_32(x, importance, tried, head);
    block[16..48].copy_from_slice(&bit_plane(&codes, 4));
    four_bit_groups(
        &codes,
        block[48..].first_chunk_mut().expect("the codes follow"),
    );
}

pub(super) fn q2_k(x: &BlockWeights, importance: Option<&BlockWeights>, block: &mut [u8; 84]) {
    let x: &[[f32; 16]; 16] = parts(x);
    let found = match importance {
        Some(importance) => {
            let mean_square = sum_of_squares(x.as_flattened()) / 256.0;
            let importance: &[[f32; 16]; 16] = parts(importance);
            let tried = Candidates {
                largest: 3.0,
                first: -0.9,
                step: 0.05,
                n: 37,
                error: ErrorNorm::Square,
            };
            SubBlockLines::find(x, tried, |t, x| {
                by_importance(x, &tile(four(importance, t)), mean_square)
            })
        }
        None => {
            let tried = Candidates {
                largest: 3.0,
                first: -0.5,
                step: 0.1,
                n: 16,
                error: ErrorNorm::Magnitude,
            };
            SubBlockLines::find(x, tried, |_, x| x.map(Lanes::abs))
        }
    };
    let shared = match importance {
        Some(_) => found.weighed(15),
        None => found.by_largest(15),
    };
    let d = put_f16(block, 80, shared.d);
    let d_min = put_f16(block, 82, shared.d_min);
    let mut codes = [[0; 16]; 16];
    for (s, codes) in codes.iter_mut().enumerate() {
        block[s] = shared.scales[s] | shared.minima[s] << 4;
        *codes = found.round(
            s,
            &x[s],
            d * f32::from(block[s] & 15),
            d_min * f32::from(block[s] >> 4),
        );
    }
    let codes = codes.as_flattened().first_chunk().expect("16 · 16 codes");
    two_bit_groups(
        codes,
        block[16..]
            .first_chunk_mut()
            .expect("the codes follow the scales"),
    );
}

/// Writes the scales of Q4_K or Q5_K, whose blocks begin alike, and returns the codes.
#[inline(always)]
fn sub_blocks_of_32(
    x: &BlockWeights,
    importance: Option<&BlockWeights>,
    plain: Candidates,
    head: &mut [u8; 16],
) -> [[u8; 32]; 8] {
    let x: &[[f32; 32]; 8] = parts(x);
    let (found, shared) = match importance {
        Some(importance) => {
            let mean_square = 2.0 * sum_of_squares(x.as_flattened()) / 256.0;
            let importance: &[[f32; 32]; 8] = parts(importance);
            let tried = Candidates {
                first: -0.9,
                step: 0.05,
                n: 37,
                ..plain
            };
            let found = SubBlockLines::find(x, tried, |t, x| {
                by_importance(x, &tile(four(importance, t)), mean_square)
            });
            let shared = found.weighed(63);
            (found, shared)
        }
        None => {
            let found = SubBlockLines::find(x, plain, |_, x| by_magnitude(x));
            let shared = found.by_largest(63);
            (found, shared)
        }
    };
    let d = put_f16(head, 0, shared.d);
    let d_min = put_f16(head, 2, shared.d_min);
    let scales = scales_and_minima(&shared.scales, &shared.minima);
    head[4..].copy_from_slice(&scales);
    std::array::from_fn(|s| {
        let (scale, min) = layout::scale_min(&scales, s);
        found.round(s, &x[s], d * f32::from(scale), d_min * f32::from(min))
    })
}

/// Error weights without importance: the magnitude of the weight plus the RMS of its sub-block.
#[inline(always)]
fn by_magnitude(x: &Tile<32>) -> Tile<32> {
    let squares = x.iter().fold(Lanes::splat(0.0), |sum, &x| sum + x * x);
    let typical = (squares / Lanes::splat(32.0)).sqrt();
    x.map(|x| typical + x.abs())
}

/// The lines found for the `S` sub-blocks of `N` weights of a block.
struct SubBlockLines<const N: usize, const S: usize> {
    /// The largest code.
    largest: i32,
    scale: [f32; S],
    min: [f32; S],
    codes_per_weight: [f32; S],
    origin: [f32; S],
    /// Sums of error weights.
    weight: [f32; S],
}

/// Quantized scales and minima.
struct SharedScales<const S: usize> {
    d: f32,
    d_min: f32,
    scales: [u8; S],
    minima: [u8; S],
}

impl<const N: usize, const S: usize> SubBlockLines<N, S> {
    /// Finds a line for each sub-block. `weights` gives the error weights of a tile from its index
    /// and weights.
    #[inline(always)]
    fn find(
        x: &[[f32; N]; S],
        tried: Candidates,
        weights: impl Fn(usize, &Tile<N>) -> Tile<N>,
    ) -> Self {
        let zeros = [0.0; S];
        let mut found = Self {
            largest: tried.largest as i32,
            scale: zeros,
            min: zeros,
            codes_per_weight: zeros,
            origin: zeros,
            weight: zeros,
        };
        for (t, x) in x.as_chunks().0.iter().enumerate() {
            let x = tile(x);
            let weights = weights(t, &x);
            found.set(t, line(&x, &weights, tried));
            let sum = weights.iter().fold(Lanes::splat(0.0), |sum, &w| sum + w);
            *four_mut(&mut found.weight, t) = sum.0;
        }
        found
    }

    fn set(&mut self, t: usize, line: Line) {
        *four_mut(&mut self.scale, t) = line.scale.0;
        *four_mut(&mut self.min, t) = line.min.0;
        *four_mut(&mut self.codes_per_weight, t) = line.codes_per_weight.0;
        *four_mut(&mut self.origin, t) = line.origin.0;
    }

    /// Quantizes scales and minima such that the largest of each has the code `largest`.
    fn by_largest(&self, largest: u8) -> SharedScales<S> {
        let (d, scales) = largest_scale(&self.scale, largest);
        let (d_min, minima) = largest_scale(&self.min, largest);
        SharedScales {
            d,
            d_min,
            scales,
            minima,
        }
    }

    /// Quantizes scales and minima to codes up to `largest` with the least weighted error.
    fn weighed(&self, largest: u8) -> SharedScales<S> {
        let (d, scales) = shared_scale(&self.scale, &self.weight, largest.into());
        let (d_min, minima) = shared_scale(&self.min, &self.weight, largest.into());
        SharedScales {
            d,
            d_min,
            scales,
            minima,
        }
    }

    /// Rounds sub-block `s` again under its quantized scale and minimum. If the scale is 0, returns
    /// the codes of the search.
    #[inline(always)]
    fn round(&self, s: usize, x: &[f32; N], scale: f32, min: f32) -> [u8; N] {
        if scale == 0.0 {
            return line_codes(x, self.origin[s], self.codes_per_weight[s], self.largest);
        }
        x.map(|x| nearest((x + min) / scale).clamp(0, self.largest) as u8)
    }
}

/// The scale that maps the largest of `x` to the code `largest`, and the codes.
fn largest_scale<const S: usize>(x: &[f32; S], largest: u8) -> (f32, [u8; S]) {
    let highest = x
        .iter()
        .fold(0.0, |max: f32, &x| if x > max { x } else { max });
    let n = f32::from(largest);
    let per_number = if highest > 0.0 { n / highest } else { 0.0 };
    (
        highest / n,
        x.map(|x| (nearest(per_number * x) as u8).min(largest)),
    )
}

/// Splits a block into sub-blocks.
fn parts<const N: usize, const S: usize>(x: &BlockWeights) -> &[[f32; N]; S] {
    x.as_chunks()
        .0
        .first_chunk()
        .expect("sub-blocks make a block")
}

/// The sub-blocks of tile `t`.
fn four<const N: usize>(x: &[[f32; N]], t: usize) -> &[[f32; N]; LANES] {
    &x.as_chunks().0[t]
}

/// The values of the sub-blocks of tile `t`.
fn four_mut(x: &mut [f32], t: usize) -> &mut [f32; LANES] {
    &mut x.as_chunks_mut().0[t]
}
