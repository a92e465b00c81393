//! Q4_K and Q5_K: 8 sub-blocks of 32 with a 6-bit scale and a 6-bit minimum, `y = d·sc·q −
//! dmin·mn`.

use crate::layout;

pub(super) fn q4_k(block: &[u8; 144], y: &mut [f32; 256]) {
    let b = layout::Q4K(block);
    let (d, dmin) = (b.d(), b.dmin());
    for (s, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, mn) = layout::scale_min(b.scales(), s);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        let (bytes, shift) = layout::four_bit_group(b.qs(), s);
        for (y, &q) in y.iter_mut().zip(bytes) {
            *y = scale * f32::from((q >> shift) & 15) - min;
        }
    }
}

pub(super) fn q5_k(block: &[u8; 176], y: &mut [f32; 256]) {
    let b = layout::Q5K(block);
    let (d, dmin) = (b.d(), b.dmin());
    for (s, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, mn) = layout::scale_min(b.scales(), s);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        let (bytes, shift) = layout::four_bit_group(b.qs(), s);
        for ((y, &q), &h) in y.iter_mut().zip(bytes).zip(b.qh()) {
            let high = (h >> s) & 1;
            *y = scale * f32::from((q >> shift) & 15 | high << 4) - min;
        }
    }
}
