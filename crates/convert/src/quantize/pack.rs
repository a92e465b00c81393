//! Packs codes into bytes, the inverse of the unpacking in `atta_formats::layout`.

use atta_formats::f16::{f16_to_f32, f32_to_f16};

/// Writes `x` as f16 at byte `at` and returns the rounded value.
#[inline(always)]
pub(super) fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let bits = f32_to_f16(x);
    block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    f16_to_f32(bits)
}

/// Byte j has the low 4 bits of code j below those of code j + 16.
#[inline(always)]
pub(crate) fn nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] & 15 | codes[j + 16] << 4)
}

/// Bit j is the fifth bit of code j.
#[inline(always)]
pub(crate) fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let bits = codes
        .iter()
        .enumerate()
        .map(|(j, &code)| u32::from(code >> 4 & 1) << j);
    bits.sum::<u32>().to_le_bytes()
}

/// Low 4 bits of 256 codes, two sub-blocks of 32 in 32 bytes: Q4_K and Q5_K.
#[inline(always)]
pub(super) fn four_bit_groups(codes: &[[u8; 32]; 8], out: &mut [u8; 128]) {
    for (pair, out) in codes
        .as_chunks::<2>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<32>().0)
    {
        *out = std::array::from_fn(|j| pair[0][j] & 15 | pair[1][j] << 4);
    }
}

/// Low 2 bits of 256 codes, four runs of 32 in 32 bytes: Q2_K, Q3_K, TQ2_0, and the high bits of
/// Q6_K.
#[inline(always)]
pub(super) fn two_bit_groups(codes: &[u8; 256], out: &mut [u8; 64]) {
    for (runs, out) in codes
        .as_chunks::<128>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<32>().0)
    {
        let run = |n: usize, j: usize| (runs[32 * n + j] & 3) << (2 * n);
        *out = std::array::from_fn(|j| run(0, j) | run(1, j) | run(2, j) | run(3, j));
    }
}

/// Bit s of byte j is bit `bit` of code j of run s of 32: the fifth bits of Q5_K and the third ones
/// of Q3_K.
#[inline(always)]
pub(super) fn bit_plane(codes: &[[u8; 32]; 8], bit: u32) -> [u8; 32] {
    let mut out = [0; 32];
    for (s, codes) in codes.iter().enumerate() {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out |= (code >> bit & 1) << s;
        }
    }
    out
}

/// 6-bit scales and minima of Q4_K and Q5_K; see `layout::scale_min`.
pub(super) fn scales_and_minima(scales: &[u8; 8], minima: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for s in 0..4 {
        packed[s] = scales[s] | scales[s + 4] >> 4 << 6;
        packed[s + 4] = minima[s] | minima[s + 4] >> 4 << 6;
        packed[s + 8] = scales[s + 4] & 15 | minima[s + 4] << 4;
    }
    packed
}

/// The 6-bit scales of Q3_K, biased by 32; see `layout::Q3_K::unpack_scales`.
pub(super) fn sixteen_scales(scales: &[u8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for s in 0..8 {
        packed[s] = scales[s] & 15 | scales[s + 8] << 4;
    }
    for (s, &scale) in scales.iter().enumerate() {
        packed[8 + s % 4] |= scale >> 4 << (2 * (s / 4));
    }
    packed
}
