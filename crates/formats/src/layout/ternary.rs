//! TQ1_0 and TQ2_0: codes −1, 0 and 1 under one scale per block.

use super::{Signed, u16_at};

block! {
    /// 256 weights, 5 in a byte: byte b is a fraction b / 256 whose ternary digits, raised by 1,
    /// are the codes. Digit n of `qs[j]`, j < 32, is weight 32·n + j; of `qs[32 + j]`, j < 16,
    /// weight 160 + 16·n + j; and digit n < 4 of
    /// `qh[j]` weight 240 + 4·n + j.
    TQ1_0, 54: { qs: 48 at 0, qh: 4 at 48, d: f16 at 52, }
}
block! {
    /// 256 weights of 2 bits, raised by 1. Codes: [`group`](TQ2_0::group). A code of 3 stands for
    /// 2.
    TQ2_0, 66: { qs: 64 at 0, d: f16 at 64, }
}

/// Powers of 3.
const SHIFTS: [u8; 5] = [1, 3, 9, 27, 81];

/// Digit `n` < 5 of a byte, lowered by 1: dropping the digits before it is a multiplication modulo
/// 256.
#[inline(always)]
fn trit(byte: u8, n: usize) -> i8 {
    let rest = byte.wrapping_mul(SHIFTS[n]);
    ((u16::from(rest) * 3) >> 8) as i8 - 1
}

impl Signed for TQ1_0<'_> {
    const K: f32 = 1.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 52)
    }

    /// 1: there are no sub-blocks.
    #[inline(always)]
    fn scale(self, _: usize) -> i8 {
        1
    }

    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        let (wide, narrow) = self.qs().split_at(32);
        for (j, out) in out.iter_mut().enumerate() {
            *out = match 32 * g + j {
                i @ 0..160 => trit(wide[i % 32], i / 32),
                i @ 160..240 => trit(narrow[i % 16], (i - 160) / 16),
                i => trit(self.qh()[i % 4], (i - 240) / 4),
            };
        }
    }
}

impl<'a> TQ2_0<'a> {
    /// The bytes of `qs` that hold the 2-bit codes of weights 32·g to 32·g + 31, `g` < 8, and their
    /// shift.
    #[inline(always)]
    pub fn group(self, g: usize) -> (&'a [u8; 32], usize) {
        (&self.qs().as_chunks().0[g / 4], g % 4 * 2)
    }
}

impl Signed for TQ2_0<'_> {
    const K: f32 = 1.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 64)
    }

    /// 1: there are no sub-blocks.
    #[inline(always)]
    fn scale(self, _: usize) -> i8 {
        1
    }

    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        let (bytes, shift) = self.group(g);
        for (out, &q) in out.iter_mut().zip(bytes) {
            *out = ((q >> shift) & 3) as i8 - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_trits_come_out_of_a_byte_as_they_went_in() {
        for number in 0..243u16 {
            // The byte is the fraction number / 243, rounded up, as the format's quantizer makes
            // it.
            let byte = (number * 256).div_ceil(243) as u8;
            let digits: [i8; 5] =
                std::array::from_fn(|n| (number / [81, 27, 9, 3, 1][n] % 3) as i8 - 1);
            assert_eq!(std::array::from_fn(|n| trit(byte, n)), digits, "{number}");
        }
    }

    #[test]
    fn every_trit_of_a_block_is_a_weight() {
        let mut codes = [0; 32];
        for at in 0..52 {
            let mut block = [0; 54];
            block[at] = 255;
            let group = |g| {
                TQ1_0(&block).codes(g, &mut codes);
                codes.iter().filter(|&&code| code == 1).count()
            };
            assert_eq!(
                (0..8).map(group).sum::<usize>(),
                if at < 48 { 5 } else { 4 },
                "byte {at}"
            );
        }
    }
}
