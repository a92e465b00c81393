//! Fills panels: the weights of a row become integers, one below the other.
//!
//! It refuses to multiply with activations. The one idea: a store with a stride puts a row into its
//! lane of the panel, so formats unpack rows as they lie, four of them in assembly and all others
//! by the plain decoder.

use super::panel::{Column, Panel, ROWS};
use crate::algo::gemm::{Decoded, Group};
use crate::format::float::widen_f16;
use crate::format::{KQuant, Quant32};
use crate::isa::rvv::{Rvv, vector};
use crate::registry::Format;

/// Bytes from a weight of a row to its next one in a panel.
const STEP: usize = size_of::<Column>();

impl<const LONG: bool> Rvv<LONG> {
    /// A block of row `r`.
    #[inline(always)]
    pub(super) fn unpack<F: KQuant>(self, block: &F::Block, panel: &mut Panel, r: usize) {
        let head = F::head(block);
        match F::FORMAT {
            Format::Q4_K => {
                let codes = block.as_ref().last_chunk().expect("128 bytes of codes");
                self.unpack_q4_k(codes, head.scale[0], &mut panel.w, r);
            }
            Format::Q6_K => {
                let fields = block.as_ref().first_chunk().expect("208 bytes of fields");
                self.unpack_q6_k(fields, &mut panel.w, r);
            }
            _ => {
                let mut decoded = Decoded::EMPTY;
                decoded.decode::<_, F>(self, block);
                self.scatter(&decoded.w, &mut panel.w, r);
            }
        }
        panel.d[0][r] = widen_f16(head.d) * F::K;
        if F::MINS {
            panel.second[0][r] = widen_f16(head.dmin);
            for (g, minima) in panel.minima[..F::GROUPS].iter_mut().enumerate() {
                minima[r] = i16::from((head.min[g / 8] >> (8 * (g % 8))) as u8);
            }
        }
    }

    /// Group `g` of a block of row `r`, as group `j` of the panel.
    #[inline(always)]
    pub(super) fn unpack_32<F: Quant32>(
        self,
        block: &F::Block,
        g: usize,
        panel: &mut Panel,
        [r, j]: [usize; 2],
    ) {
        let columns = &mut panel.w.as_chunks_mut::<32>().0[j];
        match F::FORMAT {
            Format::Q4_0 => {
                let codes = block.as_ref().last_chunk().expect("16 bytes of codes");
                self.unpack_q4_0(codes, columns, r);
            }
            Format::Q8_0 => {
                let codes = block.as_ref().last_chunk().expect("32 codes");
                self.unpack_q8_0(codes, columns, r);
            }
            _ => {
                let mut group = Group::EMPTY;
                group.decode_codes::<_, F>(self, block, g);
                self.scatter(&group.w, columns, r);
            }
        }
        panel.d[j][r] = F::D.widen(F::d(block, g)) * F::K;
        panel.second[j][r] = widen_f16(F::second(block, g));
    }

    /// Integers of row `r`.
    #[inline(always)]
    fn scatter<const N: usize>(self, w: &[i16; N], columns: &mut [Column; N], r: usize) {
        const { assert!(N > 0 && N.is_multiple_of(32)) };
        // SAFETY: the token proves vectors; reads `N` integers and writes as many, one to each
        // column.
        unsafe {
            vector!(
                "vsetvli zero, {at_once}, {halves}",
                "2:",
                "vle16.v v0, ({w})",
                "addi {w}, {w}, 64",
                "vsse16.v v0, ({to}), {step}",
                "addi {to}, {to}, 1024",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b";
                halves = const Self::HALVES_32,
                at_once = in(reg) 32_usize,
                w = inout(reg) w.as_ptr() => _,
                to = inout(reg) place(columns, r) => _,
                step = in(reg) STEP,
                n = inout(reg) N / 32 => _,
            );
        }
    }

    /// Codes from 0 to 15 times eight scales of at most 63.
    #[inline(always)]
    fn unpack_q4_k(self, codes: &[u8; 128], scales: u64, columns: &mut [Column; 256], r: usize) {
        // SAFETY: the token proves vectors; reads the codes and writes 256 integers, one to each
        // column.
        unsafe {
            vector!(
                "vsetvli zero, {at_once}, {bytes}",
                ".rept 4",
                "vle8.v v0, ({codes})",
                "addi {codes}, {codes}, 32",
                "andi {t}, {scales}, 63",
                "srli {scales}, {scales}, 8",
                "vand.vi v2, v0, 15",
                "vsrl.vi v0, v0, 4",
                "vwmul.vx v8, v2, {t}",
                "andi {t}, {scales}, 63",
                "srli {scales}, {scales}, 8",
                "vwmul.vx v12, v0, {t}",
                "vsse16.v v8, ({to}), {step}",
                "addi {to}, {to}, 1024",
                "vsse16.v v12, ({to}), {step}",
                "addi {to}, {to}, 1024",
                ".endr";
                bytes = const Self::BYTES_32,
                at_once = in(reg) 32_usize,
                codes = inout(reg) codes.as_ptr() => _,
                scales = inout(reg) scales => _,
                to = inout(reg) place(columns, r) => _,
                step = in(reg) STEP,
                t = out(reg) _,
            );
        }
    }

    /// 128 bytes of low bits, 64 of high bits, 16 scales.
    #[inline(always)]
    fn unpack_q6_k(self, fields: &[u8; 208], columns: &mut [Column; 256], r: usize) {
        // SAFETY: the token proves vectors; reads the fields and writes 256 integers, one to each
        // column.
        unsafe {
            vector!(
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vmv.s.x v0, {upper}",
                "vsetvli zero, {at_once}, {bytes}",
                ".rept 2",
                "vle8.v v2, ({high})",
                "vle8.v v4, ({low})",
                "addi {low}, {low}, 32",
                "vle8.v v6, ({low})",
                "addi {low}, {low}, 32",
                "addi {high}, {high}, 32",
                "vsll.vi v8, v2, 4",
                "vsll.vi v10, v2, 2",
                "vsrl.vi v14, v2, 2",
                "vand.vx v8, v8, {top}",
                "vand.vx v10, v10, {top}",
                "vand.vx v12, v2, {top}",
                "vand.vx v14, v14, {top}",
                "vand.vi v16, v4, 15",
                "vand.vi v18, v6, 15",
                "vsrl.vi v4, v4, 4",
                "vsrl.vi v6, v6, 4",
                "vor.vv v8, v8, v16",
                "vor.vv v10, v10, v18",
                "vor.vv v12, v12, v4",
                "vor.vv v14, v14, v6",
                ".irp p, 8, 10, 12, 14",
                "lb {t}, 0({scales})",
                "lb {u}, 1({scales})",
                "addi {scales}, {scales}, 2",
                "vadd.vx v\\p, v\\p, {offset}",
                "vwmul.vx v16, v\\p, {t}",
                "vwmul.vx v16, v\\p, {u}, v0.t",
                "vsse16.v v16, ({to}), {step}",
                "addi {to}, {to}, 1024",
                ".endr",
                ".endr";
                bytes = const Self::BYTES_32,
                at_once = in(reg) 32_usize,
                upper = in(reg) 0xffff_0000_usize,
                top = in(reg) 0x30,
                offset = in(reg) -32,
                low = inout(reg) fields.as_ptr() => _,
                high = inout(reg) fields.as_ptr().wrapping_add(128) => _,
                scales = inout(reg) fields.as_ptr().wrapping_add(192) => _,
                to = inout(reg) place(columns, r) => _,
                step = in(reg) STEP,
                t = out(reg) _,
                u = out(reg) _,
            );
        }
    }

    /// Codes from 0 to 15, less 8: sixteen low nibbles, then the high ones.
    #[inline(always)]
    fn unpack_q4_0(self, codes: &[u8; 16], columns: &mut [Column; 32], r: usize) {
        // SAFETY: the token proves vectors; reads the codes and writes 32 integers, one to each
        // column.
        unsafe {
            vector!(
                "vsetivli zero, 16, {bytes}",
                "vle8.v v0, ({codes})",
                "vand.vi v2, v0, 15",
                "vsrl.vi v3, v0, 4",
                "vwadd.vx v4, v2, {offset}",
                "vwadd.vx v6, v3, {offset}",
                "vsse16.v v4, ({to}), {step}",
                "addi {to}, {to}, 512",
                "vsse16.v v6, ({to}), {step}";
                bytes = const Self::BYTES_16,
                codes = in(reg) codes.as_ptr(),
                offset = in(reg) -8,
                to = inout(reg) place(columns, r) => _,
                step = in(reg) STEP,
            );
        }
    }

    /// Signed bytes.
    #[inline(always)]
    fn unpack_q8_0(self, codes: &[u8; 32], columns: &mut [Column; 32], r: usize) {
        // SAFETY: as `unpack_q4_0`.
        unsafe {
            vector!(
                "vsetvli zero, {at_once}, {bytes}",
                "vle8.v v0, ({codes})",
                "vwadd.vx v4, v0, zero",
                "vsse16.v v4, ({to}), {step}";
                bytes = const Self::BYTES_32,
                at_once = in(reg) 32_usize,
                codes = in(reg) codes.as_ptr(),
                to = in(reg) place(columns, r),
                step = in(reg) STEP,
            );
        }
    }
}

/// Where the integers of row `r` begin.
#[inline(always)]
fn place(columns: &mut [Column], r: usize) -> *mut i16 {
    assert!(r < ROWS, "row {r} of a panel");
    columns.as_mut_ptr().cast::<i16>().wrapping_add(r)
}
