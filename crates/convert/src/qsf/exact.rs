//! QSF's blocks as those of ggml that hold the same weights, for programs that know only these.
//!
//! Codes with a minimum become Q4_1. Those without one become Q4_0, whose code 8 is 0: ternary
//! weights as 7 to 9, and two bits around 0 as 5, 7, 9 and 11 with half the scale.

use atta_formats::{
    TensorType, decode_rows,
    f16::{f16_to_f32, f32_to_f16},
    layout::{QSF2, QSF2S, QSF3, QSF4, QSFT},
};

use crate::{Checkpoint, Error, RowSource, Tensor, TypeSelection, quantize::pack::nibbles};

/// Makes every tensor of a type of QSF one of ggml's, with the same weights, and keeps the plan
/// from giving it another type.
///
/// # Errors
/// Rows that are no whole blocks of the new type.
pub(super) fn to_ggml(checkpoint: &mut Checkpoint, types: &mut TypeSelection) -> Result<(), Error> {
    for tensor in &mut checkpoint.tensors {
        let Some(to) = exact_type(tensor.ty) else {
            continue;
        };
        types.overrides.push((super::only(&tensor.name), to));
        let name = tensor.name.clone();
        recode(tensor, to).map_err(|error| error.of(&name))?;
    }
    Ok(())
}

/// The type of ggml that holds the weights of a type of QSF.
fn exact_type(ty: TensorType) -> Option<TensorType> {
    match ty {
        TensorType::QSF2 | TensorType::QSF3 | TensorType::QSF4 => Some(TensorType::Q4_1),
        TensorType::QSF2S | TensorType::QSFT => Some(TensorType::Q4_0),
        _ => None,
    }
}

fn recode(tensor: &mut Tensor, to: TensorType) -> Result<(), Error> {
    let d_row = tensor.d_row() as usize;
    let bytes = |ty: TensorType| {
        ty.row_bytes(d_row).ok_or_else(|| Error::Shape {
            dims: tensor.dims.clone(),
            ty,
        })
    };
    let row_bytes = [bytes(tensor.ty)?, bytes(to)?];
    let old = super::take_rows(tensor);
    tensor.rows = Box::new(RecodedRows {
        rows: old,
        types: [tensor.ty, to],
        d_row,
        row_bytes,
    });
    tensor.ty = to;
    Ok(())
}

/// Rows in another type that holds the same weights.
struct RecodedRows {
    rows: Box<dyn RowSource>,
    /// The type in the file, and the new one.
    types: [TensorType; 2],
    d_row: usize,
    /// Of both types.
    row_bytes: [usize; 2],
}

impl RowSource for RecodedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        self.rows.read(first, out)
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        let [ty, to] = self.types;
        let mut old = vec![0; self.row_bytes[0]];
        for (row, out) in (first..).zip(out.chunks_exact_mut(self.row_bytes[1])) {
            if !super::copy_rows(&*self.rows, row, self.row_bytes[0], &mut old)? {
                return Ok(false);
            }
            let blocks = old.chunks_exact(ty.block_bytes());
            for (block, out) in blocks.zip(out.chunks_mut(2 * to.block_bytes())) {
                let groups = out.chunks_exact_mut(to.block_bytes()).enumerate();
                groups.for_each(|(g, out)| recode_group(ty, block, g, out));
            }
            self.check(&old, out)?;
        }
        Ok(true)
    }
}

impl RecodedRows {
    /// Refuses scales that cannot be halved: odd subnormal ones.
    fn check(&self, old: &[u8], new: &[u8]) -> Result<(), Error> {
        if self.types[0] != TensorType::QSF2S {
            return Ok(());
        }
        let mut weights = [vec![0.0; self.d_row], vec![0.0; self.d_row]];
        decode_rows(self.types[0], self.d_row, old, &mut weights[0])?;
        decode_rows(self.types[1], self.d_row, new, &mut weights[1])?;
        match weights[0] == weights[1] {
            true => Ok(()),
            false => Err(Error::Qsf("a scale is too small to be halved".to_owned())),
        }
    }
}

/// Group `g` of 32 weights of a block.
fn recode_group(ty: TensorType, block: &[u8], g: usize, out: &mut [u8]) {
    let codes = group_codes(ty, block, g);
    let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
    match ty {
        TensorType::QSF2S => {
            out[..2].copy_from_slice(&f32_to_f16(0.5 * scale).to_le_bytes());
            out[2..].copy_from_slice(&nibbles(&codes.map(|q| 2 * q + 5)));
        }
        TensorType::QSFT => {
            out[..2].copy_from_slice(&block[..2]);
            out[2..].copy_from_slice(&nibbles(&codes.map(|q| q + 7)));
        }
        _ => {
            out[..4].copy_from_slice(&block[..4]);
            out[4..].copy_from_slice(&nibbles(&codes));
        }
    }
}

/// The codes of group `g`; of ternary weights those plus 1.
fn group_codes(ty: TensorType, block: &[u8], g: usize) -> [u8; 32] {
    let bytes = |words: [u64; 4]| -> [u8; 32] {
        let words = words.map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    };
    let bit = |bits: &[u8; 4], i: usize| bits[i / 8] >> (i % 8) & 1;
    match ty {
        TensorType::QSF2S => bytes(QSF2S(of(block)).codes(g)),
        TensorType::QSF2 => bytes(QSF2(of(block)).codes(g)),
        TensorType::QSF4 => bytes(QSF4(of(block)).codes(g)),
        TensorType::QSF3 => {
            let block = QSF3(of(block));
            let low = bytes(block.low_codes(g));
            std::array::from_fn(|i| low[i] | bit(block.high_bits(g), i) << 2)
        }
        _ => {
            let [positive, zero] = QSFT(of(block)).positive_and_zero(g);
            std::array::from_fn(|i| 2 * bit(&positive, i) + bit(&zero, i))
        }
    }
}

/// The bytes of a block, which is as long as its type says.
fn of<const N: usize>(block: &[u8]) -> &[u8; N] {
    block.try_into().expect("a block of its type")
}
