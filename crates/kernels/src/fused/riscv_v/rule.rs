//! Factors of blocks, and the f32 rules of the crate's documentation, for several blocks at once.
//!
//! It refuses to know formats. The one idea: an ordered sum of a vector (`vfredosum`) adds one
//! element after the other, as the rules want it, and rounds after each.

use super::{AT_ONCE, BlockInputs, BlockSums, GROUPS};
use crate::isa::rvv::{Rvv, vector};

/// A block of activations that groups of 32 weights meet.
pub(super) struct GroupInputs<'a> {
    pub(super) scales: &'a [f32; GROUPS],
    /// `Σ x` of each group.
    pub(super) sums: &'a [i16; GROUPS],
    /// What they are multiplied with and added to `isum`.
    pub(super) correction: i32,
}

impl<const LONG: bool> Rvv<LONG> {
    /// The f16 at byte `at` of each block, at most [`AT_ONCE`], widened as
    /// [`widen_f16`](crate::format::float::widen_f16) does it.
    #[inline(always)]
    pub(super) fn factors<const B: usize>(self, blocks: &[[u8; B]], at: usize) -> [f32; AT_ONCE] {
        let mut out = [0.0; AT_ONCE];
        assert!(at + 2 <= B && (1..=AT_ONCE).contains(&blocks.len()));
        // SAFETY: the token proves vectors; reads two bytes of each block, and writes as many
        // floats as there are blocks, no more than `out` has.
        unsafe {
            vector!(
                "vsetvli zero, {n}, {bytes}",
                "vlsseg2e8.v v2, ({blocks}), {step}",
                "vsetvli zero, {n}, {halves}",
                "vzext.vf2 v4, v2",
                "vzext.vf2 v6, v3",
                "vsll.vi v6, v6, 8",
                "vor.vv v4, v4, v6",
                "vsetvli zero, {n}, {words}",
                "vzext.vf2 v8, v4",
                "vsrl.vi v12, v8, 15",
                "vsll.vi v12, v12, 31",
                "vsll.vi v8, v8, 17",
                "vsrl.vi v8, v8, 4",
                "vadd.vx v16, v8, {rebias}",
                // Subnormal numbers.
                "vmsltu.vx v0, v8, {normal}",
                "vadd.vx v20, v8, {subnormal}",
                "vfsub.vf v20, v20, {least}",
                "vmerge.vvm v16, v16, v20, v0",
                // Infinity and NaN.
                "vmsgtu.vx v0, v8, {finite}",
                "vadd.vx v16, v16, {rebias}, v0.t",
                "vor.vv v16, v16, v12",
                "vse32.v v16, ({out})";
                bytes = const Self::BYTES_16,
                halves = const Self::HALVES_16,
                words = const Self::WORDS_16,
                blocks = in(reg) blocks.as_ptr().wrapping_byte_add(at),
                step = in(reg) B,
                n = in(reg) blocks.len(),
                rebias = in(reg) 112 << 23,
                normal = in(reg) 1 << 23,
                subnormal = in(reg) 113 << 23,
                least = in(freg) f32::from_bits(113 << 23),
                finite = in(reg) (31 << 23) - 1,
                out = in(reg) out.as_mut_ptr(),
            );
        }
        out
    }

    /// `out += dx·(d·isum − dmin·bias)` of each of `n` blocks, in order; `factors` are `d` and
    /// `dmin`.
    #[inline(always)]
    pub(super) fn add_blocks(
        self,
        out: f32,
        n: usize,
        sums: &BlockSums,
        factors: &[[f32; AT_ONCE]; 2],
        x: BlockInputs<'_>,
    ) -> f32 {
        x.assert_has(n);
        let mut out = out;
        // SAFETY: the token proves vectors; reads `n` elements of each operand, at most those of
        // arrays, and of the scales as many `stride` apart, which was just compared.
        unsafe {
            vector!(
                "vsetvli zero, {n}, {words}",
                "vle32.v v4, ({isum})",
                "vle32.v v8, ({d})",
                "vle32.v v12, ({bias})",
                "vle32.v v16, ({dmin})",
                "vlse32.v v20, ({scales}), {step}",
                "vfcvt.f.x.v v4, v4",
                "vfcvt.f.x.v v12, v12",
                "vfmv.s.f v1, {out}",
                "vfmul.vv v4, v4, v8",
                "vfmul.vv v12, v12, v16",
                "vfsub.vv v4, v4, v12",
                "vfmul.vv v4, v4, v20",
                "vfredosum.vs v1, v4, v1",
                "vfmv.f.s {out}, v1";
                words = const Self::WORDS_16,
                n = in(reg) n,
                isum = in(reg) sums.isum.as_ptr(),
                bias = in(reg) sums.bias.as_ptr(),
                d = in(reg) factors[0].as_ptr(),
                dmin = in(reg) factors[1].as_ptr(),
                scales = in(reg) x.scales.as_ptr(),
                step = in(reg) 4 * x.stride,
                out = inout(freg) out,
            );
        }
        out
    }

    /// `out += (d·dx)·(isum + correction·Σx)` of each of `n` groups, in order.
    #[inline(always)]
    pub(super) fn add_groups(
        self,
        out: f32,
        n: usize,
        isum: &[i32; GROUPS],
        d: &[f32; GROUPS],
        x: GroupInputs<'_>,
    ) -> f32 {
        assert!((1..=GROUPS).contains(&n), "{n} groups at once");
        let mut out = out;
        // SAFETY: the token proves vectors; reads `n` elements of arrays that have as many.
        unsafe {
            vector!(
                "vsetvli zero, {n}, e16, m1, ta, mu",
                "vle16.v v2, ({sums})",
                "vwmul.vx v4, v2, {correction}",
                "vsetvli zero, {n}, e32, m2, ta, mu",
                "vle32.v v6, ({isum})",
                "vle32.v v8, ({d})",
                "vle32.v v10, ({scales})",
                "vadd.vv v4, v4, v6",
                "vfmul.vv v8, v8, v10",
                "vfcvt.f.x.v v4, v4",
                "vfmv.s.f v1, {out}",
                "vfmul.vv v4, v4, v8",
                "vfredosum.vs v1, v4, v1",
                "vfmv.f.s {out}, v1";
                n = in(reg) n,
                sums = in(reg) x.sums.as_ptr(),
                correction = in(reg) x.correction,
                isum = in(reg) isum.as_ptr(),
                d = in(reg) d.as_ptr(),
                scales = in(reg) x.scales.as_ptr(),
                out = inout(freg) out,
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::float::widen_f16;
    use crate::isa::rvv::{any, long};

    fn check<const LONG: bool>(isa: Rvv<LONG>) {
        let all: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_le_bytes).collect();
        for blocks in all.chunks(13) {
            let wide = isa.factors(blocks, 0);
            for (wide, half) in wide.iter().zip(blocks) {
                let want = widen_f16(u16::from_le_bytes(*half));
                assert_eq!(wide.to_bits(), want.to_bits(), "{half:?}");
            }
        }
    }

    #[test]
    fn every_f16_widens_as_in_plain_code() {
        if let Some(isa) = any() {
            check(isa);
        }
        if let Some(isa) = long() {
            check(isa);
        }
    }
}
