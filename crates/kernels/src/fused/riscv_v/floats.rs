//! Float weights: sixteen lanes along the row, as `lanes.rs` defines them.
//!
//! ```text
//! for each 16 weights k:  lane = lane + w[k]·x[k]
//! ```
//! It refuses to fuse the two steps, so results are those of the plain code. The one idea: f16
//! becomes f32 by moving its bits and one exact product with 2¹¹², which is right for subnormal
//! numbers, too; infinity and NaN get their exponent afterwards.

use super::for_each_product;
use crate::algo::lanes::{LANES, padded, total};
use crate::algo::matmul::RowTile;
use crate::format::FloatFormat;
use crate::isa::rvv::{Rvv, vector};
use crate::registry::Format;

/// Weights of a type, and the activations that they meet.
#[derive(Clone, Copy)]
struct Operands<'a> {
    format: Format,
    w: &'a [u8],
    /// As many as there are weights, in sixteens.
    x: &'a [[f32; LANES]],
}

/// Multiplies a row tile of float weights.
#[inline(always)]
pub(super) fn float<F: FloatFormat, const LONG: bool>(isa: Rvv<LONG>, row_tile: RowTile<'_>) {
    let x = row_tile.x;
    let format = row_tile.w.format();
    for_each_product(row_tile, |w, t| {
        let (x, rest) = x.f32_row(t).as_chunks::<LANES>();
        let width = size_of::<F::Weight>();
        let (w, w_rest) = w.split_at(LANES * width * x.len());
        let mut lanes = [0.0; LANES];
        isa.add(Operands { format, w, x }, &mut lanes);
        if !rest.is_empty() {
            let mut last = [0; 4 * LANES];
            last[..w_rest.len()].copy_from_slice(w_rest);
            let w = &last[..LANES * width];
            let x = &[padded(rest)];
            isa.add(Operands { format, w, x }, &mut lanes);
        }
        total(lanes)
    });
}

impl<const LONG: bool> Rvv<LONG> {
    /// `lanes += w·x`.
    #[inline(always)]
    fn add(self, operands: Operands<'_>, lanes: &mut [f32; LANES]) {
        let Operands { format, w, x } = operands;
        if x.is_empty() {
            return;
        }
        match format {
            Format::F16 => self.add_f16(w, x, lanes),
            Format::BF16 => self.add_bf16(w, x, lanes),
            _ => self.add_f32(w, x, lanes),
        }
    }

    #[inline(always)]
    fn add_f16(self, w: &[u8], x: &[[f32; LANES]], lanes: &mut [f32; LANES]) {
        assert_eq!(w.len(), 2 * LANES * x.len(), "bytes of weights");
        // SAFETY: the token proves vectors; reads sixteen weights and activations at a time, as
        // many of both, at least once; reads and writes the lanes.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vle32.v v20, ({lanes})",
                "2:",
                "vsetvli zero, {n_bytes}, {bytes}",
                "vle8.v v8, ({w})",
                "addi {w}, {w}, 32",
                "vsetivli zero, 16, {halves}",
                "vadd.vv v10, v8, v8",
                "vmsgtu.vx v0, v10, {finite}",
                "vsetivli zero, 16, {words}",
                "vle32.v v16, ({x})",
                "addi {x}, {x}, 64",
                "vsext.vf2 v12, v8",
                "vsll.vi v12, v12, 13",
                "vand.vx v12, v12, {mask}",
                "vfmul.vf v12, v12, {power}",
                "vor.vx v12, v12, {infinity}, v0.t",
                "vfmul.vv v12, v12, v16",
                "vfadd.vv v20, v20, v12",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vse32.v v20, ({lanes})";
                bytes = const Self::BYTES_32,
                halves = const Self::HALVES_16,
                words = const Self::WORDS_16,
                n_bytes = in(reg) 2 * LANES,
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) x.len() => _,
                lanes = in(reg) lanes.as_mut_ptr(),
                // Twice the largest finite f16; the sign, and the bits that were an f16.
                finite = in(reg) 2 * 0x7bff,
                mask = in(reg) 0x8fff_ffff_u32,
                power = in(freg) f32::from_bits((127 + 112) << 23),
                infinity = in(reg) f32::INFINITY.to_bits(),
            );
        }
    }

    #[inline(always)]
    fn add_bf16(self, w: &[u8], x: &[[f32; LANES]], lanes: &mut [f32; LANES]) {
        assert_eq!(w.len(), 2 * LANES * x.len(), "bytes of weights");
        // SAFETY: as `add_f16`.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vle32.v v20, ({lanes})",
                "2:",
                "vsetvli zero, {n_bytes}, {bytes}",
                "vle8.v v8, ({w})",
                "addi {w}, {w}, 32",
                "vsetivli zero, 16, {words}",
                "vle32.v v16, ({x})",
                "addi {x}, {x}, 64",
                "vzext.vf2 v12, v8",
                "vsll.vi v12, v12, 16",
                "vfmul.vv v12, v12, v16",
                "vfadd.vv v20, v20, v12",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vse32.v v20, ({lanes})";
                bytes = const Self::BYTES_32,
                words = const Self::WORDS_16,
                n_bytes = in(reg) 2 * LANES,
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) x.len() => _,
                lanes = in(reg) lanes.as_mut_ptr(),
            );
        }
    }

    #[inline(always)]
    fn add_f32(self, w: &[u8], x: &[[f32; LANES]], lanes: &mut [f32; LANES]) {
        assert_eq!(w.len(), 4 * LANES * x.len(), "bytes of weights");
        // SAFETY: as `add_f16`.
        unsafe {
            vector!(
                "vsetivli zero, 16, {words}",
                "vle32.v v20, ({lanes})",
                "2:",
                "vsetvli zero, {n_bytes}, {bytes}",
                "vle8.v v12, ({w})",
                "addi {w}, {w}, 64",
                "vsetivli zero, 16, {words}",
                "vle32.v v16, ({x})",
                "addi {x}, {x}, 64",
                "vfmul.vv v12, v12, v16",
                "vfadd.vv v20, v20, v12",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b",
                "vse32.v v20, ({lanes})";
                bytes = const Self::BYTES_64,
                words = const Self::WORDS_16,
                n_bytes = in(reg) 4 * LANES,
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                n = inout(reg) x.len() => _,
                lanes = in(reg) lanes.as_mut_ptr(),
            );
        }
    }
}
