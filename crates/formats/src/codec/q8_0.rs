//! Q4_0, Q5_0 and Q8_0: 32 signed codes under one f16 scale, `y = q · d`.

use crate::layout;

pub(super) fn q4_0(block: &[u8; 18], y: &mut [f32; 32]) {
    let b = layout::Q4_0(block);
    let d = b.d();
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = (i32::from(q & 15) - 8) as f32 * d;
        y[j + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

pub(super) fn q5_0(block: &[u8; 22], y: &mut [f32; 32]) {
    let b = layout::Q5_0(block);
    let (d, fifth) = (b.d(), u32::from_le_bytes(*b.qh()));
    let bit = |j: usize| (fifth >> j & 1) as u8 * 16;
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = (i32::from(q & 15 | bit(j)) - 16) as f32 * d;
        y[j + 16] = (i32::from(q >> 4 | bit(j + 16)) - 16) as f32 * d;
    }
}

pub(super) fn q8_0(block: &[u8; 34], y: &mut [f32; 32]) {
    let b = layout::Q8_0(block);
    let d = b.d();
    for (y, &q) in y.iter_mut().zip(b.qs()) {
        *y = f32::from(q as i8) * d;
    }
}
