//! Q2_K: 2-bit codes, 16 sub-blocks of 16 with a 4-bit scale and a 4-bit minimum, `y = d·sc·q −
//! dmin·mn`.

use crate::layout;

pub(super) fn q2_k(block: &[u8; 84], y: &mut [f32; 256]) {
    let b = layout::Q2K(block);
    let (d, dmin) = (b.d(), b.dmin());
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (sc, mn) = b.scale_min(s);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        let (bytes, shift) = layout::two_bit_group(b.qs(), s);
        for (y, &q) in y.iter_mut().zip(bytes) {
            *y = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}
