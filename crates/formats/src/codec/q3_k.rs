//! Q3_K: 3-bit codes (2 bits and a mask), 16 sub-blocks of 16 with a signed 6-bit scale, `y =
//! d·sc·q`, q in −4..4.

use crate::layout;

pub(super) fn q3_k(block: &[u8; 110], y: &mut [f32; 256]) {
    let b = layout::Q3K(block);
    let (d, scales) = (b.d(), b.unpack_scales());
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[s]);
        let (bytes, shift) = layout::two_bit_group(b.qs(), s);
        let (mask_bytes, mask_shift) = b.mask_group(s);
        for ((y, &q), &m) in y.iter_mut().zip(bytes).zip(mask_bytes) {
            let high = (m >> mask_shift) & 1;
            *y = scale * f32::from(((q >> shift) & 3 | high << 2) as i8 - 4);
        }
    }
}
