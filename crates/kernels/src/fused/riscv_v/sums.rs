//! Integer sums of blocks: codes are unpacked 32 at a time and multiplied with int8 activations.
//!
//! ```text
//! blocks of 32:   p = code·x, 16 bits;  isum = Σ p, by a sum that widens
//! blocks of 256:  p = code·x, 16 bits;  lane += scale·p, 32 bits;  isum = Σ lane
//! ```
//! A sum is stored from the vector register that it is in, not moved to a scalar one.
//!
//! It refuses to know floats. The one idea: codes lie in memory as they are multiplied, 16 or 32 of
//! one group in consecutive bytes, so no instruction moves an element to another lane.

use super::{BlockInputs, BlockSums, Codes, GROUPS};
use crate::activations::Sums;
use crate::isa::rvv::{Rvv, vector};
use std::mem::offset_of;

/// Asserts that there are between one and [`GROUPS`] blocks; the numbers of fours and of others.
#[inline(always)]
fn fours_and_rest(n: usize) -> [usize; 2] {
    assert!((1..=GROUPS).contains(&n), "{n} groups at once");
    [n / 4, n % 4]
}

impl<const LONG: bool> Rvv<LONG> {
    /// `Σ code·x` of blocks with codes from 0 to 15.
    #[inline(always)]
    pub(super) fn q4_0(self, blocks: &[[u8; 18]], x: &Codes, out: &mut [i32; GROUPS]) {
        let [fours, rest] = fours_and_rest(blocks.len());
        // SAFETY: the token proves vectors; reads the bytes of the blocks behind their scales, as
        // many groups of 32 activations as there are blocks, and writes as many sums.
        unsafe {
            vector!(
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vmv.s.x v1, zero",
                "beqz {fours}, 3f",
                "2:",
                "vsetivli zero, 16, {bytes}",
                ".irp p, 8, 10, 12, 14",
                "vle8.v v2, ({w})",
                "vle8.v v3, ({x})",
                "addi {x}, {x}, 16",
                "vle8.v v4, ({x})",
                "addi {x}, {x}, 16",
                "addi {w}, {w}, 18",
                "vand.vi v5, v2, 15",
                "vsrl.vi v2, v2, 4",
                "vwmul.vv v\\p, v5, v3",
                "vwmacc.vv v\\p, v2, v4",
                ".endr",
                "vsetivli zero, 16, {halves}",
                "vwredsum.vs v2, v8, v1",
                "vwredsum.vs v3, v10, v1",
                "vwredsum.vs v4, v12, v1",
                "vwredsum.vs v5, v14, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                ".irp p, 2, 3, 4, 5",
                "vse32.v v\\p, ({out})",
                "addi {out}, {out}, 4",
                ".endr",
                "addi {fours}, {fours}, -1",
                "bnez {fours}, 2b",
                "3:",
                "beqz {rest}, 5f",
                "4:",
                "vsetivli zero, 16, {bytes}",
                "vle8.v v2, ({w})",
                "vle8.v v3, ({x})",
                "addi {x}, {x}, 16",
                "vle8.v v4, ({x})",
                "addi {x}, {x}, 16",
                "addi {w}, {w}, 18",
                "vand.vi v5, v2, 15",
                "vsrl.vi v2, v2, 4",
                "vwmul.vv v8, v5, v3",
                "vwmacc.vv v8, v2, v4",
                "vsetivli zero, 16, {halves}",
                "vwredsum.vs v2, v8, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vse32.v v2, ({out})",
                "addi {out}, {out}, 4",
                "addi {rest}, {rest}, -1",
                "bnez {rest}, 4b",
                "5:";
                bytes = const Self::BYTES_16,
                halves = const Self::HALVES_16,
                w = inout(reg) blocks.as_ptr().wrapping_byte_add(2) => _,
                x = inout(reg) x.0.as_ptr() => _,
                out = inout(reg) out.as_mut_ptr() => _,
                fours = inout(reg) fours => _,
                rest = inout(reg) rest => _,
            );
        }
    }

    /// `Σ code·x` of blocks with signed bytes.
    #[inline(always)]
    pub(super) fn q8_0(self, blocks: &[[u8; 34]], x: &Codes, out: &mut [i32; GROUPS]) {
        let [fours, rest] = fours_and_rest(blocks.len());
        // SAFETY: as `q4_0`.
        unsafe {
            vector!(
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vmv.s.x v1, zero",
                "beqz {fours}, 3f",
                "2:",
                "vsetvli zero, {at_once}, {bytes}",
                ".irp p, 8, 12, 16, 20",
                "vle8.v v2, ({w})",
                "vle8.v v4, ({x})",
                "addi {w}, {w}, 34",
                "addi {x}, {x}, 32",
                "vwmul.vv v\\p, v2, v4",
                ".endr",
                "vsetvli zero, {at_once}, {halves}",
                "vwredsum.vs v2, v8, v1",
                "vwredsum.vs v3, v12, v1",
                "vwredsum.vs v4, v16, v1",
                "vwredsum.vs v5, v20, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                ".irp p, 2, 3, 4, 5",
                "vse32.v v\\p, ({out})",
                "addi {out}, {out}, 4",
                ".endr",
                "addi {fours}, {fours}, -1",
                "bnez {fours}, 2b",
                "3:",
                "beqz {rest}, 5f",
                "4:",
                "vsetvli zero, {at_once}, {bytes}",
                "vle8.v v2, ({w})",
                "vle8.v v4, ({x})",
                "addi {w}, {w}, 34",
                "addi {x}, {x}, 32",
                "vwmul.vv v8, v2, v4",
                "vsetvli zero, {at_once}, {halves}",
                "vwredsum.vs v2, v8, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vse32.v v2, ({out})",
                "addi {out}, {out}, 4",
                "addi {rest}, {rest}, -1",
                "bnez {rest}, 4b",
                "5:";
                bytes = const Self::BYTES_32,
                halves = const Self::HALVES_32,
                at_once = in(reg) 32_usize,
                w = inout(reg) blocks.as_ptr().wrapping_byte_add(2) => _,
                x = inout(reg) x.0.as_ptr() => _,
                out = inout(reg) out.as_mut_ptr() => _,
                fours = inout(reg) fours => _,
                rest = inout(reg) rest => _,
            );
        }
    }

    /// `isum` and `bias` of each block.
    ///
    /// The twelve bytes of scales and minima become eight bytes each: sub-blocks 0 to 3 have theirs
    /// in the low six bits of the first and second word, the others four bits in the third word and
    /// two atop the first and second.
    #[inline(always)]
    pub(super) fn q4_k(self, blocks: &[[u8; 144]], x: BlockInputs<'_>, out: &mut BlockSums) {
        x.assert_has(blocks.len());
        let sums = x
            .sums
            .as_ptr()
            .wrapping_byte_add(offset_of!(Sums, of_32.whole));
        // SAFETY: the token proves vectors; reads whole blocks, and as many of codes and sums
        // `stride` apart, which were just counted; writes as many sums, at most those of arrays.
        unsafe {
            vector!(
                "2:",
                "lwu {a}, 4({w})",
                "lwu {b}, 8({w})",
                "lwu {c}, 12({w})",
                "addi {w}, {w}, 16",
                // Eight scales in a, eight minima in b.
                "srli {t}, {a}, 2",
                "and {t}, {t}, {top}",
                "and {u}, {c}, {nibbles}",
                "or {t}, {t}, {u}",
                "slli {t}, {t}, 32",
                "and {a}, {a}, {six}",
                "or {a}, {a}, {t}",
                "srli {t}, {b}, 2",
                "and {t}, {t}, {top}",
                "srli {c}, {c}, 4",
                "and {c}, {c}, {nibbles}",
                "or {t}, {t}, {c}",
                "slli {t}, {t}, 32",
                "and {b}, {b}, {six}",
                "or {b}, {b}, {t}",
                // Minima times sums.
                "vsetivli zero, 1, e64, m1, ta, mu",
                "vmv.s.x v1, {b}",
                "vsetivli zero, 8, e16, m1, ta, mu",
                "vle16.v v2, ({sums})",
                "vzext.vf2 v3, v1",
                "vwmul.vv v4, v3, v2",
                "vsetivli zero, 8, e32, m2, ta, mu",
                "vmv.s.x v1, zero",
                "vredsum.vs v1, v4, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vse32.v v1, ({bias})",
                // Two sub-blocks at a time: low nibbles, high nibbles.
                "vsetvli zero, {at_once}, {words}",
                "vmv.v.i v24, 0",
                ".rept 4",
                "vsetvli zero, {at_once}, {bytes}",
                "vle8.v v0, ({w})",
                "vle8.v v2, ({x})",
                "addi {x}, {x}, 32",
                "vle8.v v4, ({x})",
                "addi {x}, {x}, 32",
                "addi {w}, {w}, 32",
                "vand.vi v6, v0, 15",
                "vsrl.vi v0, v0, 4",
                "vwmul.vv v8, v6, v2",
                "vwmul.vv v12, v0, v4",
                "andi {t}, {a}, 63",
                "srli {a}, {a}, 8",
                "andi {u}, {a}, 63",
                "srli {a}, {a}, 8",
                "vsetvli zero, {at_once}, {halves}",
                "vwmacc.vx v24, {t}, v8",
                "vwmacc.vx v24, {u}, v12",
                ".endr",
                "vsetvli zero, {at_once}, {words}",
                "vmv.s.x v1, zero",
                "vredsum.vs v1, v24, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vse32.v v1, ({isum})",
                "addi {isum}, {isum}, 4",
                "addi {bias}, {bias}, 4",
                "add {x}, {x}, {skip}",
                "add {sums}, {sums}, {next_sums}",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b";
                bytes = const Self::BYTES_32,
                halves = const Self::HALVES_32,
                words = const Self::WORDS_32,
                at_once = in(reg) 32_usize,
                six = in(reg) 0x3f3f_3f3f_usize,
                nibbles = in(reg) 0x0f0f_0f0f_usize,
                top = in(reg) 0x3030_3030_usize,
                w = inout(reg) blocks.as_ptr() => _,
                x = inout(reg) x.codes.as_ptr() => _,
                skip = in(reg) (x.stride - 1) * size_of::<Codes>(),
                sums = inout(reg) sums => _,
                next_sums = in(reg) x.stride * size_of::<Sums>(),
                isum = inout(reg) out.isum.as_mut_ptr() => _,
                bias = inout(reg) out.bias.as_mut_ptr() => _,
                n = inout(reg) blocks.len() => _,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                t = out(reg) _,
                u = out(reg) _,
            );
        }
    }

    /// `isum` of each block.
    ///
    /// Two scales belong to 32 products: the first multiplies all, its difference from the second
    /// those of the upper half.
    // long: one block of assembly, which cannot be cut.
    #[inline(always)]
    pub(super) fn q6_k(self, blocks: &[[u8; 210]], x: BlockInputs<'_>, out: &mut BlockSums) {
        x.assert_has(blocks.len());
        // SAFETY: as `q4_k`.
        unsafe {
            vector!(
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vmv.s.x v0, {upper}",
                "2:",
                "vsetvli zero, {at_once}, {words}",
                "vmv.v.i v24, 0",
                ".rept 2",
                "vsetvli zero, {at_once}, {bytes}",
                "vle8.v v2, ({high})",
                "vle8.v v4, ({low})",
                "addi {low}, {low}, 32",
                "vle8.v v6, ({low})",
                "vle8.v v8, ({x})",
                "addi {x}, {x}, 32",
                "vle8.v v10, ({x})",
                // Low nibbles.
                "vsll.vi v12, v2, 4",
                "vsll.vi v14, v2, 2",
                "vand.vi v16, v4, 15",
                "vand.vi v18, v6, 15",
                "vand.vx v12, v12, {top}",
                "vand.vx v14, v14, {top}",
                "vor.vv v12, v12, v16",
                "vor.vv v14, v14, v18",
                "vadd.vx v12, v12, {offset}",
                "vadd.vx v14, v14, {offset}",
                "vwmul.vv v16, v12, v8",
                "vwmul.vv v20, v14, v10",
                "lb {t}, 0({scales})",
                "lb {u}, 1({scales})",
                "lb {a}, 2({scales})",
                "lb {b}, 3({scales})",
                "sub {u}, {u}, {t}",
                "sub {b}, {b}, {a}",
                "vsetvli zero, {at_once}, {halves}",
                "vwmacc.vx v24, {t}, v16",
                "vwmacc.vx v24, {u}, v16, v0.t",
                "vwmacc.vx v24, {a}, v20",
                "vwmacc.vx v24, {b}, v20, v0.t",
                // High nibbles.
                "vsetvli zero, {at_once}, {bytes}",
                "addi {x}, {x}, 32",
                "vle8.v v8, ({x})",
                "addi {x}, {x}, 32",
                "vle8.v v10, ({x})",
                "vsrl.vi v14, v2, 2",
                "vand.vx v12, v2, {top}",
                "vand.vx v14, v14, {top}",
                "vsrl.vi v4, v4, 4",
                "vsrl.vi v6, v6, 4",
                "vor.vv v12, v12, v4",
                "vor.vv v14, v14, v6",
                "vadd.vx v12, v12, {offset}",
                "vadd.vx v14, v14, {offset}",
                "vwmul.vv v16, v12, v8",
                "vwmul.vv v20, v14, v10",
                "lb {t}, 4({scales})",
                "lb {u}, 5({scales})",
                "lb {a}, 6({scales})",
                "lb {b}, 7({scales})",
                "sub {u}, {u}, {t}",
                "sub {b}, {b}, {a}",
                "vsetvli zero, {at_once}, {halves}",
                "vwmacc.vx v24, {t}, v16",
                "vwmacc.vx v24, {u}, v16, v0.t",
                "vwmacc.vx v24, {a}, v20",
                "vwmacc.vx v24, {b}, v20, v0.t",
                "addi {x}, {x}, 32",
                "addi {low}, {low}, 32",
                "addi {high}, {high}, 32",
                "addi {scales}, {scales}, 8",
                ".endr",
                "vsetvli zero, {at_once}, {words}",
                "vmv.s.x v1, zero",
                "vredsum.vs v1, v24, v1",
                "vsetivli zero, 1, e32, m1, ta, mu",
                "vse32.v v1, ({isum})",
                "addi {isum}, {isum}, 4",
                "add {x}, {x}, {skip}",
                "addi {low}, {low}, 82",
                "addi {high}, {high}, 146",
                "addi {scales}, {scales}, 194",
                "addi {n}, {n}, -1",
                "bnez {n}, 2b";
                bytes = const Self::BYTES_32,
                halves = const Self::HALVES_32,
                words = const Self::WORDS_32,
                at_once = in(reg) 32_usize,
                upper = in(reg) 0xffff_0000_usize,
                top = in(reg) 0x30,
                offset = in(reg) -32,
                low = inout(reg) blocks.as_ptr() => _,
                high = inout(reg) blocks.as_ptr().wrapping_byte_add(128) => _,
                scales = inout(reg) blocks.as_ptr().wrapping_byte_add(192) => _,
                x = inout(reg) x.codes.as_ptr() => _,
                skip = in(reg) (x.stride - 1) * size_of::<Codes>(),
                isum = inout(reg) out.isum.as_mut_ptr() => _,
                n = inout(reg) blocks.len() => _,
                a = out(reg) _,
                b = out(reg) _,
                t = out(reg) _,
                u = out(reg) _,
            );
        }
    }
}
