//! Stored rows, as attention reads them: sixteen elements at a time, with the scales of a chunk
//! beside them.
//!
//! It knows the layouts of [`KvElem`] and neither queries nor weights.

use super::super::kv::{Q4_BYTES, Q4_HEAD, short_nibbles};
use super::super::lanes::LANES;
use super::{CHUNK, vectors};
use crate::isa::{Codes, Floats, KeyCodes};
use crate::{KvElem, Q4_GROUP};
use std::ops::Range;

/// The stored rows of a chunk; those that nobody sees are empty.
pub(super) type Stored<'a> = [&'a [u8]; CHUNK];

/// Where values come from: vector `v` of the row of position `p` of the chunk.
pub(super) trait Source<I: Codes> {
    fn vector(&self, isa: I, p: usize, v: usize) -> I::F;
}

/// Rows that were widened before, `width` vectors each.
pub(super) struct Widened<'a> {
    pub(super) width: usize,
    pub(super) rows: &'a [[f32; LANES]],
}

/// Rows of f16.
pub(super) struct Halves<'a>(pub(super) &'a Stored<'a>);
/// Rows of Q8, and their scales as [`read_scales`] gives them.
pub(super) struct Q8<'a>(pub(super) &'a Stored<'a>, pub(super) &'a [[f32; CHUNK]]);
/// Rows of Q4, and scales and minima of their groups.
pub(super) struct Q4<'a>(pub(super) &'a Stored<'a>, pub(super) &'a [[f32; CHUNK]]);

impl<I: Codes> Source<I> for Widened<'_> {
    #[inline(always)]
    fn vector(&self, isa: I, p: usize, v: usize) -> I::F {
        isa.floats(&self.rows[p * self.width + v])
    }
}

impl<I: Codes> Source<I> for Halves<'_> {
    #[inline(always)]
    fn vector(&self, isa: I, p: usize, v: usize) -> I::F {
        isa.halves(&self.0[p].as_chunks().0.as_chunks().0[v])
    }
}

impl<I: Codes> Source<I> for Q8<'_> {
    #[inline(always)]
    fn vector(&self, isa: I, p: usize, v: usize) -> I::F {
        let codes = self.0[p][2 + v * LANES..]
            .first_chunk()
            .expect("whole vectors");
        isa.product(isa.splat_all(self.1[0][p]), isa.signed(codes))
    }
}

impl<I: Codes> Source<I> for Q4<'_> {
    #[inline(always)]
    fn vector(&self, isa: I, p: usize, v: usize) -> I::F {
        let nibbles = self.0[p][v / 2 * Q4_BYTES + Q4_HEAD..]
            .first_chunk()
            .expect("whole groups");
        let codes = if v.is_multiple_of(2) {
            isa.low_nibbles(nibbles)
        } else {
            isa.high_nibbles(nibbles)
        };
        let (scale, min) = (self.1[v / 2 * 2][p], self.1[v / 2 * 2 + 1][p]);
        isa.sum_f(isa.splat_all(min), isa.product(isa.splat_all(scale), codes))
    }
}

/// Scales of the rows that are seen: of Q8 one of each row, of Q4 scale and minimum of each group
/// in turn.
#[inline(always)]
pub(super) fn read_scales<I: Floats>(
    isa: I,
    rows: &Stored<'_>,
    seen: &Range<usize>,
    (elem, d): (KvElem, usize),
    scales: &mut [[f32; CHUNK]],
) {
    let n = match elem {
        KvElem::F32 | KvElem::F16 => 0,
        KvElem::Q8 => 1,
        KvElem::Q4 => 2 * d.div_ceil(Q4_GROUP),
    };
    for (j, scales) in scales[..n].iter_mut().enumerate() {
        let at = j / 2 * Q4_BYTES + j % 2 * 2;
        let sixteens = scales
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(rows.as_chunks::<LANES>().0);
        for (scales, rows) in sixteens.take(vectors(seen).end).skip(vectors(seen).start) {
            *scales = isa.to_array(isa.halves(&halves_at(rows, at)));
        }
    }
}

/// The two bytes from `at` on of sixteen rows; zeros of an empty one.
#[inline(always)]
fn halves_at(rows: &[&[u8]; LANES], at: usize) -> [[u8; 2]; LANES] {
    let mut halves = [[0; 2]; LANES];
    for (half, row) in halves.iter_mut().zip(rows) {
        if let Some(bytes) = row.get(at..).and_then(|row| row.first_chunk()) {
            *half = *bytes;
        }
    }
    halves
}

/// The codes of sixteen keys of width `d`, arranged for products; of those that nobody sees,
/// anything.
#[inline(always)]
pub(super) fn take_codes<I: Codes>(
    isa: I,
    rows: &[&[u8]; LANES],
    (elem, d): (KvElem, usize),
    keys: &mut [KeyCodes],
) {
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
        match elem {
            KvElem::Q4 => take_q4(isa, row, d, i, keys),
            _ => take_q8(row, i, keys),
        }
    }
    for keys in &mut keys[..d.div_ceil(LANES)] {
        *keys = isa.arranged(keys);
    }
}

/// What lies behind the end of a row is multiplied by 0.
#[inline(always)]
fn take_q8(row: &[u8], i: usize, keys: &mut [KeyCodes]) {
    let (codes, rest) = row[2..].as_chunks::<LANES>();
    for (keys, codes) in keys.iter_mut().zip(codes) {
        keys[i] = *codes;
    }
    if !rest.is_empty() {
        keys[codes.len()][i][..rest.len()].copy_from_slice(rest);
    }
}

#[inline(always)]
fn take_q4<I: Codes>(isa: I, row: &[u8], d: usize, i: usize, keys: &mut [KeyCodes]) {
    // A group of 31 is one of 32, the last of which is multiplied by 0.
    let (groups, rest) = row.as_chunks::<Q4_BYTES>();
    let mut both = [0; Q4_GROUP];
    for (keys, group) in keys.as_chunks_mut::<2>().0.iter_mut().zip(groups) {
        isa.store(
            isa.nibbles(group.last_chunk().expect("a group ends with its nibbles")),
            &mut both,
        );
        (keys[0][i], keys[1][i]) = halves_of(&both);
    }
    if !rest.is_empty() {
        isa.store(isa.nibbles(&short_nibbles(rest)), &mut both);
        // Its high nibbles follow its low ones at once.
        let n_low = rest.len() - Q4_HEAD;
        both.copy_within(LANES..LANES + d % Q4_GROUP - n_low, n_low);
        (keys[2 * groups.len()][i], keys[2 * groups.len() + 1][i]) = halves_of(&both);
    }
}

#[inline(always)]
fn halves_of(both: &[u8; Q4_GROUP]) -> ([u8; LANES], [u8; LANES]) {
    let [low, high] = both.as_chunks().0 else {
        unreachable!("32 are twice 16")
    };
    (*low, *high)
}
