//! The IQ formats with codebooks: an index names 8 (or 4) codes at once, and signs or a shift are
//! stored beside it.
//!
//! The codebooks are in [`grids`]. Every view says, per group of 32 weights, the indices
//! (`entries`) and the signs (`group_signs`, bit i for weight i, set if negative; or seven of eight
//! of them, as `sevens` or `packed_signs`) or shifts (`deltas`); [`Signed`] puts them together.

use super::{Signed, grids, u16_at, u32_at};

block! {
    /// 256 weights in 8 sub-blocks of 32; `qs` has 8 bytes for each: 4 indices, then a word with 4
    /// times 7 signs (an eighth makes the number of minus signs even) and the scale in the top 4
    /// bits. `y = d/8·(2s + 1)·±entry`.
    IQ2_XXS, 66: { d: f16 at 0, qs: 64 at 2, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16. `qs` are 32 words: an index of 9 bits and 7 signs as in
    /// [`IQ2_XXS`].
    /// `y = d/8·(2s + 1)·±entry`.
    IQ2_XS, 74: { d: f16 at 0, qs: 64 at 2, scales: 8 at 66, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16. An index has 8 bits in `qs` and 2 in `qh`. `y = d/8·(2s
    /// + 1)·±entry`.
    IQ2_S, 82: { d: f16 at 0, qs: 32 at 2, signs: 32 at 34, qh: 8 at 66, scales: 8 at 74, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32. `qs` are indices of 4 codes; `scales` has a word for each
    /// sub-block as in [`IQ2_XXS`]. `y = d/4·(2s + 1)·±entry`.
    IQ3_XXS, 98: { d: f16 at 0, qs: 64 at 2, scales: 32 at 66, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32. An index of 4 codes has 8 bits in `qs` and 1 in `qh`.
    /// `y = d·(2s + 1)·±entry`.
    IQ3_S, 110: { d: f16 at 0, qs: 64 at 2, qh: 8 at 66, signs: 32 at 74, scales: 4 at 106, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32. `qh` has a word for each: 4 times 3 high bits of the
    /// indices in `qs`, a scale of 3 bits, and the sign of the shift. `y = d/8·(2s + 1)·(entry ±
    /// 1)`.
    IQ1_S, 50: { d: f16 at 0, qs: 32 at 2, qh: 16 at 34, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16. `qh` has a nibble for each index in `qs`: 3 high bits
    /// and the sign of the shift. `scales` are 4 words: 4 scales of 3 bits in each, and a nibble of
    /// `d` atop.
    /// `y = d/8·(2s + 1)·(entry ± 1)`.
    IQ1_M, 56: { qs: 32 at 0, qh: 16 at 32, scales: 8 at 48, }
}

/// Four times 7 bits, one behind the other, as four bytes.
#[inline(always)]
pub fn spread_sevens(packed: u32) -> u32 {
    let halves = (packed & 0x3fff) | (packed & 0x0fff_c000) << 2;
    (halves & 0x007f_007f) | (halves & 0x3f80_3f80) << 1
}

/// The signs of bytes that store 7 each: the eighth makes the number of minus signs even.
#[inline(always)]
pub fn even_signs(sevens: u32) -> u32 {
    // Bit 0 of each byte becomes the sum of its bits, whatever the others get from their
    // neighbours.
    let fours = sevens ^ (sevens >> 4);
    let pairs = fours ^ (fours >> 2);
    sevens | ((pairs ^ (pairs >> 1)) & 0x0101_0101) << 7
}

/// Nibble `i` of `bytes`.
#[inline(always)]
fn nibble(bytes: &[u8], i: usize) -> u8 {
    (bytes[i / 2] >> (4 * (i % 2))) & 15
}

/// The odd number that a scale stands for.
#[inline(always)]
fn odd(scale: u8) -> i8 {
    (2 * scale + 1) as i8
}

/// Entries of a codebook with their signs.
#[inline(always)]
fn signed<const N: usize, const ENTRIES: usize>(
    grid: &[[i8; N]],
    entries: [u16; ENTRIES],
    signs: u32,
    out: &mut [i8; 32],
) {
    for (i, out) in out.iter_mut().enumerate() {
        let code = grid[usize::from(entries[i / N])][i % N];
        *out = if signs >> i & 1 == 1 { -code } else { code };
    }
}

/// Entries of the codebook of IQ1 with their shifts.
#[inline(always)]
fn shifted(entries: [u16; 4], deltas: [i8; 4], out: &mut [i8; 32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = grids::IQ1[usize::from(entries[i / 8])][i % 8] + deltas[i / 8];
    }
}

impl IQ2_XXS<'_> {
    /// Indices into [`grids::IQ2_XXS`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 4] {
        std::array::from_fn(|i| self.qs()[8 * g + i].into())
    }

    /// Four times 7 signs of group `g` < 8, one behind the other: [`spread_sevens`],
    /// [`even_signs`]. The top 4 bits are not theirs.
    #[inline(always)]
    pub fn packed_signs(self, g: usize) -> u32 {
        u32_at(self.qs(), 8 * g + 4)
    }
}

impl Signed for IQ2_XXS<'_> {
    const K: f32 = 1.0 / 8.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 31, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd(self.qs()[8 * s + 7] >> 4)
    }

    /// ±8, ±25, ±43.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        signed(
            &grids::IQ2_XXS,
            self.entries(g),
            even_signs(spread_sevens(self.packed_signs(g))),
            out,
        );
    }
}

impl IQ2_XS<'_> {
    #[inline(always)]
    fn word(self, i: usize) -> u16 {
        u16_at(self.qs(), 2 * i)
    }

    /// Indices into [`grids::IQ2_XS`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 4] {
        std::array::from_fn(|i| self.word(4 * g + i) & 511)
    }

    /// Signs of group `g` < 8, 7 in each byte: [`even_signs`].
    #[inline(always)]
    pub fn sevens(self, g: usize) -> u32 {
        let words =
            u64::from(u32_at(self.qs(), 8 * g)) | u64::from(u32_at(self.qs(), 8 * g + 4)) << 32;
        let sevens = words >> 9 & 0x007f_007f_007f_007f;
        let pairs = (sevens | sevens >> 8) & 0x0000_ffff_0000_ffff;
        (pairs | pairs >> 16) as u32
    }
}

impl Signed for IQ2_XS<'_> {
    const K: f32 = 1.0 / 8.0;
    const N_SCALES: usize = 16;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 31, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd(nibble(self.scales(), s))
    }

    /// ±8, ±25, ±43.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        signed(
            &grids::IQ2_XS,
            self.entries(g),
            even_signs(self.sevens(g)),
            out,
        );
    }
}

impl IQ2_S<'_> {
    /// Indices into [`grids::IQ2_S`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 4] {
        let high = u16::from(self.qh()[g]);
        std::array::from_fn(|i| u16::from(self.qs()[4 * g + i]) | (high >> (2 * i) & 3) << 8)
    }

    /// Signs of group `g` < 8.
    #[inline(always)]
    pub fn group_signs(self, g: usize) -> u32 {
        u32_at(self.signs(), 4 * g)
    }
}

impl Signed for IQ2_S<'_> {
    const K: f32 = 1.0 / 8.0;
    const N_SCALES: usize = 16;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 31, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd(nibble(self.scales(), s))
    }

    /// ±8, ±25, ±43.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        signed(&grids::IQ2_S, self.entries(g), self.group_signs(g), out);
    }
}

impl IQ3_XXS<'_> {
    /// Indices into [`grids::IQ3_XXS`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 8] {
        std::array::from_fn(|i| self.qs()[8 * g + i].into())
    }

    /// Four times 7 signs of group `g` < 8, one behind the other: [`spread_sevens`],
    /// [`even_signs`]. The top 4 bits are not theirs.
    #[inline(always)]
    pub fn packed_signs(self, g: usize) -> u32 {
        u32_at(self.scales(), 4 * g)
    }
}

impl Signed for IQ3_XXS<'_> {
    const K: f32 = 1.0 / 4.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 31, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd(self.scales()[4 * s + 3] >> 4)
    }

    /// −62 to 62.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        signed(
            &grids::IQ3_XXS,
            self.entries(g),
            even_signs(spread_sevens(self.packed_signs(g))),
            out,
        );
    }
}

impl IQ3_S<'_> {
    /// Indices into [`grids::IQ3_S`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 8] {
        let high = u16::from(self.qh()[g]);
        std::array::from_fn(|i| u16::from(self.qs()[8 * g + i]) | (high >> i & 1) << 8)
    }

    /// Signs of group `g` < 8.
    #[inline(always)]
    pub fn group_signs(self, g: usize) -> u32 {
        u32_at(self.signs(), 4 * g)
    }
}

impl Signed for IQ3_S<'_> {
    const K: f32 = 1.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 31, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd(nibble(self.scales(), s))
    }

    /// −15 to 15, odd.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        signed(&grids::IQ3_S, self.entries(g), self.group_signs(g), out);
    }
}

impl IQ1_S<'_> {
    #[inline(always)]
    fn word(self, g: usize) -> u16 {
        u16_at(self.qh(), 2 * g)
    }

    /// Indices into [`grids::IQ1`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 4] {
        std::array::from_fn(|i| {
            u16::from(self.qs()[4 * g + i]) | (self.word(g) >> (3 * i) & 7) << 8
        })
    }

    /// The shift of the codes of each entry of group `g` < 8: 1 or −1.
    #[inline(always)]
    pub fn deltas(self, g: usize) -> [i8; 4] {
        [if self.word(g) >> 15 == 1 { -1 } else { 1 }; 4]
    }
}

impl Signed for IQ1_S<'_> {
    const K: f32 = 1.0 / 8.0;
    const N_SCALES: usize = 8;

    #[inline(always)]
    fn d_bits(self) -> u16 {
        u16_at(self.0, 0)
    }

    /// 1 to 15, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd((self.word(s) >> 12 & 7) as u8)
    }

    /// −9 to 9, odd.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        shifted(self.entries(g), self.deltas(g), out);
    }
}

impl IQ1_M<'_> {
    /// Indices into [`grids::IQ1`] of group `g` < 8.
    #[inline(always)]
    pub fn entries(self, g: usize) -> [u16; 4] {
        std::array::from_fn(|i| {
            let high = nibble(self.qh(), 4 * g + i) & 7;
            u16::from(self.qs()[4 * g + i]) | u16::from(high) << 8
        })
    }

    /// The shift of the codes of each entry of group `g` < 8: 1 or −1.
    #[inline(always)]
    pub fn deltas(self, g: usize) -> [i8; 4] {
        std::array::from_fn(|i| {
            if nibble(self.qh(), 4 * g + i) >> 3 == 1 {
                -1
            } else {
                1
            }
        })
    }
}

impl Signed for IQ1_M<'_> {
    const K: f32 = 1.0 / 8.0;
    const N_SCALES: usize = 16;

    /// Its four nibbles are atop the words of `scales`, the lowest first.
    #[inline(always)]
    fn d_bits(self) -> u16 {
        (0..4).fold(0, |d, i| d | u16_at(self.scales(), 2 * i) >> 12 << (4 * i))
    }

    /// 1 to 15, odd.
    #[inline(always)]
    fn scale(self, s: usize) -> i8 {
        odd((u16_at(self.scales(), s / 4 * 2) >> (3 * (s % 4)) & 7) as u8)
    }

    /// −9 to 9, odd.
    #[inline(always)]
    fn codes(self, g: usize, out: &mut [i8; 32]) {
        shifted(self.entries(g), self.deltas(g), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TensorType, decode};

    /// Bytes without a pattern, from a linear congruential generator.
    fn noise<const N: usize>(seed: u32) -> [u8; N] {
        let mut state = seed;
        std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
    }

    /// The largest scale and the largest code of 200 blocks of noise.
    fn largest<const N: usize, B: Signed>(view: impl Fn(&'static [u8; N]) -> B) -> (i8, u8) {
        let mut scale = 0;
        let mut code = 0;
        let mut codes = [0; 32];
        for seed in 0..200 {
            let block = view(Box::leak(Box::new(noise(seed))));
            scale = (0..B::N_SCALES)
                .map(|s| block.scale(s))
                .fold(scale, i8::max);
            for g in 0..8 {
                block.codes(g, &mut codes);
                code = codes.iter().map(|c| c.unsigned_abs()).fold(code, u8::max);
            }
        }
        (scale, code)
    }

    #[test]
    fn scales_and_codes_reach_their_bounds_and_no_further() {
        assert_eq!(largest(IQ2_XXS), (31, 43));
        assert_eq!(largest(IQ2_XS), (31, 43));
        assert_eq!(largest(IQ2_S), (31, 43));
        assert_eq!(largest(IQ3_XXS), (31, 62));
        assert_eq!(largest(IQ3_S), (31, 15));
        assert_eq!(largest(IQ1_S), (15, 9));
        assert_eq!(largest(IQ1_M), (15, 9));
    }

    #[test]
    fn the_eighth_sign_makes_them_even() {
        let signs = |packed| even_signs(spread_sevens(packed));
        assert_eq!(signs(0), 0);
        assert_eq!(signs(0b0000001), 0b1000_0001);
        assert_eq!(signs(0b0000011), 0b0000_0011);
        assert_eq!(signs(0b1111111 << 21), 0xff << 24);
        assert_eq!(
            signs(0b1000001 << 7 | 0b1101 << 14),
            0b1000_1101 << 16 | 0b0100_0001 << 8
        );
        assert_eq!(
            signs(0xf << 28),
            0,
            "the scale above the signs is not theirs"
        );
    }

    #[test]
    fn the_scale_of_iq1_m_is_gathered_from_four_words() {
        let mut block = [0; 56];
        // 0x3c00 is 1; its nibbles 0, 0, 12 and 3 are the highest of bytes 49, 51, 53 and 55.
        (block[53], block[55]) = (0xc0, 0x30);
        assert_eq!(IQ1_M(&block).d_bits(), 0x3c00);
        let mut y = [0.0; 256];
        decode(TensorType::IQ1_M, &block, &mut y).unwrap();
        assert_eq!(y[0], (f32::from(grids::IQ1[0][0]) + 1.0) / 8.0);
    }
}
