//! WebAssembly with relaxed SIMD: dot products of bytes, the rest as [`super::wasm`].
//!
//! `i32x4.relaxed_dot_i8x16_i7x16_add_s` sums four products of a lane at once, of a signed byte
//! with one that is at most 127. For a larger one, or pairs of products beyond an i16, the result
//! is the machine's choice; so codes are at most 127 here (a pair is then at least −32,512), and
//! larger ones are multiplied in two parts. Every machine gives the same integers so. Other relaxed
//! instructions differ from machine to machine; those that compilers take by themselves are
//! replaced by `cargo xtask web`. An early V8 let one dot product spoil another; `web/features.js`
//! tries two before use.
//!
//! Measured in Chromium 156 on 4-bit codes: 51 GMAC/s, and 12.8 by products of i16.

use std::arch::wasm32::*;

/// `acc + Σ w·x` of the four bytes of each lane, `w` at most 127 and `x` signed.
#[inline(always)]
pub(super) fn dot(acc: v128, w: v128, x: v128) -> v128 {
    i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc)
}

/// As [`dot`] for any unsigned `w`: twice the products of its upper seven bits, and those of its
/// lowest one.
#[inline(always)]
pub(super) fn dot_any(acc: v128, w: v128, x: v128) -> v128 {
    let upper = dot(i32x4_splat(0), u8x16_shr(w, 1), x);
    let lowest = dot(acc, v128_and(w, u8x16_splat(1)), x);
    i32x4_add(lowest, i32x4_shl(upper, 1))
}
