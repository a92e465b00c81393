//! Numbers of rows as other machines get them.
//!
//! Frames in memory hold f32; types with fewer bits exist between machines only. A row that a type
//! cannot express makes its frame one of f32, so nothing overflows on the way.
//!
//! ```text
//! f32    4 bytes, little-endian
//! f16    2 bytes, rounded to nearest, ties to even
//! int8   for each 32 numbers: f16 s, 32 signed bytes;  s = f16(max |x| / 127),  x ≈ s·code,
//!        code = x / s rounded to nearest, ties to even, at most 127 in magnitude; 0 where s = 0
//! ```

use atta_formats::f16::{f16_to_f32, f32_to_f16};

use super::Dtype;

/// Numbers that share a scale.
const BLOCK: usize = 32;
/// Bytes of them.
const BLOCK_BYTES: usize = 2 + BLOCK;
/// The largest code in magnitude.
const CODE_MAX: f32 = 127.0;
/// The bits of f16 infinity; those of NaN are larger.
const F16_INFINITE: u16 = 0x7c00;

/// f32 numbers, `data`, as numbers of a type; `None` if it has no numbers for some of them.
pub(super) fn narrowed(data: &[u8], dtype: Dtype) -> Option<Vec<u8>> {
    let numbers = data.as_chunks().0;
    let mut out = Vec::with_capacity(data.len());
    match dtype {
        Dtype::F32 => out.extend_from_slice(data),
        Dtype::F16 => {
            for bytes in numbers {
                out.extend(finite_f16(f32::from_le_bytes(*bytes))?.to_le_bytes());
            }
        }
        Dtype::Int8 => {
            for block in numbers.as_chunks().0 {
                write_block(&block.map(f32::from_le_bytes), &mut out)?;
            }
        }
    }
    Some(out)
}

/// Numbers of a type as f32.
pub(super) fn widened(bytes: &[u8], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => bytes.to_vec(),
        Dtype::F16 => {
            let numbers = bytes.as_chunks().0.iter();
            let widen = |bytes: &[u8; 2]| f16_to_f32(u16::from_le_bytes(*bytes)).to_le_bytes();
            numbers.flat_map(widen).collect()
        }
        Dtype::Int8 => {
            let blocks = bytes.as_chunks::<BLOCK_BYTES>().0.iter();
            blocks.flat_map(read_block).collect()
        }
    }
}

fn finite_f16(x: f32) -> Option<u16> {
    let h = f32_to_f16(x);
    (h & F16_INFINITE != F16_INFINITE).then_some(h)
}

fn write_block(x: &[f32; BLOCK], out: &mut Vec<u8>) -> Option<()> {
    if !x.iter().all(|x| x.is_finite()) {
        return None;
    }
    let max = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    let bits = finite_f16(max / CODE_MAX)?;
    let scale = f16_to_f32(bits);
    out.extend(bits.to_le_bytes());
    out.extend(x.iter().map(|x| match scale {
        0.0 => 0,
        _ => {
            let code = (x / scale).round_ties_even();
            code.clamp(-CODE_MAX, CODE_MAX) as i8 as u8
        }
    }));
    Some(())
}

fn read_block(block: &[u8; BLOCK_BYTES]) -> impl Iterator<Item = u8> {
    let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
    let codes = block[2..].iter();
    codes.flat_map(move |&code| (f32::from(code as i8) * scale).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(x: &[f32]) -> Vec<u8> {
        x.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    fn back(x: &[f32], dtype: Dtype) -> Option<Vec<f32>> {
        let narrow = narrowed(&bytes_of(x), dtype)?;
        let row_bytes = dtype.row_bytes(x.len() as u16).unwrap();
        assert_eq!(narrow.len(), row_bytes);
        let wide = widened(&narrow, dtype);
        let numbers = wide.as_chunks().0.iter();
        Some(numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    #[test]
    fn f16_rounds_to_its_own_numbers() {
        let x = [1.0, -0.1, 65504.0, 1e-9];
        let expected = x.map(|x| f16_to_f32(f32_to_f16(x)));
        assert_eq!(back(&x, Dtype::F16).unwrap(), expected);
    }

    #[test]
    fn int8_is_right_within_half_a_step_of_each_block() {
        let x: Vec<f32> = (0..96)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) * [1e-3, 0.5, 40.0][i / BLOCK])
            .collect();
        let y = back(&x, Dtype::Int8).unwrap();
        for (x, y) in x.chunks(BLOCK).zip(y.chunks(BLOCK)) {
            let max = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
            // The scale is rounded to 11 bits: a code at the end may be cut.
            let step = max / CODE_MAX;
            for (x, y) in x.iter().zip(y) {
                assert!((x - y).abs() <= 0.57 * step, "{x} became {y}");
            }
        }
    }

    #[test]
    fn numbers_that_a_type_lacks_are_found() {
        for dtype in [Dtype::F16, Dtype::Int8] {
            for x in [f32::NAN, f32::INFINITY, f32::MAX] {
                let mut row = [1.0; BLOCK];
                row[7] = x;
                assert_eq!(back(&row, dtype), None, "{dtype:?} of {x}");
            }
        }
        assert_eq!(back(&[0.0; BLOCK], Dtype::Int8).unwrap(), [0.0; BLOCK]);
        assert_eq!(back(&[1e-7; BLOCK], Dtype::Int8).unwrap().len(), BLOCK);
    }
}
