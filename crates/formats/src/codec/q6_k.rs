//! Q6_K: 6-bit codes (4 and 2 bits), 16 sub-blocks of 16 with a signed 8-bit scale, `y = d·sc·q`, q
//! in −32..32.

use crate::layout;

pub(super) fn q6_k(block: &[u8; 210], y: &mut [f32; 256]) {
    let b = layout::Q6K(block);
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
