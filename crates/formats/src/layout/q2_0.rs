//! Q2_0: 64 codes of two bits under one scale.

block! {
    /// 64 weights. Bits `2·(j % 4)` and up of `qs[j / 4]` are the code of weight j; `y = (q −
    /// 1)·d`.
    Q2_0, 18: { d: f16 at 0, qs: 16 at 2, }
}

impl Q2_0<'_> {
    /// The codes of weights 32·g to 32·g + 31, `g` < 2, a byte for each; 8 in a word, little
    /// endian.
    #[inline(always)]
    pub fn codes(self, g: usize) -> [u64; 4] {
        two_bit_codes(self.qs(), g)
    }
}

/// Codes 32·g to 32·g + 31 of 64 codes of two bits in order, as [`Q2_0::codes`].
#[inline(always)]
pub(super) fn two_bit_codes(qs: &[u8; 16], g: usize) -> [u64; 4] {
    let qs = &qs.as_chunks::<2>().0[4 * g..];
    [qs[0], qs[1], qs[2], qs[3]].map(spread)
}

/// Eight codes of two bits, each in a byte of its own.
#[inline(always)]
fn spread(codes: [u8; 2]) -> u64 {
    let codes = u64::from(u16::from_le_bytes(codes));
    let fours = (codes | codes << 24) & 0x0000_00ff_0000_00ff;
    let twos = (fours | fours << 12) & 0x000f_000f_000f_000f;
    (twos | twos << 6) & 0x0303_0303_0303_0303
}

pub(crate) fn q2_0(block: &[u8; 18], y: &mut [f32; 64]) {
    let b = Q2_0(block);
    for (j, y) in y.iter_mut().enumerate() {
        let q = b.qs()[j / 4] >> (2 * (j % 4)) & 3;
        *y = (f32::from(q) - 1.0) * b.d();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_decoder() {
        let mut block: [u8; 18] = std::array::from_fn(|i| (i * 91) as u8);
        block[..2].copy_from_slice(&[0, 0x3c]);
        let mut y = [0.0; 64];
        q2_0(&block, &mut y);
        for (g, y) in y.chunks(32).enumerate() {
            let codes = Q2_0(&block).codes(g).map(u64::to_le_bytes);
            let codes = codes.as_flattened().iter().map(|&q| f32::from(q) - 1.0);
            assert!(codes.eq(y.iter().copied()));
        }
    }
}
