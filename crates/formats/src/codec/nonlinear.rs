//! IQ4_NL and MXFP4: 32 codes that stand for the numbers of a table, under one scale, `y = code ·
//! d`.

use crate::layout;

pub(super) fn iq4_nl(block: &[u8; 18], y: &mut [f32; 32]) {
    let b = layout::IQ4NL(block);
    let mut codes = [0; 32];
    b.codes(&mut codes);
    scaled(b.d(), &codes, y);
}

pub(super) fn mxfp4(block: &[u8; 17], y: &mut [f32; 32]) {
    let b = layout::MXFP4(block);
    let mut codes = [0; 32];
    b.codes(&mut codes);
    scaled(b.d(), &codes, y);
}

fn scaled(d: f32, codes: &[i8; 32], y: &mut [f32; 32]) {
    for (y, &code) in y.iter_mut().zip(codes) {
        *y = d * f32::from(code);
    }
}
