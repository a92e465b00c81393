//! No instruction set at all: loops that the compiler may vectorise for the build's baseline.
//!
//! Correct on every machine, and the definition of the results of all other instruction sets.

use super::Row;

/// Proof of nothing.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Row for Scalar {
    type V = [u8; 32];

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [u8; 32] {
        *bytes
    }

    #[inline(always)]
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> [u8; 32] {
        let mut v = [0; 32];
        v[..16].copy_from_slice(low);
        v[16..].copy_from_slice(high);
        v
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [u8; 32] {
        self.load_pair(&bytes.map(|byte| byte & 15), &bytes.map(|byte| byte >> 4))
    }

    #[inline(always)]
    fn and(self, v: [u8; 32], mask: u8) -> [u8; 32] {
        v.map(|byte| byte & mask)
    }

    #[inline(always)]
    fn xor(self, v: [u8; 32], mask: u8) -> [u8; 32] {
        v.map(|byte| byte ^ mask)
    }

    #[inline(always)]
    fn or(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn shr(self, v: [u8; 32], n: usize) -> [u8; 32] {
        v.map(|byte| byte >> n)
    }

    #[inline(always)]
    fn shl(self, v: [u8; 32], n: usize) -> [u8; 32] {
        v.map(|byte| byte << n)
    }

    #[inline(always)]
    fn scaled(self, codes: [u8; 32], offset: i16, scale: [i16; 2], out: &mut [i16; 32]) {
        for i in 0..16 {
            out[i] = (i16::from(codes[i]) - offset) * scale[0];
        }
        for i in 16..32 {
            out[i] = (i16::from(codes[i]) - offset) * scale[1];
        }
    }

    #[inline(always)]
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32 {
        w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum()
    }

    #[inline(always)]
    fn dot16(self, a: &[i16; 16], b: &[i16; 16]) -> i32 {
        a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
    }
}
