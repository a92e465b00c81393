//! How rows of keys and values lie in a KV block: element types, purposes, arrays of codes and
//! scales.
//!
//! It knows sizes and no arithmetic. The one idea: the rows of a head in a block are one or more
//! arrays with an entry per position, so copying positions is copying a range of each array.

use crate::algo::codes16;
use std::ops::Range;

/// Elements of a group of Q4, which share a scale and a minimum.
pub(crate) const Q4_GROUP: usize = 32;

/// Elements of a key that share a scale, with [`KvElem::F16`].
pub(crate) const KEY_SECTION: usize = 128;

/// The largest code of a value with [`KvElem::F16`]: 32 of them, times weights that add up to
/// 2¹⁸, fit 32 bits.
pub(crate) const VALUE_MAX: i16 = 8191;

/// Element type of cached keys and values, little endian. A row is one head of one position, `[d]`.
///
/// Q8 and Q4 hold a rotated row: an orthonormal Hadamard matrix is applied to blocks of the largest
/// power of two that divides `d` (QuaRot, Ashkboos et al. 2024), so that a few large channels do
/// not cost the others their precision. Attention rotates the queries too, and rotates the weighted
/// sums of values back. Values of F16 are rotated as well, keys are not: the scale of a key follows
/// its norm, which a rotation preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvElem {
    /// IEEE binary32.
    F32,
    /// 16 bits an element: int16 codes, and f32 scales in arrays of their own ([`KvRows::arrays`]),
    /// so that attention is products of integers. It has the size and the name of IEEE binary16,
    /// and is more precise. A key has a scale for each 128 elements, a value has one. The
    /// definition of codes and scales is in `algo/codes16.rs`.
    F16,
    /// `scale·code`: an f16 scale, then `d` int8 codes from −127 to 127; 2 + d bytes.
    Q8,
    /// `min + scale·code` (KIVI, Liu et al. 2024) in groups of 32 elements: f16 scale, f16 minimum,
    /// then 4-bit codes, elements 0 to 15 in the low nibbles of 16 bytes and 16 to 31 in the
    /// high ones; 20 bytes. A last group of n < 32 elements has the first ⌈n/2⌉ in low nibbles;
    /// 4 + ⌈n/2⌉ bytes.
    Q4,
}

/// What a stored row is to attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvRole {
    /// A key.
    Key,
    /// A value.
    Value,
    /// A key that is the value from an element on, for latent attention.
    Both {
        /// First element of the value; even.
        value_from: usize,
    },
}

/// The rows of one head of keys or values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvRows {
    /// Element type.
    pub elem: KvElem,
    /// What the rows are.
    pub role: KvRole,
    /// Elements of a row.
    pub d: usize,
}

/// An array with `row_bytes` for each position of a KV block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvArray {
    /// First byte, counted from the first byte of the head.
    pub at: usize,
    /// Bytes for a position.
    pub row_bytes: usize,
}

impl KvArray {
    /// The bytes of these positions of the block.
    pub fn rows(self, positions: Range<usize>) -> Range<usize> {
        let row = |i: usize| self.at + i * self.row_bytes;
        row(positions.start)..row(positions.end)
    }
}

impl KvRows {
    /// Bytes of a row, those in all arrays together.
    pub fn row_bytes(self) -> usize {
        let (codes, n_scales) = self.widths();
        codes + 4 * n_scales
    }

    /// The arrays of `block_len` rows, one behind the other: `[block_len]` rows; with
    /// [`KvElem::F16`] `[block_len, d]` codes, then `[n_scales, block_len]` scales, an array for
    /// each.
    pub fn arrays(self, block_len: usize) -> impl Iterator<Item = KvArray> + use<> {
        let (codes, n_scales) = self.widths();
        let scales = (0..n_scales).map(move |j| KvArray {
            at: (codes + 4 * j) * block_len,
            row_bytes: 4,
        });
        let rows = KvArray {
            at: 0,
            row_bytes: codes,
        };
        std::iter::once(rows).chain(scales)
    }

    /// The elements that share scale `j` of [`KvElem::F16`]; empty for the first `j` that is none.
    pub(crate) fn section(self, j: usize) -> Range<usize> {
        let (keys, end) = match self.role {
            KvRole::Key => (self.d, self.d),
            KvRole::Value => (0, self.d),
            KvRole::Both { value_from } => (value_from.min(self.d), self.d),
        };
        let n_of_keys = keys.div_ceil(KEY_SECTION);
        match j {
            _ if j < n_of_keys => j * KEY_SECTION..keys.min((j + 1) * KEY_SECTION),
            _ if j == n_of_keys => keys..end,
            _ => end..end,
        }
    }

    /// The first element on which the value of a row depends: of a rotated row, the first one of
    /// the block in which the value begins.
    pub(crate) fn value_from(self) -> usize {
        let from = match self.role {
            KvRole::Key | KvRole::Value => 0,
            KvRole::Both { value_from } => value_from,
        };
        match self.is_rotated() {
            true => from >> self.d.trailing_zeros() << self.d.trailing_zeros(),
            false => from,
        }
    }

    /// The number of scales of [`KvElem::F16`].
    pub(crate) fn n_sections(self) -> usize {
        let mut n = 0;
        while !self.section(n).is_empty() {
            n += 1;
        }
        n
    }

    /// Whether attention may read the row at position `i` of a head's rows in `block`, which come
    /// from a file: with [`KvElem::F16`], sums of products must not overflow and scales must be
    /// finite. Any bytes are a row of the other types.
    pub fn is_sound(self, i: usize, block: &[u8]) -> bool {
        self.elem != KvElem::F16 || codes16::is_sound(self, i, block)
    }

    /// Whether rows are rotated before they are stored. Rotating values never costs accuracy.
    /// Relative error of the attention over 512 positions of width 128, without and with rotation:
    ///
    /// | values | Q8 | Q4 |
    /// |---|---|---|
    /// | Gaussian | 0.0063, 0.0060 | 0.074, 0.073 |
    /// | four channels 20 times as large | 0.0302, 0.0077 | 0.165, 0.081 |
    /// | one channel 50 times as large | 0.097, 0.013 | 0.39, 0.20 |
    pub(crate) fn is_rotated(self) -> bool {
        match self.elem {
            KvElem::F32 => false,
            KvElem::F16 => self.role == KvRole::Value,
            KvElem::Q8 | KvElem::Q4 => true,
        }
    }

    /// Bytes of a row in the first array, and the number of f32 in arrays of their own.
    fn widths(self) -> (usize, usize) {
        let d = self.d;
        match self.elem {
            KvElem::F32 => (4 * d, 0),
            KvElem::F16 => (2 * d, self.n_sections()),
            KvElem::Q8 => (2 + d, 0),
            KvElem::Q4 => {
                let rest = d % Q4_GROUP;
                let last = if rest > 0 { 4 + rest.div_ceil(2) } else { 0 };
                (20 * (d / Q4_GROUP) + last, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(role: KvRole, d: usize) -> KvRows {
        KvRows {
            elem: KvElem::F16,
            role,
            d,
        }
    }

    #[test]
    fn sections_cover_a_row_once() {
        for d in [1, 64, 128, 129, 256, 576, 1024] {
            let both = KvRole::Both { value_from: 64 };
            for role in [KvRole::Key, KvRole::Value, both] {
                let rows = rows(role, d);
                let mut end = 0;
                for j in 0..rows.n_sections() {
                    assert_eq!(rows.section(j).start, end);
                    end = rows.section(j).end;
                }
                assert_eq!(end, d, "{rows:?}");
            }
        }
        assert_eq!(
            rows(KvRole::Both { value_from: 64 }, 576).section(1),
            64..576
        );
        assert_eq!(rows(KvRole::Key, 576).n_sections(), 5);
        assert_eq!(rows(KvRole::Value, 576).n_sections(), 1);
    }

    #[test]
    fn arrays_fill_the_bytes_of_a_block() {
        for (elem, d) in [(KvElem::F32, 3), (KvElem::F16, 300), (KvElem::Q4, 40)] {
            let rows = KvRows {
                elem,
                ..rows(KvRole::Key, d)
            };
            let mut at = 0;
            for array in rows.arrays(32) {
                assert_eq!(array.at, at);
                at = array.rows(31..32).end;
            }
            assert_eq!(at, 32 * rows.row_bytes());
        }
    }
}
