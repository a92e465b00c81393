//! Q4_1 and Q5_1: 32 unsigned codes with an f16 scale and an f16 minimum, `y = q · d + m`.

use crate::layout;

pub(super) fn q4_1(block: &[u8; 20], y: &mut [f32; 32]) {
    let b = layout::Q4_1(block);
    let (d, m) = (b.d(), b.m());
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = f32::from(q & 15) * d + m;
        y[j + 16] = f32::from(q >> 4) * d + m;
    }
}

pub(super) fn q5_1(block: &[u8; 24], y: &mut [f32; 32]) {
    let b = layout::Q5_1(block);
    let (d, m, fifth) = (b.d(), b.m(), u32::from_le_bytes(*b.qh()));
    let bit = |j: usize| (fifth >> j & 1) as u8 * 16;
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = f32::from(q & 15 | bit(j)) * d + m;
        y[j + 16] = f32::from(q >> 4 | bit(j + 16)) * d + m;
    }
}
