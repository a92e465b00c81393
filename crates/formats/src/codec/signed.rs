//! Blocks of 256 weights that are products of integers and `d`: the IQ and TQ formats. No product
//! rounds, so their order is free.

use crate::f16::f16_to_f32;
use crate::layout::Signed;

pub(super) fn signed<B: Signed>(b: B, y: &mut [f32; 256]) {
    let d = f16_to_f32(b.d_bits());
    let mut codes = [0; 32];
    for (g, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        b.codes(g, &mut codes);
        for (j, (y, &code)) in y.iter_mut().zip(&codes).enumerate() {
            let scale = b.scale((32 * g + j) * B::N_SCALES / 256);
            *y = d * B::K * f32::from(scale) * f32::from(code);
        }
    }
}
