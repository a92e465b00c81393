//! The blocks of QSF files: 64 weights of 2, 3 or 4 bits with a scale and a minimum, 2 bits with a
//! scale, and ternary ones.
//!
//! They are uniform: every code of a block is a step of the same size. Bits are in order, the low
//! one of a byte first. The last block of a row may have codes behind its weights, which mean
//! nothing, so that rows are multiples of 32. Source: the plan of QSF, whose 3-bit block has no
//! layout there and gets one here.

use super::q2_0::two_bit_codes;

block! {
    /// 64 codes of two bits, `y = d·(q − 1.5)`: bits `2·(j % 4)` and up of `qs[j / 4]` are the code
    /// of weight j. `m` is written as 0 and not read.
    QSF2S, 20: { d: f16 at 0, m: f16 at 2, qs: 16 at 4, }
}
block! {
    /// The codes of [`QSF2S`], `y = d·q + m`.
    QSF2, 20: { d: f16 at 0, m: f16 at 2, qs: 16 at 4, }
}
block! {
    /// The codes of [`QSF2S`], with bit `j % 8` of `qh[j / 8]` as the third bit of weight j;
    /// `y = d·q + m`.
    QSF3, 28: { d: f16 at 0, m: f16 at 2, qs: 16 at 4, qh: 8 at 20, }
}
block! {
    /// 64 codes of four bits, weight 2·i in the low and 2·i + 1 in the high nibble of `qs[i]`;
    /// `y = d·q + m`.
    QSF4, 36: { d: f16 at 0, m: f16 at 2, qs: 32 at 4, }
}
block! {
    /// Weight j is 0 if bit `j % 8` of `zeros[j / 8]` is set, −d if that of `signs` is set, else d.
    QSFT, 18: { d: f16 at 0, signs: 8 at 2, zeros: 8 at 10, }
}

impl QSF2S<'_> {
    /// The codes of weights 32·g to 32·g + 31, `g` < 2, a byte for each; 8 in a word, little
    /// endian.
    #[inline(always)]
    pub fn codes(self, g: usize) -> [u64; 4] {
        two_bit_codes(self.qs(), g)
    }
}

impl QSF2<'_> {
    /// As [`QSF2S::codes`].
    #[inline(always)]
    pub fn codes(self, g: usize) -> [u64; 4] {
        two_bit_codes(self.qs(), g)
    }
}

impl<'a> QSF3<'a> {
    /// The low two bits of codes, as [`QSF2S::codes`].
    #[inline(always)]
    pub fn low_codes(self, g: usize) -> [u64; 4] {
        two_bit_codes(self.qs(), g)
    }

    /// The third bits of weights 32·g to 32·g + 31, `g` < 2.
    #[inline(always)]
    pub fn high_bits(self, g: usize) -> &'a [u8; 4] {
        &self.qh().as_chunks().0[g]
    }
}

impl QSF4<'_> {
    /// As [`QSF2S::codes`].
    #[inline(always)]
    pub fn codes(self, g: usize) -> [u64; 4] {
        let qs = &self.qs().as_chunks::<4>().0[4 * g..];
        [qs[0], qs[1], qs[2], qs[3]].map(spread_nibbles)
    }
}

impl QSFT<'_> {
    /// Bits of weights 32·g to 32·g + 31, `g` < 2: of those that are d, and of those that are 0.
    #[inline(always)]
    pub fn positive_and_zero(self, g: usize) -> [[u8; 4]; 2] {
        let bits = |field: &[u8; 8]| u32::from_le_bytes(field.as_chunks().0[g]);
        let zeros = bits(self.zeros());
        [!(bits(self.signs()) | zeros), zeros].map(u32::to_le_bytes)
    }
}

/// Eight codes of four bits, each in a byte of its own.
#[inline(always)]
fn spread_nibbles(codes: [u8; 4]) -> u64 {
    let codes = u64::from(u32::from_le_bytes(codes));
    let fours = (codes | codes << 16) & 0x0000_ffff_0000_ffff;
    let twos = (fours | fours << 8) & 0x00ff_00ff_00ff_00ff;
    (twos | twos << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

fn two_bits(qs: &[u8; 16], j: usize) -> u8 {
    qs[j / 4] >> (2 * (j % 4)) & 3
}

fn one_bit(bits: &[u8; 8], j: usize) -> u8 {
    bits[j / 8] >> (j % 8) & 1
}

pub(crate) fn qsf2s(block: &[u8; 20], y: &mut [f32; 64]) {
    let b = QSF2S(block);
    for (j, y) in y.iter_mut().enumerate() {
        *y = b.d() * (f32::from(two_bits(b.qs(), j)) - 1.5);
    }
}

pub(crate) fn qsf2(block: &[u8; 20], y: &mut [f32; 64]) {
    let b = QSF2(block);
    for (j, y) in y.iter_mut().enumerate() {
        *y = f32::from(two_bits(b.qs(), j)) * b.d() + b.m();
    }
}

pub(crate) fn qsf3(block: &[u8; 28], y: &mut [f32; 64]) {
    let b = QSF3(block);
    for (j, y) in y.iter_mut().enumerate() {
        let q = two_bits(b.qs(), j) | one_bit(b.qh(), j) << 2;
        *y = f32::from(q) * b.d() + b.m();
    }
}

pub(crate) fn qsf4(block: &[u8; 36], y: &mut [f32; 64]) {
    let b = QSF4(block);
    for (j, y) in y.iter_mut().enumerate() {
        let q = b.qs()[j / 2] >> (4 * (j % 2)) & 15;
        *y = f32::from(q) * b.d() + b.m();
    }
}

pub(crate) fn qsft(block: &[u8; 18], y: &mut [f32; 64]) {
    let b = QSFT(block);
    for (j, y) in y.iter_mut().enumerate() {
        *y = match (one_bit(b.zeros(), j), one_bit(b.signs(), j)) {
            (1, _) => 0.0,
            (_, 1) => -b.d(),
            _ => b.d(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a block whose first f16 is 1 and, where there is one, whose second is 0.
    fn block<const N: usize>(n_halves: usize) -> [u8; N] {
        let mut block: [u8; N] = std::array::from_fn(|i| (i * 91 + 5) as u8);
        block[..4].copy_from_slice(&[0, 0x3c, 0, 0]);
        if n_halves == 1 {
            block[2..4].copy_from_slice(&[0xa6, 0x31]);
        }
        block
    }

    fn decoded<const N: usize>(block: &[u8; N], decode: fn(&[u8; N], &mut [f32; 64])) -> [f32; 64] {
        let mut y = [0.0; 64];
        decode(block, &mut y);
        y
    }

    /// Codes of all 64 weights from those of both groups.
    fn all(codes: impl Fn(usize) -> [u64; 4]) -> Vec<f32> {
        let groups = [codes(0), codes(1)];
        let bytes = groups.as_flattened().iter().flat_map(|w| w.to_le_bytes());
        bytes.map(f32::from).collect()
    }

    #[test]
    fn codes_of_groups_are_those_of_the_decoders() {
        let two = block(2);
        assert_eq!(all(|g| QSF2(&two).codes(g)), decoded(&two, qsf2));
        let symmetric = all(|g| QSF2S(&two).codes(g));
        let symmetric: Vec<f32> = symmetric.iter().map(|q| q - 1.5).collect();
        assert_eq!(symmetric, decoded(&two, qsf2s));
        let four = block(2);
        assert_eq!(all(|g| QSF4(&four).codes(g)), decoded(&four, qsf4));
    }

    #[test]
    fn third_bits_and_ternary_bits_are_those_of_the_decoders() {
        let three = block(2);
        let low = all(|g| QSF3(&three).low_codes(g));
        let ternary = block(1);
        let (y3, yt) = (decoded(&three, qsf3), decoded(&ternary, qsft));
        for j in 0..64 {
            let bit = |bits: &[u8; 4]| f32::from(bits[j % 32 / 8] >> (j % 8) & 1);
            assert_eq!(low[j] + 4.0 * bit(QSF3(&three).high_bits(j / 32)), y3[j]);
            let [positive, zero] = QSFT(&ternary).positive_and_zero(j / 32);
            assert_eq!(2.0 * bit(&positive) + bit(&zero) - 1.0, yt[j]);
        }
        assert!([-1.0, 0.0, 1.0].iter().all(|w| yt.contains(w)));
    }
}
