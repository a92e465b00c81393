//! The K-quants: blocks of 256 weights in 8 or 16 sub-blocks, whose integer scales (and minima, if
//! the format has them) multiply one f16 per block.

block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q − dmin·mn`. Codes: [`two_bit_group`].
    Q2_K, 84: { scales: 16 at 0, qs: 64 at 16, d: f16 at 80, dmin: f16 at 82, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q`. Low bits of the codes: [`two_bit_group`];
    /// the third one is in
    /// `hmask`, and the code is lowered by 4.
    Q3_K, 110: { hmask: 32 at 0, qs: 64 at 32, scales: 12 at 96, d: f16 at 108, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32; `y = d·sc·q − dmin·mn`. Codes: [`four_bit_group`],
    /// scales: [`scale_min`].
    Q4_K, 144: { d: f16 at 0, dmin: f16 at 2, scales: 12 at 4, qs: 128 at 16, }
}
block! {
    /// As [`Q4_K`]; bit s of `qh[j]` is the fifth bit of weight j of sub-block s.
    Q5_K, 176: { d: f16 at 0, dmin: f16 at 2, scales: 12 at 4, qh: 32 at 16, qs: 128 at 48, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q`, `scales` are signed bytes, and the code is
    /// lowered by 32.
    Q6_K, 210: { ql: 128 at 0, qh: 64 at 128, scales: 16 at 192, d: f16 at 208, }
}

impl Q2_K<'_> {
    /// 4-bit scale and minimum of sub-block `s` < 16.
    #[inline(always)]
    pub fn scale_min(self, s: usize) -> (u8, u8) {
        let packed = self.scales()[s];
        (packed & 15, packed >> 4)
    }
}

impl<'a> Q3_K<'a> {
    /// The 16 scales, −32 to 31. Each has its low 4 bits in a nibble of bytes 0 to 7 and its high 2
    /// bits in bytes 8 to 11.
    #[inline(always)]
    pub fn unpack_scales(self) -> [i8; 16] {
        let packed = self.scales();
        std::array::from_fn(|s| {
            let low = (packed[s % 8] >> (4 * (s / 8))) & 15;
            let high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
            (low | high << 4) as i8 - 32
        })
    }

    /// The bytes of `hmask` that hold the third bits of sub-block `s` < 16, and the shift that
    /// brings them to bit 0.
    #[inline(always)]
    pub fn mask_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.hmask().as_chunks().0[s % 2], s / 2)
    }
}

impl<'a> Q6_K<'a> {
    /// The bytes of `ql` that hold the low 4 bits of sub-block `s` < 16, and the shift that brings
    /// them to bit 0.
    #[inline(always)]
    pub fn low_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.ql().as_chunks().0[s / 8 * 4 + s % 4], s % 8 / 4 * 4)
    }

    /// The bytes of `qh` that hold the high 2 bits of sub-block `s` < 16, and the shift that brings
    /// them to bit 0.
    #[inline(always)]
    pub fn high_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.qh().as_chunks().0[s / 8 * 2 + s % 2], s % 8 / 2 * 2)
    }
}

/// 6-bit scale and minimum of sub-block `s` < 8 of [`Q4_K`] and [`Q5_K`]. Sub-blocks 0 to 3 have
/// them whole in the low bits of bytes 0 to 7; 4 to 7 have their low 4 bits in bytes 8 to 11 and
/// their high 2 bits atop bytes 0 to 7.
#[inline(always)]
pub fn scale_min(scales: &[u8; 12], s: usize) -> (u8, u8) {
    if s < 4 {
        return (scales[s] & 63, scales[s + 4] & 63);
    }
    let low = scales[s + 4];
    (
        low & 15 | scales[s - 4] >> 6 << 4,
        low >> 4 | scales[s] >> 6 << 4,
    )
}

/// The bytes of `qs` that hold the 4-bit codes of sub-block `s` < 8 (of 32 weights), and their
/// shift.
#[inline(always)]
pub fn four_bit_group(qs: &[u8; 128], s: usize) -> (&[u8; 32], usize) {
    (&qs.as_chunks().0[s / 2], s % 2 * 4)
}

/// The bytes of `qs` that hold the 2-bit codes of sub-block `s` < 16 (of 16 weights), and their
/// shift.
#[inline(always)]
pub fn two_bit_group(qs: &[u8; 64], s: usize) -> (&[u8; 16], usize) {
    (&qs.as_chunks().0[s / 8 * 2 + s % 2], s % 8 / 2 * 2)
}

pub(crate) fn q2_k(block: &[u8; 84], y: &mut [f32; 256]) {
    let b = Q2_K(block);
    let d = b.d();
    let dmin = b.dmin();
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (sc, mn) = b.scale_min(s);
        let scale = d * f32::from(sc);
        let min = dmin * f32::from(mn);
        let (bytes, shift) = two_bit_group(b.qs(), s);
        for (y, &q) in y.iter_mut().zip(bytes) {
            *y = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}

pub(crate) fn q3_k(block: &[u8; 110], y: &mut [f32; 256]) {
    let b = Q3_K(block);
    let d = b.d();
    let scales = b.unpack_scales();
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[s]);
        let (bytes, shift) = two_bit_group(b.qs(), s);
        let (mask_bytes, mask_shift) = b.mask_group(s);
        for ((y, &q), &m) in y.iter_mut().zip(bytes).zip(mask_bytes) {
            let high = (m >> mask_shift) & 1;
            *y = scale * f32::from(((q >> shift) & 3 | high << 2) as i8 - 4);
        }
    }
}

pub(crate) fn q4_k(block: &[u8; 144], y: &mut [f32; 256]) {
    let b = Q4_K(block);
    let d = b.d();
    let dmin = b.dmin();
    for (s, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, mn) = scale_min(b.scales(), s);
        let scale = d * f32::from(sc);
        let min = dmin * f32::from(mn);
        let (bytes, shift) = four_bit_group(b.qs(), s);
        for (y, &q) in y.iter_mut().zip(bytes) {
            *y = scale * f32::from((q >> shift) & 15) - min;
        }
    }
}

pub(crate) fn q5_k(block: &[u8; 176], y: &mut [f32; 256]) {
    let b = Q5_K(block);
    let d = b.d();
    let dmin = b.dmin();
    for (s, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, mn) = scale_min(b.scales(), s);
        let scale = d * f32::from(sc);
        let min = dmin * f32::from(mn);
        let (bytes, shift) = four_bit_group(b.qs(), s);
        for ((y, &q), &h) in y.iter_mut().zip(bytes).zip(b.qh()) {
            let high = (h >> s) & 1;
            *y = scale * f32::from((q >> shift) & 15 | high << 4) - min;
        }
    }
}

pub(crate) fn q6_k(block: &[u8; 210], y: &mut [f32; 256]) {
    let b = Q6_K(block);
    let d = b.d();
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(b.scales()[s] as i8);
        let (low, low_shift) = b.low_group(s);
        let (high, high_shift) = b.high_group(s);
        for ((y, &l), &h) in y.iter_mut().zip(low).zip(high) {
            let q = (l >> low_shift) & 15 | ((h >> high_shift) & 3) << 4;
            *y = scale * f32::from(q as i8 - 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_scales_and_minima_are_found_in_twelve_bytes() {
        let expected: [(u8, u8); 8] = std::array::from_fn(|s| (s as u8 * 9, 63 - s as u8 * 7));
        let mut packed = [0; 12];
        for (s, &(sc, mn)) in expected[..4].iter().enumerate() {
            let (high_sc, high_mn) = expected[s + 4];
            packed[s] = sc | high_sc >> 4 << 6;
            packed[s + 4] = mn | high_mn >> 4 << 6;
            packed[s + 8] = high_sc & 15 | high_mn << 4;
        }
        assert_eq!(std::array::from_fn(|s| scale_min(&packed, s)), expected);
    }

    #[test]
    fn two_bit_groups_take_every_bit_pair_once() {
        let qs = std::array::from_fn(|i| i as u8);
        let mut seen: Vec<_> = (0..16)
            .map(|s| two_bit_group(&qs, s))
            .map(|(b, shift)| (b[0], shift))
            .collect();
        assert_eq!(
            (seen[0], seen[1], seen[2], seen[8]),
            ((0, 0), (16, 0), (0, 2), (32, 0))
        );
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 16);
    }
}
