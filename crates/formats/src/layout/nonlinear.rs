//! 4-bit codes that stand for the numbers of a table: IQ4_NL, IQ4_XS and MXFP4.
//!
//! The one idea: a table has 16 signed bytes, as many as one byte shuffle looks up.

use super::{Signed, u16_at};

/// What the codes of [`IQ4_NL`] and [`IQ4_XS`] stand for.
pub const IQ4_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// What the codes of [`MXFP4`] stand for: the numbers of E2M1, doubled. Both zeros are 0.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

block! {
    /// 32 weights: the nibbles of [`Q4_0`](super::Q4_0) through [`IQ4_VALUES`]; `y = code·d`.
    IQ4_NL, 18: { d: f16 at 0, qs: 16 at 2, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32 as in [`IQ4_NL`], each with a 6-bit scale; see [`Signed`].
    IQ4_XS, 136: { d: f16 at 0, scales_h: 2 at 2, scales_l: 4 at 4, qs: 128 at 8, }
}
block! {
    /// 32 weights: the nibbles of [`Q4_0`](super::Q4_0) through [`MXFP4_VALUES`]; `y = code·d` with
    /// a power of two for `d`. Source: the OCP Microscaling Formats specification 1.0.
    MXFP4, 17: { e: 1 at 0, qs: 16 at 1, }
}

/// Half of the number that `e` is in E8M0, which is 2 to the power of `e` − 127.
#[inline(always)]
pub fn half_power(e: u8) -> f32 {
    let e = i32::from(e);
    // The larger of both: numbers with an `e` of 0 or 1 are subnormal.
    let normal = (e - 1) << 23;
    let subnormal = ((e & 1) + 1) << 21;
    f32::from_bits(normal.max(subnormal) as u32)
}

impl IQ4_NL<'_> {
    /// Writes the codes, −127 to 113.
    #[inline(always)]
    pub fn codes(self, out: &mut [i8; 32]) {
        look_up(&IQ4_VALUES, self.qs(), out);
    }
}

impl MXFP4<'_> {
    /// The scale: half of 2 to the power of `e` − 127, because the codes are doubled. From 2^-128,
    /// a subnormal, to 2^127.
    #[inline(always)]
    pub fn d(self) -> f32 {
        half_power(self.e()[0])
    }

    /// Writes the codes, −12 to 12.
    #[inline(always)]
    pub fn codes(self, out: &mut [i8; 32]) {
        look_up(&MXFP4_VALUES, self.qs(), out);
    }
}

impl<'a> IQ4_XS<'a> {
    /// The bytes that hold the codes of sub-block `s` < 8: low nibbles are weights 0 to 15, high
    /// nibbles 16 to 31.
    #[inline(always)]
    pub fn group(self, s: usize) -> &'a [u8; 16] {
        &self.qs().as_chunks().0[s]
    }
}

impl Signed for IQ4_XS<'_> {
    const K: f32 = 1.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// −32 to 31: 4 bits in a nibble of `scales_l`, 2 bits in `scales_h`.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        let low = (self.scales_l()[s / 2] >> (4 * (s % 2))) & 15;
        let high = (u16::from_le_bytes(*self.scales_h()) >> (2 * s)) & 3;
        (low | (high as u8) << 4) as i8 - 32
    }

    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        look_up(&IQ4_VALUES, self.group(g), out);
    }
}

#[inline(always)]
fn look_up(values: &[i8; 16], qs: &[u8; 16], out: &mut [i8; 32]) {
    for (j, &q) in qs.iter().enumerate() {
        out[j] = values[usize::from(q & 15)];
        out[j + 16] = values[usize::from(q >> 4)];
    }
}

pub(crate) fn iq4_nl(block: &[u8; 18], y: &mut [f32; 32]) {
    let b = IQ4_NL(block);
    let mut codes = [0; 32];
    b.codes(&mut codes);
    scaled(b.d(), &codes, y);
}

pub(crate) fn mxfp4(block: &[u8; 17], y: &mut [f32; 32]) {
    let b = MXFP4(block);
    let mut codes = [0; 32];
    b.codes(&mut codes);
    scaled(b.d(), &codes, y);
}

fn scaled(d: f32, codes: &[i8; 32], y: &mut [f32; 32]) {
    for (y, &code) in y.iter_mut().zip(codes) {
        *y = d * f32::from(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_mxfp4_are_powers_of_two_down_to_subnormals() {
        for (e, exponent) in [(0, -128), (1, -127), (2, -126), (128, 0), (255, 127)] {
            let mut block = [0; 17];
            block[0] = e;
            assert_eq!(f64::from(MXFP4(&block).d()), 2f64.powi(exponent), "{e}");
        }
    }
}
