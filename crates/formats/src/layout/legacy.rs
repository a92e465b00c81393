//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 weights with an f16 scale and, if the name ends in
//! 1, an f16 minimum.

block! {
    /// 32 weights. Low nibble of `qs[j]` is weight j, high nibble weight j + 16; `y = (q − 8)·d`.
    Q4_0, 18: { d: f16 at 0, qs: 16 at 2, }
}
block! {
    /// 32 weights: the nibbles of [`Q4_0`]; `y = q·d + m`.
    Q4_1, 20: { d: f16 at 0, m: f16 at 2, qs: 16 at 4, }
}
block! {
    /// 32 weights: the nibbles of [`Q4_0`], and bit j of `qh` as the fifth bit of weight j; `y = (q
    /// − 16)·d`.
    Q5_0, 22: { d: f16 at 0, qh: 4 at 2, qs: 16 at 6, }
}
block! {
    /// 32 weights: the codes of [`Q5_0`]; `y = q·d + m`.
    Q5_1, 24: { d: f16 at 0, m: f16 at 2, qh: 4 at 4, qs: 16 at 8, }
}
block! {
    /// 32 weights. `qs` are signed bytes; `y = q·d`.
    Q8_0, 34: { d: f16 at 0, qs: 32 at 2, }
}

pub(crate) fn q4_0(block: &[u8; 18], y: &mut [f32; 32]) {
    let b = Q4_0(block);
    let d = b.d();
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = (i32::from(q & 15) - 8) as f32 * d;
        y[j + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

pub(crate) fn q5_0(block: &[u8; 22], y: &mut [f32; 32]) {
    let b = Q5_0(block);
    let d = b.d();
    let fifth = u32::from_le_bytes(*b.qh());
    let bit = |j: usize| (fifth >> j & 1) as u8 * 16;
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = (i32::from(q & 15 | bit(j)) - 16) as f32 * d;
        y[j + 16] = (i32::from(q >> 4 | bit(j + 16)) - 16) as f32 * d;
    }
}

pub(crate) fn q8_0(block: &[u8; 34], y: &mut [f32; 32]) {
    let b = Q8_0(block);
    let d = b.d();
    for (y, &q) in y.iter_mut().zip(b.qs()) {
        *y = f32::from(q as i8) * d;
    }
}

pub(crate) fn q4_1(block: &[u8; 20], y: &mut [f32; 32]) {
    let b = Q4_1(block);
    let d = b.d();
    let m = b.m();
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = f32::from(q & 15) * d + m;
        y[j + 16] = f32::from(q >> 4) * d + m;
    }
}

pub(crate) fn q5_1(block: &[u8; 24], y: &mut [f32; 32]) {
    let b = Q5_1(block);
    let d = b.d();
    let m = b.m();
    let fifth = u32::from_le_bytes(*b.qh());
    let bit = |j: usize| (fifth >> j & 1) as u8 * 16;
    for (j, &q) in b.qs().iter().enumerate() {
        y[j] = f32::from(q & 15 | bit(j)) * d + m;
        y[j + 16] = f32::from(q >> 4 | bit(j + 16)) * d + m;
    }
}
