//! Types whose codes index a table of numbers: IQ4_NL and IQ4_XS, whose scale is searched, and
//! MXFP4, whose scale is a power of two.

use atta_formats::layout::{MXFP4, MXFP4_VALUES};

use super::{
    pack::{nibbles, put_f16},
    plain::inverse,
    search::{LANES, Lanes, Tile, index, largest_magnitude, nearest, nonlinear_scale, tile},
    weighted::{by_importance, four, sum_of_squares},
};

type FourBlocks = [[f32; 32]; LANES];

pub(super) fn iq4_nl(x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    for (t, (x, out)) in x
        .chunks(32 * LANES)
        .zip(out.chunks_mut(18 * LANES))
        .enumerate()
    {
        let x = four(x);
        let lanes = tile(&x);
        let weights = match importance.and_then(|importance| importance.chunks(32 * LANES).nth(t)) {
            Some(importance) => by_own_mean_square(&lanes, &tile(&four(importance))),
            None => squares(&lanes),
        };
        let scales = nonlinear_scale(&lanes, &weights);
        for ((x, d), block) in x.iter().zip(scales.0).zip(out.as_chunks_mut::<18>().0) {
            put_f16(block, 0, d);
            block[2..].copy_from_slice(&nibbles(&x.map(|x| index(inverse(d) * x))));
        }
    }
}

pub(super) fn iq4_xs(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 136]) {
    let mean_square = sum_of_squares(x) * (2.0 / 256.0);
    let mut scales = [0.0; 8];
    for t in 0..2 {
        let lanes = tile(tile_of(x, t));
        let weights = match importance {
            Some(importance) => by_importance(&lanes, &tile(tile_of(importance, t)), mean_square),
            None => squares(&lanes),
        };
        scales[LANES * t..][..LANES].copy_from_slice(&nonlinear_scale(&lanes, &weights).0);
    }
    let largest = scales.iter().fold(
        0.0,
        |extreme: f32, &d| if d.abs() > extreme.abs() { d } else { extreme },
    );
    let d = -largest / 32.0;
    put_f16(block, 0, d);
    let codes = scales.map(|scale| nearest(inverse(d) * scale).clamp(-32, 31));
    put_six_bits(&codes, block);
    for (s, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let per_weight = inverse(d * codes[s] as f32);
        block[8 + 16 * s..][..16].copy_from_slice(&nibbles(&x.map(|x| index(per_weight * x))));
    }
}

pub(super) fn mxfp4(x: &[f32; 32], block: &mut [u8; 17]) {
    let largest = largest_magnitude(x);
    // The largest code is 6 = 1.5 · 2^2, doubled in the table.
    block[0] = if largest > 0.0 {
        (floor_of_log2(largest) - 2 + 127) as u8
    } else {
        0
    };
    let d = MXFP4(block).d();
    let codes = nearest_codes(x, d);
    block[1..].copy_from_slice(&nibbles(&codes));
}

/// `⌊log2 x⌋` of a logarithm rounded to f32, as in ggml. It is too high by 1 for numbers just below
/// a large or small power of two.
fn floor_of_log2(x: f32) -> i32 {
    (f64::from(x).log2() as f32).floor() as i32
}

/// For each weight, the code of the nearest number, the lowest of several. Codes from 8 on are the
/// negative numbers, so the search compares magnitudes.
fn nearest_codes(x: &[f32; 32], d: f32) -> [u8; 32] {
    let mut codes = [0; 32];
    for (x, codes) in x.as_chunks().0.iter().zip(codes.as_chunks_mut::<LANES>().0) {
        let magnitude = Lanes(*x).abs();
        let mut least = magnitude;
        let mut nearest = Lanes::splat(0.0);
        for (code, &number) in (0u8..8).zip(&MXFP4_VALUES).skip(1) {
            let error = (Lanes::splat(f32::from(number) * d) - magnitude).abs();
            let better = least.above(error);
            least = better.choose(error, least);
            nearest = better.choose(Lanes::splat(code.into()), nearest);
        }
        *codes = std::array::from_fn(|k| match nearest.0[k] as u8 {
            0 => 0,
            code => code + 8 * u8::from(x[k] < 0.0),
        });
    }
    codes
}

/// Error weights with importance, where the mean square is that of each block of 32, times two.
#[inline(always)]
fn by_own_mean_square(x: &Tile<32>, importance: &Tile<32>) -> Tile<32> {
    let squares = x.iter().fold(Lanes::splat(0.0), |sum, &x| sum + x * x);
    let mean_square = squares * Lanes::splat(2.0 / 32.0);
    std::array::from_fn(|i| importance[i] * (mean_square + x[i] * x[i]).sqrt())
}

#[inline(always)]
fn squares(x: &Tile<32>) -> Tile<32> {
    x.map(|x| x * x)
}

/// Scales of IQ4_XS from −32 to 31: low 4 bits in nibbles, high 2 bits in a word.
fn put_six_bits(scales: &[i32; 8], block: &mut [u8; 136]) {
    let biased = scales.map(|scale| (scale + 32) as u16);
    let high = (0..8).fold(0, |high, s| high | biased[s] >> 4 << (2 * s));
    block[2..4].copy_from_slice(&high.to_le_bytes());
    for (s, pair) in biased.as_chunks::<2>().0.iter().enumerate() {
        block[4 + s] = (pair[0] & 15 | (pair[1] & 15) << 4) as u8;
    }
}

/// The sub-blocks of tile `t`.
fn tile_of(x: &[f32; 256], t: usize) -> &FourBlocks {
    &x.as_chunks::<32>().0.as_chunks().0[t]
}
