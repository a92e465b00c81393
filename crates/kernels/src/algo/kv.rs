//! Rows of the KV cache: encodes one head of one position as each [`KvElem`], and decodes it.
//!
//! It knows nothing of attention, which reads the same bytes (`attention/stored.rs`). Values that
//! an element type cannot represent (infinite, NaN, a scale beyond f16) are stored as the nearest
//! representable value or as an arbitrary one; no row panics.

use super::codes16;
use super::lanes::LANES;
use super::quantize::{ROUND, TINY};
use crate::attention::{KvElem, KvRows, Q4_GROUP};
use crate::format::float::widen_f16;
use crate::isa::{Codes, Floats};
use atta_formats::f16::f32_to_f16;
use std::ops::Range;

/// The largest finite f16.
const F16_MAX: f32 = 65504.0;
/// Bytes of the scale and the minimum of a group of Q4.
pub(super) const Q4_HEAD: usize = 4;
/// Bytes of a whole group of Q4.
pub(super) const Q4_BYTES: usize = Q4_HEAD + Q4_GROUP / 2;

/// Encodes `x`, which is rotated already if the type requires it, at position `i` of the rows of a
/// head in a block.
#[inline(always)]
pub(crate) fn store<I: Floats>(isa: I, x: &[f32], rows: KvRows, i: usize, block: &mut [u8]) {
    if rows.elem == KvElem::F16 {
        return codes16::store(isa, x, rows, i, block);
    }
    let out = &mut block[row(rows, i)];
    match rows.elem {
        KvElem::F32 => {
            for (out, x) in out.as_chunks_mut().0.iter_mut().zip(x) {
                *out = x.to_le_bytes();
            }
        }
        KvElem::F16 => unreachable!("codes have arrays of their own"),
        KvElem::Q8 => store_q8(x, out),
        KvElem::Q4 => store_q4(x, out),
    }
}

/// Decodes position `i` of the rows of a head; the result is still rotated, if the type is.
#[inline(always)]
pub(crate) fn load<I: Codes>(isa: I, rows: KvRows, i: usize, block: &[u8], out: &mut [f32]) {
    match rows.elem {
        KvElem::F16 => codes16::load(rows, i, block, out),
        elem => widen(isa, &block[row(rows, i)], elem, out),
    }
}

/// The bytes of row `i` of a type whose rows are one array.
#[inline(always)]
fn row(rows: KvRows, i: usize) -> Range<usize> {
    let len = rows.row_bytes();
    i * len..(i + 1) * len
}

/// Decodes a row of a type whose rows are one array; the result is still rotated, if the type is.
#[inline(always)]
pub(super) fn widen<I: Codes>(isa: I, bytes: &[u8], elem: KvElem, out: &mut [f32]) {
    match elem {
        KvElem::F32 => widen_floats(isa, bytes, out),
        KvElem::F16 => unreachable!("codes have arrays of their own"),
        KvElem::Q8 => widen_q8(isa, bytes, out),
        KvElem::Q4 => widen_q4(isa, bytes, out),
    }
}

/// Decodes a row of f32.
#[inline(always)]
pub(super) fn widen_floats<I: Floats>(isa: I, bytes: &[u8], out: &mut [f32]) {
    let (out, out_rest) = out.as_chunks_mut();
    let (singles, rest) = bytes.as_chunks().0.as_chunks::<LANES>();
    for (out, x) in out.iter_mut().zip(singles) {
        *out = isa.to_array(isa.singles(x));
    }
    if !rest.is_empty() {
        let wide = isa.to_array(isa.singles(&padded(rest, [0; 4])));
        out_rest.copy_from_slice(&wide[..rest.len()]);
    }
}

/// Pads fewer than sixteen elements with `filler`, so that the end of a row runs through the code
/// of whole vectors.
#[inline(always)]
fn padded<T: Copy>(rest: &[T], filler: T) -> [T; LANES] {
    let mut out = [filler; LANES];
    out[..rest.len()].copy_from_slice(rest);
    out
}

/// Decodes a stored f16.
#[inline(always)]
fn half(x: [u8; 2]) -> f32 {
    widen_f16(u16::from_le_bytes(x))
}

/// The finite f16 nearest to `x`.
#[inline(always)]
fn finite_half(x: f32) -> u16 {
    let x = if x < F16_MAX { x } else { F16_MAX };
    f32_to_f16(if x > -F16_MAX { x } else { -F16_MAX })
}

/// The integer nearest to `x` between `low` and `high`, ties to even; `low` for NaN.
#[inline(always)]
fn code(x: f32, low: f32, high: f32) -> i8 {
    let x = if x > low { x } else { low };
    let x = if x < high { x } else { high };
    (x + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i8
}

/// The reciprocal of a scale; 0 for the scale of a row of zeros.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// The largest magnitude; NaN is ignored.
#[inline(always)]
fn largest_magnitude(x: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for x in vectors {
        for i in 0..LANES {
            lanes[i] = if x[i].abs() > lanes[i] {
                x[i].abs()
            } else {
                lanes[i]
            };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(0.0, |max, x| if x.abs() > max { x.abs() } else { max })
}

/// Quantizes a head of a query to codes of at most 127 in magnitude; returns their scale. A NaN
/// makes the scale NaN, so that scores are NaN as with float keys.
#[inline(always)]
pub(super) fn quantize_query(x: &[f32], codes: &mut [i8]) -> f32 {
    // Magnitudes compare as their bits do, and the bits of NaN are the largest.
    let max = x
        .iter()
        .fold(0, |max, x| x.abs().to_bits().cast_signed().max(max));
    let max = f32::from_bits(max.cast_unsigned());
    let scale = if max < TINY { 0.0 } else { max / 127.0 };
    let inverse = inverse(scale);
    for (out, x) in codes.iter_mut().zip(x) {
        *out = code(x * inverse, -127.0, 127.0);
    }
    scale
}

/// The f16 scale of a row of Q8. A subnormal f16 has few bits, and rounding it down could clip the
/// largest element by more than half a step, so it is rounded up then.
#[inline(always)]
fn q8_scale(max: f32) -> u16 {
    let bits = finite_half(max / 127.0);
    let cuts = widen_f16(bits) * 127.5 < max && (1..f32_to_f16(F16_MAX)).contains(&bits);
    bits + u16::from(cuts)
}

#[inline(always)]
fn store_q8(x: &[f32], out: &mut [u8]) {
    let bits = q8_scale(largest_magnitude(x));
    let (head, codes) = out.split_at_mut(2);
    head.copy_from_slice(&bits.to_le_bytes());
    let inverse = inverse(widen_f16(bits));
    for (out, x) in codes.iter_mut().zip(x) {
        *out = code(x * inverse, -127.0, 127.0) as u8;
    }
}

/// `scale·code`.
#[inline(always)]
fn widen_q8<I: Codes>(isa: I, bytes: &[u8], out: &mut [f32]) {
    let (head, codes) = bytes.split_first_chunk().expect("a row has a scale");
    let scale = half(*head);
    let (codes, rest) = codes.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut();
    for (out, codes) in out.iter_mut().zip(codes) {
        *out = isa.to_array(isa.product(isa.splat_all(scale), isa.signed(codes)));
    }
    if !rest.is_empty() {
        let wide = isa.to_array(isa.product(isa.splat_all(scale), isa.signed(&padded(rest, 0))));
        out_rest.copy_from_slice(&wide[..rest.len()]);
    }
}

/// The smallest and the largest element; zeros if all are NaN.
#[inline(always)]
fn bounds(x: &[f32]) -> [f32; 2] {
    let mut min = f32::INFINITY;
    let mut max = f32::NEG_INFINITY;
    for &x in x {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
    }
    if min <= max { [min, max] } else { [0.0; 2] }
}

#[inline(always)]
fn store_q4(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(Q4_GROUP).zip(out.chunks_mut(Q4_BYTES)) {
        let [min, max] = bounds(x);
        let min = finite_half(min);
        let scale = finite_half((max - widen_f16(min)) / 15.0);
        let (head, nibbles) = out.split_at_mut(Q4_HEAD);
        head[..2].copy_from_slice(&scale.to_le_bytes());
        head[2..].copy_from_slice(&min.to_le_bytes());
        let min = widen_f16(min);
        let inverse = inverse(widen_f16(scale));
        let (low, high) = x.split_at(nibbles.len());
        for (out, x) in nibbles.iter_mut().zip(low) {
            *out = code((x - min) * inverse, 0.0, 15.0) as u8;
        }
        for (out, x) in nibbles.iter_mut().zip(high) {
            *out |= (code((x - min) * inverse, 0.0, 15.0) as u8) << 4;
        }
    }
}

/// Scale and minimum of a group.
#[inline(always)]
pub(super) fn q4_head(group: &[u8]) -> [f32; 2] {
    let (head, _) = group.as_chunks::<2>();
    [half(head[0]), half(head[1])]
}

/// The nibbles of a short group, padded to those of a whole one.
#[inline(always)]
pub(super) fn short_nibbles(group: &[u8]) -> [u8; LANES] {
    padded(&group[Q4_HEAD..], 0)
}

/// `min + scale·code` of low nibbles, then of high ones.
#[inline(always)]
fn widen_nibbles<I: Codes>(
    isa: I,
    [scale, min]: [f32; 2],
    nibbles: &[u8; LANES],
) -> [[f32; LANES]; 2] {
    let scale = isa.splat_all(scale);
    let min = isa.splat_all(min);
    let low = isa.sum_f(min, isa.product(scale, isa.low_nibbles(nibbles)));
    let high = isa.sum_f(min, isa.product(scale, isa.high_nibbles(nibbles)));
    [isa.to_array(low), isa.to_array(high)]
}

#[inline(always)]
fn widen_q4<I: Codes>(isa: I, bytes: &[u8], out: &mut [f32]) {
    // Groups are counted by elements: 31 of them take as many bytes as 32.
    let (out, out_rest) = out.as_chunks_mut::<Q4_GROUP>();
    let (groups, rest) = bytes.split_at(out.len() * Q4_BYTES);
    for (group, out) in groups.as_chunks::<Q4_BYTES>().0.iter().zip(out) {
        let nibbles = group.last_chunk().expect("a group ends with its nibbles");
        let wide = widen_nibbles(isa, q4_head(group), nibbles);
        out.copy_from_slice(wide.as_flattened());
    }
    if !out_rest.is_empty() {
        let [low, high] = widen_nibbles(isa, q4_head(rest), &short_nibbles(rest));
        let (out_low, out_high) = out_rest.split_at_mut(rest.len() - Q4_HEAD);
        out_low.copy_from_slice(&low[..out_low.len()]);
        out_high.copy_from_slice(&high[..out_high.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::hadamard::rotate;
    use crate::isa::scalar::Scalar;
    use crate::testing::{Random, bits};
    use crate::{Kernels, KvRole};

    const WIDTHS: [usize; 14] = [1, 2, 7, 16, 20, 31, 32, 33, 48, 64, 80, 128, 129, 1024];
    const ELEMS: [KvElem; 4] = [KvElem::F32, KvElem::F16, KvElem::Q8, KvElem::Q4];

    fn values(elem: KvElem, d: usize) -> KvRows {
        KvRows {
            elem,
            role: KvRole::Value,
            d,
        }
    }

    fn stored(x: &[f32], elem: KvElem) -> Vec<u8> {
        let rows = values(elem, x.len());
        let mut bytes = vec![0xff; rows.row_bytes()];
        Kernels::named("scalar")
            .unwrap()
            .store_kv(x, rows, 0, &mut bytes);
        bytes
    }

    fn loaded(bytes: &[u8], elem: KvElem, d: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; d];
        Kernels::named("scalar")
            .unwrap()
            .load_kv(values(elem, d), 0, bytes, &mut out);
        out
    }

    /// The rotated elements of a row before and after it was stored, and its bytes.
    fn rotated(x: &[f32], elem: KvElem) -> (Vec<f32>, Vec<f32>, Vec<u8>) {
        let bytes = stored(x, elem);
        let mut before = x.to_vec();
        let mut after = vec![f32::NAN; x.len()];
        rotate(Scalar, &mut before);
        load(Scalar, values(elem, x.len()), 0, &bytes, &mut after);
        (before, after, bytes)
    }

    /// Rows of six sizes, from subnormal f16 scales to elements near the largest f16.
    fn rows(d: usize) -> impl Iterator<Item = Vec<f32>> {
        let sizes = [1e-5, 3e-5, 1e-3, 1.0, 100.0, 2e3];
        sizes.into_iter().map(move |size| {
            Random(d as u64)
                .floats(d)
                .iter()
                .map(|x| x * size)
                .collect()
        })
    }

    #[test]
    fn q8_is_wrong_by_half_a_step_at_most() {
        for (d, x) in WIDTHS
            .into_iter()
            .flat_map(|d| rows(d).map(move |x| (d, x)))
        {
            let (before, after, bytes) = rotated(&x, KvElem::Q8);
            let step = half([bytes[0], bytes[1]]);
            for (before, after) in before.iter().zip(after) {
                // Below, the scale is 0.
                let rounding = 127.0 / 2f32.powi(25);
                assert!(
                    (before - after).abs() <= step * 0.50001 + rounding,
                    "{d}: {before} {after} {step}"
                );
            }
        }
    }

    #[test]
    fn q4_is_wrong_by_half_a_step_and_the_rounding_of_its_minimum_and_scale() {
        for (d, x) in WIDTHS
            .into_iter()
            .flat_map(|d| rows(d).map(move |x| (d, x)))
        {
            let (before, after, bytes) = rotated(&x, KvElem::Q4);
            for (g, (before, after)) in before.chunks(32).zip(after.chunks(32)).enumerate() {
                let [step, min] = q4_head(&bytes[20 * g..]);
                let rounding = (min.abs() + 15.0 * step) / 1024.0 + 1e-6;
                for (before, after) in before.iter().zip(after) {
                    assert!(
                        (before - after).abs() <= step * 0.5 + rounding,
                        "{d}: {before} {after} {step} {min}"
                    );
                }
            }
        }
    }

    #[test]
    fn loaded_rows_are_rotated_back() {
        for (elem, d) in ELEMS.into_iter().flat_map(|elem| WIDTHS.map(|d| (elem, d))) {
            let x = Random(7).floats(d);
            let (_, mut want, bytes) = rotated(&x, elem);
            if values(elem, d).is_rotated() {
                rotate(Scalar, &mut want);
            }
            let got = loaded(&bytes, elem, d);
            assert_eq!(bits(&got), bits(&want));
            assert!(
                got.iter().zip(&x).all(|(got, x)| (got - x).abs() < 0.3),
                "{elem:?} {d}"
            );
        }
    }

    #[test]
    fn every_isa_stores_and_loads_the_same() {
        for (elem, d) in ELEMS.into_iter().flat_map(|elem| WIDTHS.map(|d| (elem, d))) {
            let x = Random(9).floats(d);
            let want = stored(&x, elem);
            for k in Kernels::available()
                .into_iter()
                .map(|name| Kernels::named(name).unwrap())
            {
                let mut bytes = vec![0xff; want.len()];
                let mut out = vec![f32::NAN; d];
                k.store_kv(&x, values(elem, d), 0, &mut bytes);
                k.load_kv(values(elem, d), 0, &bytes, &mut out);
                assert_eq!(bytes, want, "{} {elem:?} {d}", k.isa());
                assert_eq!(
                    bits(&out),
                    bits(&loaded(&want, elem, d)),
                    "{} {elem:?} {d}",
                    k.isa()
                );
            }
        }
    }

    #[test]
    fn rows_of_zeros_stay_zeros() {
        for (elem, d) in [KvElem::Q8, KvElem::Q4]
            .into_iter()
            .flat_map(|elem| WIDTHS.map(|d| (elem, d)))
        {
            for x in [0.0, -0.0, 1e-30] {
                assert!(
                    loaded(&stored(&vec![x; d], elem), elem, d)
                        .iter()
                        .all(|x| x.abs() < 1e-20),
                    "{elem:?} {d}"
                );
            }
        }
    }

    #[test]
    fn codes_keep_their_bounds_whatever_the_row() {
        let strange = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            1e-45,
            -1e30,
            7e6,
            0.0,
        ];
        for (d, x) in WIDTHS.into_iter().flat_map(|d| strange.map(|x| (d, x))) {
            for fill in [x, 1.0] {
                let mut row = vec![fill; d];
                row[d / 2] = x;
                let bytes = stored(&row, KvElem::Q8);
                assert!(bytes[2..].iter().all(|&code| code as i8 != -128));
                assert!(
                    loaded(&bytes, KvElem::Q8, d).iter().all(|x| x.is_finite()),
                    "{x} {d}"
                );
                assert!(
                    loaded(&stored(&row, KvElem::Q4), KvElem::Q4, d)
                        .iter()
                        .all(|x| x.is_finite()),
                    "{x} {d}"
                );
            }
        }
    }
}
