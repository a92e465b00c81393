//! T2, T3 and T4, atta's own types: 2.1875, 3.1875 and 4.1875 bits per weight, trellis-coded.
//!
//! A block holds 256 weights of a row in 8 sub-blocks of 32; the last block of a row holds the n
//! sub-blocks that are left, n = 1 to 8, so rows are multiples of 32 weights. The bytes of a block
//! of n sub-blocks, little endian, at any alignment:
//!
//! ```text
//! d       f16
//! scales  ceil(n/2) bytes   nibble b, the low one first: s_b, of a scale s_b + 1; unused ones 0
//! x       n u64             x_b: 32 symbols of 2 bits
//! h       4·n bytes (T3)    bit f of the low nibble of h[l], lanes l < 4·n; of the high nibble of
//!                           h[l − 4·n], the other lanes
//! a       8·n bytes (T4)    bits 2f and 2f + 1 of a[l]
//! ```
//! Weight 32b + 8f + j (j < 8, f < 4) is symbol 4j + f of x_b, at bit p = 8j + 2f, and lane
//! l = 8b + j of h or a:
//!
//! ```text
//! z_b = x_b ^ rotr(x_b, 1) ^ rotr(x_b, 4)             64-bit rotations: the trellis bites its tail
//! i   = (x_b >> p & 3) | (z_b >> p & 3) << 2 | (bit of h) << 4  or  (bits of a) << 4
//! w   = d · 2^-5 · (s_b + 1) · LEVELS[i]
//! ```
//! The label i is a linear function of a window of 6 bits of the symbols: a convolutional code with
//! 16 states, whose cosets are the levels (Marcellin and Fischer 1990, in the form of bit shifts of
//! QTIP, Tseng et al. 2024). Every product of a weight is exact in f32, so their order is free.
//!
//! This file knows layout and values; the search for the best symbols is in the converter.

use crate::TensorType;
use crate::f16::f16_to_f32;

/// Levels of T2, by label. Those of all three types lie in −63 to 63.
pub const T2_LEVELS: [i8; 16] = [
    -62, -41, -31, -27, -15, -12, -6, -4, 5, 6, 13, 15, 27, 32, 41, 63,
];

/// Levels of T3, by label.
pub const T3_LEVELS: [i8; 32] = [
    -61, -45, -38, -33, -28, -25, -21, -19, -15, -13, -11, -10, -5, -4, -3, -1, //
    2, 2, 4, 5, 9, 11, 13, 15, 19, 22, 24, 27, 33, 37, 46, 63,
];

/// Levels of T4, by label.
pub const T4_LEVELS: [i8; 64] = [
    -63, -51, -44, -40, -37, -35, -32, -30, -28, -27, -25, -23, -22, -20, -19, -18, //
    -16, -15, -14, -13, -11, -11, -10, -9, -7, -6, -5, -5, -3, -2, -2, -1, //
    1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 11, 13, 14, 15, 16, //
    18, 19, 20, 21, 23, 25, 26, 28, 30, 32, 35, 38, 41, 45, 50, 63,
];

block! {
    /// 256 weights in 8 sub-blocks of 32; see [`Trellis`].
    T2, 70: { d: f16 at 0, scales: 4 at 2, x: 64 at 6, }
}
block! {
    /// As [`T2`], with a fifth bit of each label in `h`.
    T3, 102: { d: f16 at 0, scales: 4 at 2, x: 64 at 6, h: 32 at 70, }
}
block! {
    /// As [`T2`], with two more bits of each label in `a`.
    T4, 134: { d: f16 at 0, scales: 4 at 2, x: 64 at 6, a: 64 at 70, }
}

/// The upper two bits of each symbol's label, below which the symbol itself is.
#[inline(always)]
pub const fn trellis_parities(x: u64) -> u64 {
    x ^ x.rotate_right(1) ^ x.rotate_right(4)
}

/// The layout of one of the three types: `bits` whole bits per weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trellis {
    bits: usize,
}

impl Trellis {
    /// The power of two in every weight: `w = d·K·scale·level`.
    pub const K: f32 = 1.0 / 32.0;
    /// Weights of a sub-block; rows are multiples of it.
    pub const SUB_BLOCK: usize = 32;
    /// Sub-blocks of a whole block.
    pub const N_SUB_BLOCKS: usize = 8;

    /// The layout of a type, if it is one of these.
    pub const fn of(ty: TensorType) -> Option<Self> {
        match ty {
            TensorType::T2 => Some(Self { bits: 2 }),
            TensorType::T3 => Some(Self { bits: 3 }),
            TensorType::T4 => Some(Self { bits: 4 }),
            _ => None,
        }
    }

    /// Levels by label, 16, 32 or 64 of them.
    pub const fn levels(self) -> &'static [i8] {
        match self.bits {
            2 => &T2_LEVELS,
            3 => &T3_LEVELS,
            _ => &T4_LEVELS,
        }
    }

    /// Bytes of h or a for each sub-block.
    const fn upper_bytes(self) -> usize {
        4 * (self.bits - 2)
    }

    /// Bytes of a block of `n` sub-blocks, `n` at most 8.
    pub const fn block_bytes(self, n: usize) -> usize {
        2 + n.div_ceil(2) + n * (8 + self.upper_bytes())
    }

    /// Bytes of a row of `d` weights, fewer than `d`; `None` if `d` is no multiple of 32.
    pub fn row_bytes(self, d: usize) -> Option<usize> {
        if !d.is_multiple_of(Self::SUB_BLOCK) {
            return None;
        }
        let n = d / Self::SUB_BLOCK;
        let short = match n % Self::N_SUB_BLOCKS {
            0 => 0,
            n => self.block_bytes(n),
        };
        Some(n / Self::N_SUB_BLOCKS * self.block_bytes(Self::N_SUB_BLOCKS) + short)
    }

    /// The block that `bytes` are, of as many sub-blocks as fill them; `None` if none do.
    #[inline(always)]
    pub fn block(self, bytes: &[u8]) -> Option<TrellisBlock<'_>> {
        // Twice the bytes of the block are 4, and 2·(8 + upper) + 1 for each sub-block, or one more
        // of an odd number of them.
        let n = (2 * bytes.len().saturating_sub(2)) / (2 * (8 + self.upper_bytes()) + 1);
        let fits = (1..=Self::N_SUB_BLOCKS).contains(&n) && bytes.len() == self.block_bytes(n);
        fits.then_some(TrellisBlock {
            trellis: self,
            n,
            bytes,
        })
    }

    /// Decodes a row, or whole blocks of a row. The caller has compared the lengths.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let blocks = bytes.chunks(self.block_bytes(Self::N_SUB_BLOCKS));
        for (bytes, y) in blocks.zip(out.chunks_mut(256)) {
            self.block(bytes)
                .expect("rows of this length end in such a block")
                .decode(y);
        }
    }
}

/// A block of 1 to 8 sub-blocks.
#[derive(Clone, Copy, Debug)]
pub struct TrellisBlock<'a> {
    trellis: Trellis,
    n: usize,
    bytes: &'a [u8],
}

impl<'a> TrellisBlock<'a> {
    /// Sub-blocks.
    #[inline(always)]
    pub fn n_sub_blocks(self) -> usize {
        self.n
    }

    /// The scale of the block, f16.
    #[inline(always)]
    pub fn d_bits(self) -> u16 {
        u16::from_le_bytes([self.bytes[0], self.bytes[1]])
    }

    /// The codes of the scales, two in each byte.
    #[inline(always)]
    pub fn scale_codes(self) -> &'a [u8] {
        &self.bytes[2..][..self.n.div_ceil(2)]
    }

    /// The scale of sub-block `b`, 1 to 16.
    #[inline(always)]
    pub fn scale(self, b: usize) -> u8 {
        (self.scale_codes()[b / 2] >> (4 * (b % 2)) & 15) + 1
    }

    /// The symbols of all sub-blocks.
    #[inline(always)]
    pub fn x(self) -> &'a [u8] {
        &self.bytes[2 + self.n.div_ceil(2)..][..8 * self.n]
    }

    /// h of T3, a of T4, nothing of T2.
    #[inline(always)]
    pub fn upper(self) -> &'a [u8] {
        &self.bytes[2 + self.n.div_ceil(2) + 8 * self.n..]
    }

    /// The upper bits of the label of symbol 4j + f in lane `l` = 8b + j: 0, one bit or two.
    fn upper_bits(self, l: usize, f: usize) -> usize {
        let upper = self.upper();
        let half = 4 * self.n;
        usize::from(match self.trellis.bits {
            2 => 0,
            3 if l < half => upper[l] >> f & 1,
            3 => upper[l - half] >> (4 + f) & 1,
            _ => upper[l] >> (2 * f) & 3,
        })
    }

    /// Decodes the block into `y`, `[32·n]`.
    fn decode(self, y: &mut [f32]) {
        let d = f16_to_f32(self.d_bits()) * Trellis::K;
        let levels = self.trellis.levels();
        let words = self.x().as_chunks::<8>().0;
        for (b, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let x = u64::from_le_bytes(words[b]);
            let scale = f32::from(self.scale(b));
            let z = trellis_parities(x);
            for (i, y) in y.iter_mut().enumerate() {
                let f = i / 8;
                let j = i % 8;
                let p = 8 * j + 2 * f;
                let label = (x >> p & 3 | (z >> p & 3) << 2) as usize;
                let level = levels[label | self.upper_bits(8 * b + j, f) << 4];
                *y = d * scale * f32::from(level);
            }
        }
    }

    /// The same weights as a whole block, of `B` bytes; the sub-blocks behind them mean nothing.
    #[inline(always)]
    pub fn widened<const B: usize>(self) -> [u8; B] {
        let mut whole = [0; B];
        whole[..2].copy_from_slice(&self.bytes[..2]);
        whole[2..][..self.n.div_ceil(2)].copy_from_slice(self.scale_codes());
        whole[6..][..8 * self.n].copy_from_slice(self.x());
        let upper = &mut whole[70..];
        if self.trellis.bits != 3 {
            upper[..self.upper().len()].copy_from_slice(self.upper());
            return whole;
        }
        let mut lanes = [0; 64];
        let half = 4 * self.n;
        for (i, h) in self.upper().iter().enumerate() {
            (lanes[i], lanes[half + i]) = (h & 15, h >> 4);
        }
        for (i, h) in upper.iter_mut().enumerate() {
            *h = lanes[i] | lanes[32 + i] << 4;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    const TYPES: [TensorType; 3] = [TensorType::T2, TensorType::T3, TensorType::T4];

    fn random(n: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    /// The bit of `bytes` at place `i`.
    fn bit(bytes: &[u8], i: usize) -> usize {
        usize::from(bytes[i / 8] >> (i % 8) & 1)
    }

    /// Weight `w` of a block of `n` sub-blocks by the equations at the top, bit by bit.
    fn weight(ty: TensorType, block: &[u8], n: usize, w: usize) -> f32 {
        let [b, f, j] = [w / 32, w % 32 / 8, w % 8];
        let (x, p) = (&block[2 + n.div_ceil(2) + 8 * b..][..8], 8 * j + 2 * f);
        let z = |p: usize| bit(x, p % 64) ^ bit(x, (p + 1) % 64) ^ bit(x, (p + 4) % 64);
        let mut label = bit(x, p) | bit(x, p + 1) << 1 | z(p) << 2 | z(p + 1) << 3;
        let (upper, l) = (&block[2 + n.div_ceil(2) + 8 * n..], 8 * b + j);
        match ty {
            TensorType::T3 => {
                let at = if l < 4 * n {
                    8 * l
                } else {
                    8 * (l - 4 * n) + 4
                };
                label |= bit(upper, at + f) << 4;
            }
            TensorType::T4 => {
                label |= bit(upper, 8 * l + 2 * f) << 4 | bit(upper, 8 * l + 2 * f + 1) << 5;
            }
            _ => (),
        }
        let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
        let scale = f32::from(block[2 + b / 2] >> (4 * (b % 2)) & 15) + 1.0;
        d / 32.0 * scale * f32::from(Trellis::of(ty).unwrap().levels()[label])
    }

    #[test]
    fn blocks_of_every_length_follow_the_equations() {
        for ty in TYPES {
            for n in 1..=8 {
                let n_bytes = Trellis::of(ty).unwrap().block_bytes(n);
                for block in random(20 * n_bytes).chunks_mut(n_bytes) {
                    block[1] &= 0xbf;
                    let mut y = vec![0.0; 32 * n];
                    decode(ty, block, &mut y).unwrap();
                    let want: Vec<f32> = (0..32 * n).map(|w| weight(ty, block, n, w)).collect();
                    assert_eq!(y, want, "{ty}, {n} sub-blocks");
                }
            }
        }
    }

    #[test]
    fn a_widened_block_holds_the_same_weights() {
        fn check<const B: usize>(ty: TensorType) {
            let trellis = Trellis::of(ty).unwrap();
            for n in 1..=8 {
                let mut short = random(trellis.block_bytes(n));
                short[1] &= 0xbf;
                let block = trellis.block(&short).unwrap();
                let (mut y, mut whole) = (vec![0.0; 32 * n], vec![0.0; 256]);
                decode(ty, &short, &mut y).unwrap();
                decode(ty, &block.widened::<B>(), &mut whole).unwrap();
                assert_eq!(y, whole[..32 * n], "{ty}, {n} sub-blocks");
            }
        }
        check::<70>(TensorType::T2);
        check::<102>(TensorType::T3);
        check::<134>(TensorType::T4);
    }

    #[test]
    fn bytes_of_blocks_are_those_of_the_layout() {
        let sizes = |ty| {
            let trellis = Trellis::of(ty).unwrap();
            [1, 2, 3, 4, 5, 6, 7, 8].map(|n| trellis.block_bytes(n))
        };
        assert_eq!(sizes(TensorType::T2), [11, 19, 28, 36, 45, 53, 62, 70]);
        assert_eq!(sizes(TensorType::T3), [15, 27, 40, 52, 65, 77, 90, 102]);
        assert_eq!(sizes(TensorType::T4), [19, 35, 52, 68, 85, 101, 118, 134]);
        for ty in TYPES {
            let trellis = Trellis::of(ty).unwrap();
            assert_eq!(ty.block_bytes(), trellis.block_bytes(8));
            for len in 0..200 {
                let n = sizes(ty).iter().position(|&size| size == len);
                let found = trellis.block(&vec![0; len]).map(|block| block.n);
                assert_eq!(found, n.map(|n| n + 1), "{ty}, {len} bytes");
            }
        }
    }

    #[test]
    fn levels_are_in_order_and_fit_seven_bits_when_raised() {
        for ty in TYPES {
            let levels = Trellis::of(ty).unwrap().levels();
            assert!(levels.is_sorted() && levels.iter().all(|level| level.abs() <= 63));
        }
    }

    #[test]
    fn several_rows_with_short_blocks_are_no_row() {
        for ty in TYPES {
            let bytes = vec![0; 2 * ty.row_bytes(288).unwrap()];
            assert!(decode(ty, &bytes, &mut [0.0; 576]).is_err());
        }
    }
}
