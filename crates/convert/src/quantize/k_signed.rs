//! Q3_K and Q6_K: signed codes with a scale per sub-block of 16, which is quantized with one scale
//! of scales (`d`) per block. First scales are searched per sub-block, then `d`; at last the
//! weights are rounded again under the quantized scales.

use atta_formats::layout::Q3_K;

use super::{
    pack::{bit_plane, put_f16, sixteen_scales, two_bit_groups},
    search::{LANES, Lanes, Tile, descend, nearest, one_scale, scale, tile},
    weighted::{by_importance, sum_of_squares},
};

/// Weights by sub-block.
type SubBlocks<T> = [[T; 16]; 16];

pub(super) fn q6_k(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 210]) {
    let x = sub_blocks(x);
    let importance = importance.map(sub_blocks);
    let found = SubBlockScales::find(x, 32, |t, x| match importance {
        Some(importance) => tile(four(importance, t)),
        None => squares(x),
    });
    let largest = extreme(&found.scale);
    if largest.abs() < 1e-15 {
        *block = [0; 210];
        return;
    }
    let per_scale = -128.0 / largest;
    let d = put_f16(block, 208, 1.0 / per_scale);
    let scales = found
        .scale
        .map(|scale| nearest(per_scale * scale).min(127) as i8);
    let codes = std::array::from_fn(|s| found.round(s, &x[s], d * f32::from(scales[s])));
    block[192..208].copy_from_slice(&scales.map(|scale| scale as u8));
    pack_six_bits(
        &codes,
        block
            .first_chunk_mut()
            .expect("a block begins with its codes"),
    );
}

pub(super) fn q3_k(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 110]) {
    let x = sub_blocks(x);
    let (found, d, scales) = match importance {
        Some(importance) => weighed_three_bits(x, sub_blocks(importance)),
        None => descended_three_bits(x),
    };
    let d = put_f16(block, 108, d);
    block[96..108].copy_from_slice(&sixteen_scales(&scales));
    let scales = Q3_K(block).unpack_scales();
    let codes: SubBlocks<u8> =
        std::array::from_fn(|s| found.round(s, &x[s], d * f32::from(scales[s])));
    let runs = codes
        .as_flattened()
        .as_chunks()
        .0
        .first_chunk()
        .expect("8 · 32 codes");
    block[..32].copy_from_slice(&bit_plane(runs, 2));
    two_bit_groups(
        flat(&codes),
        block[32..]
            .first_chunk_mut()
            .expect("the codes follow the mask"),
    );
}

/// With importance: scales of Q3_K, the scale of scales, and their codes biased by 32.
fn weighed_three_bits(
    x: &SubBlocks<f32>,
    importance: &SubBlocks<f32>,
) -> (SubBlockScales, f32, [u8; 16]) {
    let mean_square = 2.0 * sum_of_squares(x.as_flattened()) / 256.0;
    let found = SubBlockScales::find(x, 4, |t, x| {
        by_importance(x, &tile(four(importance, t)), mean_square)
    });
    let (d, scales) = one_scale(&found.scale, &found.weight, 32.0);
    (found, d, scales)
}

/// Without importance: as [`weighed_three_bits`], with squares as error weights.
fn descended_three_bits(x: &SubBlocks<f32>) -> (SubBlockScales, f32, [u8; 16]) {
    let found = SubBlockScales::descend(x, 4);
    let largest = extreme(&found.scale);
    if largest == 0.0 {
        return (found, 0.0, [0; 16]);
    }
    let per_scale = -32.0 / largest;
    let scales = found
        .scale
        .map(|scale| (nearest(per_scale * scale) as i8).clamp(-32, 31) + 32);
    (found, 1.0 / per_scale, scales.map(|scale| scale as u8))
}

/// The scales found for the sub-blocks of a block.
struct SubBlockScales {
    /// Codes go from `−n` to `n − 1`.
    n: i32,
    scale: [f32; 16],
    /// Sums of error weights.
    weight: [f32; 16],
    /// Codes biased by `n`.
    codes: SubBlocks<u8>,
}

impl SubBlockScales {
    fn new(n: i32) -> Self {
        Self {
            n,
            scale: [0.0; 16],
            weight: [0.0; 16],
            codes: [[0; 16]; 16],
        }
    }

    /// Finds a scale for each sub-block. `weights` gives the error weights of a tile from its index
    /// and weights.
    #[inline(always)]
    fn find(x: &SubBlocks<f32>, n: i32, weights: impl Fn(usize, &Tile<16>) -> Tile<16>) -> Self {
        let mut all = Self::new(n);
        for (t, x) in x.as_chunks().0.iter().enumerate() {
            let lanes = tile(x);
            let weights = weights(t, &lanes);
            let found = scale(&lanes, &weights, n as f32);
            let sum = weights.iter().fold(Lanes::splat(0.0), |sum, &w| sum + w);
            for (k, x) in x.iter().enumerate() {
                let s = LANES * t + k;
                (all.scale[s], all.weight[s]) = (found.scale.0[k], sum.0[k]);
                all.codes[s] = found.codes(k, x, n as f32);
            }
        }
        all
    }

    #[inline(always)]
    fn descend(x: &SubBlocks<f32>, n: i32) -> Self {
        let mut all = Self::new(n);
        for (t, x) in x.as_chunks().0.iter().enumerate() {
            let (scale, codes) = descend(&tile(x), n as f32);
            for k in 0..LANES {
                all.scale[LANES * t + k] = scale.0[k];
                all.codes[LANES * t + k] = codes.map(|codes| (codes.0[k] as i32 + n) as u8);
            }
        }
        all
    }

    /// Rounds sub-block `s` again under its quantized scale. If it is 0, returns the codes of the
    /// search.
    #[inline(always)]
    fn round(&self, s: usize, x: &[f32; 16], scale: f32) -> [u8; 16] {
        if scale == 0.0 {
            return self.codes[s];
        }
        x.map(|x| (nearest(x / scale).clamp(-self.n, self.n - 1) + self.n) as u8)
    }
}

fn squares(x: &Tile<16>) -> Tile<16> {
    x.map(|x| x * x)
}

/// The number with the largest magnitude, the first of several.
fn extreme(x: &[f32; 16]) -> f32 {
    x.iter().fold(
        0.0,
        |extreme: f32, &x| if x.abs() > extreme.abs() { x } else { extreme },
    )
}

/// Low 4 bits in 128 bytes, high 2 bits in 64.
fn pack_six_bits(codes: &SubBlocks<u8>, out: &mut [u8; 192]) {
    let codes = flat(codes);
    let (low, high) = out.split_at_mut(128);
    for (codes, low) in codes
        .as_chunks::<128>()
        .0
        .iter()
        .zip(low.as_chunks_mut::<64>().0)
    {
        *low = std::array::from_fn(|j| codes[j] & 15 | codes[j + 64] << 4);
    }
    two_bit_groups(
        &codes.map(|code| code >> 4),
        high.first_chunk_mut().expect("192 - 128 bytes remain"),
    );
}

fn sub_blocks(x: &[f32; 256]) -> &SubBlocks<f32> {
    x.as_chunks().0.first_chunk().expect("16 · 16 weights")
}

fn flat(codes: &SubBlocks<u8>) -> &[u8; 256] {
    codes.as_flattened().first_chunk().expect("16 · 16 codes")
}

/// The sub-blocks of tile `t`.
fn four(x: &SubBlocks<f32>, t: usize) -> &[[f32; 16]; LANES] {
    &x.as_chunks().0[t]
}
