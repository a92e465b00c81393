//! Reads stored rows for attention: sixteen elements at a time, and the scales of a whole chunk at
//! once.
//!
//! It knows the layouts of [`KvElem`] and neither queries nor weights.

use super::super::kv::{Q4_BYTES, Q4_HEAD, short_nibbles};
use super::super::lanes::LANES;
use super::{CHUNK, vectors};
use crate::isa::{Codes, Floats, KeyCodes};
use crate::{KvElem, Q4_GROUP};
use std::ops::Range;

/// The stored rows of a chunk; those that no query row sees are empty.
pub(super) type Stored<'a> = [&'a [u8]; CHUNK];

/// Reads the scales of visible rows of width `d`: one per row for Q8, scale and minimum of each
/// group in turn for Q4.
#[inline(always)]
pub(super) fn read_scales<I: Floats>(
    isa: I,
    rows: &Stored<'_>,
    visible: &Range<usize>,
    elem: KvElem,
    d: usize,
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
        let visible = vectors(visible);
        for (scales, rows) in sixteens.take(visible.end).skip(visible.start) {
            *scales = isa.to_array(isa.halves(&halves_at(rows, at)));
        }
    }
}

/// The two bytes from `at` on of sixteen rows; zeros of an empty one.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn halves_at(rows: &[&[u8]; LANES], at: usize) -> [[u8; 2]; LANES] {
    let mut halves = [[0; 2]; LANES];
    for (half, row) in halves.iter_mut().zip(rows) {
        if let Some(bytes) = row.get(at..).and_then(|row| row.first_chunk()) {
            *half = *bytes;
        }
    }
    halves
}

/// Arranges the codes of sixteen keys of width `d` for products. Codes of keys that no query row
/// sees are left as they were.
#[inline(always)]
pub(super) fn take_codes<I: Codes>(
    isa: I,
    rows: &[&[u8]; LANES],
    elem: KvElem,
    d: usize,
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

/// Elements behind the end of a row keep old codes; the query is 0 there.
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
    // A group of 31 elements is read as one of 32; the query is 0 at the last.
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
        // Its high nibbles follow its low ones directly.
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
