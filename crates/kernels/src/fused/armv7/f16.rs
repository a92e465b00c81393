//! F16 weights: the sixteen lanes of `lanes.rs` in four registers, widened by VFPv4's instruction.
//!
//! NEON multiplies and adds the floats here, so none may be subnormal. Weights are multiples of
//! 2⁻²⁴; if activations are 0 or at least 2⁻⁶⁴, whose last bit is 2⁻⁸⁷, then products and all their
//! sums are multiples of 2⁻¹¹¹ or, rounded, of more. Other activation rows take the plain loops.
//! Neither fuses, so both compute the same bits.

use crate::algo::float;
use crate::algo::lanes::{LANES, padded, total};
use crate::algo::matmul::RowTile;
use crate::format::F16;
use crate::format::float::widen_f16;
use crate::isa::armv7::{Armv7, neon};
use crate::isa::scalar::Scalar;

/// Bits of 2⁻⁶⁴ and of infinity.
const LEAST: u32 = (127 - 64) << 23;
const INFINITY: u32 = 255 << 23;

/// Multiplies a row tile.
///
/// # Safety
/// The CPU must have NEON and VFPv4.
pub(crate) unsafe fn halves(mut row_tile: RowTile<'_>) {
    // SAFETY: the caller's obligation.
    let isa = unsafe { Armv7::assume() };
    while !row_tile.rows.is_empty() {
        let row = row_tile.take_rows(1);
        if stays_normal(row.x.f32_row(row.rows.start)) {
            multiply(isa, row);
        } else {
            float::float::<F16, 1, 2>(Scalar, row);
        }
    }
}

/// Whether no product of these with f16, and no sum of such products, is subnormal.
fn stays_normal(x: &[f32]) -> bool {
    x.iter().all(|x| {
        let bits = x.abs().to_bits();
        bits == 0 || (LEAST..INFINITY).contains(&bits)
    })
}

/// One activation row.
fn multiply(isa: Armv7, row_tile: RowTile<'_>) {
    let w = row_tile.w;
    let (x, x_rest) = row_tile.x.f32_row(row_tile.rows.start).as_chunks();
    for (r, out) in row_tile.acc[..w.d_out()].iter_mut().enumerate() {
        let (weights, w_rest) = w.row(r).as_chunks::<{ 2 * LANES }>();
        let mut lanes = lanes(isa, weights, x);
        let rest = w_rest.as_chunks::<2>().0.iter().zip(padded(x_rest));
        for (lane, (weight, x)) in lanes.iter_mut().zip(rest) {
            *lane += widen_f16(u16::from_le_bytes(*weight)) * x;
        }
        *out = total(lanes);
    }
}

/// The lanes of `Σ w·x`.
#[inline(always)]
fn lanes(_: Armv7, w: &[[u8; 2 * LANES]], x: &[[f32; LANES]]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    assert_eq!(w.len(), x.len());
    if w.is_empty() {
        return out;
    }
    // SAFETY: the token proves NEON, and the table of this kernel VFPv4. All of `w` is read and of
    // `x`, which is as long, and `out` is written.
    unsafe {
        neon!(
            [
                "vmov.i32 q8, #0",
                "vmov.i32 q9, #0",
                "vmov.i32 q10, #0",
                "vmov.i32 q11, #0",
                "2:",
                "vld1.8 {{d0-d3}}, [{w}]!",
                "vld1.32 {{d24-d27}}, [{x}]!",
                "vld1.32 {{d28-d31}}, [{x}]!",
                "vcvt.f32.f16 q2, d0",
                "vcvt.f32.f16 q3, d1",
                "vcvt.f32.f16 q4, d2",
                "vcvt.f32.f16 q5, d3",
                "vmla.f32 q8, q2, q12",
                "vmla.f32 q9, q3, q13",
                "vmla.f32 q10, q4, q14",
                "vmla.f32 q11, q5, q15",
                "subs {n}, {n}, #1",
                "bne 2b",
                "vst1.32 {{d16-d19}}, [{out}]!",
                "vst1.32 {{d20-d23}}, [{out}]",
            ]
            w = inout(reg) w.as_ptr() => _,
            x = inout(reg) x.as_ptr() => _,
            n = inout(reg) w.len() => _,
            out = inout(reg) out.as_mut_ptr() => _,
        );
    }
    out
}
