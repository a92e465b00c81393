//! Activations to int8: symmetric, the largest magnitude of a block becomes ±127, rounded to
//! nearest even.

use crate::activations::{Codes, GroupSums, Sums};
use crate::isa::Floats;

/// Blocks whose largest magnitude is below this are stored as zero: their reciprocal scale could
/// overflow.
pub(crate) const TINY: f32 = 1e-35;

/// Adding this puts the integer nearest to a small f32 into its lowest bits, ties to even.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// NaN if any element is: it must not vanish in codes, but make the scale and every product NaN.
#[inline(always)]
fn largest_magnitude<const N: usize>(x: &[f32; N]) -> f32 {
    let (mut lanes, mut poison) = ([0f32; 16], [0f32; 16]);
    for x in x.as_chunks::<16>().0 {
        for i in 0..16 {
            lanes[i] = if x[i].abs() > lanes[i] {
                x[i].abs()
            } else {
                lanes[i]
            };
            // 0 for every number; the comparison passes over NaN.
            poison[i] += x[i] * 0.0;
        }
    }
    // The bits of non-negative floats have the same order, and compilers may take the maximum of
    // integers in any order.
    let (mut largest, mut poisoned) = (0, 0.0);
    for i in 0..16 {
        largest = lanes[i].to_bits().max(largest);
        poisoned += poison[i];
    }
    f32::from_bits(largest) + poisoned
}

/// Writes the codes of `x`, at most 127 in magnitude, and returns their scale: `x ≈ scale·code`.
/// All zero: scale 0.
#[inline(always)]
pub(crate) fn quantize<const N: usize>(x: &[f32; N], codes: &mut [i8; N]) -> f32 {
    let amax = largest_magnitude(x);
    if amax < TINY {
        *codes = [0; N];
        return 0.0;
    }
    let scale = amax / 127.0;
    let inverse = 1.0 / scale;
    for (code, x) in codes.iter_mut().zip(x) {
        // NaN may give any bits, but sums of products rely on −127.
        *code = ((x * inverse + ROUND)
            .to_bits()
            .wrapping_sub(ROUND.to_bits()) as i8)
            .max(-127);
    }
    scale
}

/// The sum of each 32 codes.
#[inline(always)]
pub(crate) fn sums_of_32(codes: &[i8; 256]) -> [i16; 8] {
    // A loop: `from_fn` would be a call.
    let mut sums = [0; 8];
    for (sum, group) in sums.iter_mut().zip(codes.as_chunks::<32>().0) {
        *sum = group.iter().map(|&code| i16::from(code)).sum();
    }
    sums
}

/// Of each 16 codes: the sums of the first two and of the last two of each four, 16 bits of a word
/// each, as bytes biased by 128.
#[inline(always)]
fn halves(codes: &[i8; 256]) -> [[i16; 2]; 16] {
    const EVEN: u32 = 0x00ff_00ff;
    let mut halves = [[0; 2]; 16];
    for (halves, group) in halves.iter_mut().zip(codes.as_chunks::<16>().0) {
        let mut sums = 0;
        for word in group.as_chunks::<4>().0 {
            let biased = u32::from_le_bytes(word.map(|code| code as u8)) ^ 0x8080_8080;
            sums += (biased & EVEN) + (biased >> 8 & EVEN);
        }
        *halves = [sums as i16 - 8 * 128, (sums >> 16) as i16 - 8 * 128];
    }
    halves
}

/// Splits sums so that `whole = 256·high + low`, with `low` from −128 to 127.
#[inline(always)]
fn split(whole: [i16; 16]) -> GroupSums {
    let mut sums = GroupSums {
        whole,
        ..GroupSums::default()
    };
    for i in 0..16 {
        sums.low[i] = whole[i] as i8;
        sums.high[i] = ((whole[i] + 128) >> 8) as i8;
    }
    sums
}

/// One scale for 256 values; also the sums of each 16 and each 32 codes.
#[inline(always)]
pub(crate) fn block_256<I: Floats>(
    isa: I,
    x: &[f32; 256],
    codes: &mut Codes,
    scale: &mut f32,
    sums_out: &mut Sums,
) {
    *scale = isa.quantize(x, &mut codes.0);
    *sums_out = sums(&codes.0);
}

/// The sums of each 16 and each 32 codes.
#[inline(always)]
pub(crate) fn sums(codes: &[i8; 256]) -> Sums {
    let halves = halves(codes);
    let (mut of_16, mut of_32) = ([0; 16], [0; 16]);
    for i in 0..16 {
        of_16[i] = halves[i][0] + halves[i][1];
    }
    for i in 0..8 {
        of_32[i] = of_16[2 * i] + of_16[2 * i + 1];
    }
    Sums {
        of_16: split(of_16),
        of_32: split(of_32),
        halves,
    }
}

/// One scale for each 32 of 256 values; also the sum of each 32 codes.
#[inline(always)]
pub(crate) fn block_32<I: Floats>(
    isa: I,
    x: &[f32; 256],
    codes: &mut Codes,
    scales: &mut [f32; 8],
    sum: &mut [i16; 8],
) {
    let parts = x
        .as_chunks::<32>()
        .0
        .iter()
        .zip(codes.0.as_chunks_mut::<32>().0);
    for ((x, codes), scale) in parts.zip(scales) {
        *scale = isa.quantize(x, codes);
    }
    *sum = sums_of_32(&codes.0);
}
