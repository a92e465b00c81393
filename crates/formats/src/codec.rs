//! Decoding whole blocks of any type, by the scalar decoders of [`crate::layout`].

use crate::layout::{
    self, Trellis, float, k_quants, legacy, nonlinear, nvfp4, q1_0, q2_0, qsf, signed,
};
use crate::tensor_type::tensor_types;
use crate::{Error, TensorType};

macro_rules! decode {
    ($($ty:ident = $len:literal, $bytes:literal $(, $decoder:expr)?;)*) => {
        /// Decodes whole blocks of `ty` in `bytes` into `out`, `[n_weights]`; of types whose rows
        /// may end in a shorter block, one row.
        ///
        /// # Errors
        /// [`Error::NoCodec`] if the type cannot be decoded yet, [`Error::DecodeLength`] unless
        /// `bytes` and `out` hold the same whole number of blocks, or the same row.
        pub fn decode(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
            if ty.row_bytes(out.len()) != Some(bytes.len()) {
                return Err(Error::DecodeLength {
                    ty,
                    bytes: bytes.len(),
                    weights: out.len(),
                });
            }
            if let Some(trellis) = Trellis::of(ty) {
                trellis.decode(bytes, out);
                return Ok(());
            }
            match ty {
                $($(TensorType::$ty => blocks::<$bytes, $len>(bytes, out, $decoder),)?)*
                _ => return Err(Error::NoCodec { ty }),
            }
            Ok(())
        }
    };
}
tensor_types!(decode);

/// Decodes rows of `d_row` weights of `ty` in `bytes` into `out`, `[n_rows, d_row]`.
///
/// # Errors
/// Those of [`decode`]; [`Error::DecodeLength`] unless `bytes` and `out` hold the same rows.
pub fn decode_rows(
    ty: TensorType,
    d_row: usize,
    bytes: &[u8],
    out: &mut [f32],
) -> Result<(), Error> {
    if d_row.is_multiple_of(ty.block_len()) {
        return decode(ty, bytes, out);
    }
    let row_bytes = ty.row_bytes(d_row).unwrap_or(usize::MAX);
    let n_rows = bytes.len() / row_bytes;
    if n_rows * row_bytes != bytes.len() || n_rows.checked_mul(d_row) != Some(out.len()) {
        return Err(Error::DecodeLength {
            ty,
            bytes: bytes.len(),
            weights: out.len(),
        });
    }
    let mut rows = bytes.chunks(row_bytes).zip(out.chunks_mut(d_row));
    rows.try_for_each(|(bytes, out)| decode(ty, bytes, out))
}

impl TensorType {
    /// Whether [`decode`] can read this type.
    pub fn has_codec(self) -> bool {
        decode(self, &[], &mut []).is_ok()
    }
}

/// Applies a decoder of blocks of `BYTES` bytes and `LEN` weights to each block in turn; a row may
/// fill only a part of the last one.
fn blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let blocks: &[[u8; BYTES]] = bytes.as_chunks().0;
    let (whole, rest) = out.as_chunks_mut();
    for (block, y) in blocks.iter().zip(&mut *whole) {
        decode(block, y);
    }
    if let Some(last) = blocks.get(whole.len()) {
        let mut y = [0.0; LEN];
        decode(last, &mut y);
        rest.copy_from_slice(&y[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_a_decoder_are_refused_by_name() {
        for &ty in TensorType::ALL.iter().filter(|ty| !ty.has_codec()) {
            let bytes = vec![0; ty.block_bytes()];
            let mut out = vec![0.0; ty.block_len()];
            let error = decode(ty, &bytes, &mut out).unwrap_err();
            assert_eq!(error, Error::NoCodec { ty });
            assert!(error.to_string().contains(ty.name()));
        }
    }

    #[test]
    fn bytes_and_weights_must_be_the_same_whole_blocks() {
        let ty = TensorType::Q4_0;
        for (bytes, weights) in [(17, 32), (18, 31), (36, 32), (0, 32), (19, 33)] {
            let got = decode(ty, &vec![0; bytes], &mut vec![0.0; weights]);
            assert_eq!(got, Err(Error::DecodeLength { ty, bytes, weights }));
        }
        assert_eq!(decode(ty, &[], &mut []), Ok(()));
    }

    #[test]
    fn rows_with_shorter_blocks_are_decoded_one_by_one() {
        let ty = TensorType::T3;
        let bytes: Vec<u8> = (0..3 * 117).map(|i| (i % 117 * 7) as u8 & 0x7b).collect();
        let mut rows = [0.0; 3 * 288];
        decode_rows(ty, 288, &bytes, &mut rows).unwrap();
        let mut row = [0.0; 288];
        decode(ty, &bytes[..117], &mut row).unwrap();
        assert!(rows.chunks(288).all(|each| each == row) && row[287] != 0.0);
        for (d_row, n_bytes, weights) in [(288, 350, 864), (288, 351, 576), (48, 351, 864)] {
            let got = decode_rows(ty, d_row, &bytes[..n_bytes], &mut rows[..weights]);
            let bytes = n_bytes;
            assert_eq!(got, Err(Error::DecodeLength { ty, bytes, weights }));
        }
    }

    #[test]
    fn a_row_may_fill_half_of_its_last_block() {
        let bytes: Vec<u8> = (0..40).map(|i| (i * 37) as u8 & 0x5b).collect();
        let mut whole = [0.0; 128];
        decode(TensorType::QSF2, &bytes, &mut whole).unwrap();
        let mut row = [0.0; 96];
        decode(TensorType::QSF2, &bytes, &mut row).unwrap();
        assert!(row == whole[..96] && row[95] != 0.0);
    }

    #[test]
    fn each_block_is_decoded_into_its_own_weights() {
        let mut bytes = [0; 68];
        // d = 1 with a first code of -1, then d = 2 with a last code of 5.
        bytes[..3].copy_from_slice(&[0, 0x3c, 0xff]);
        bytes[34..36].copy_from_slice(&[0, 0x40]);
        bytes[67] = 5;
        let mut out = [9.0; 64];
        decode(TensorType::Q8_0, &bytes, &mut out).unwrap();
        assert_eq!((out[0], out[1], out[62], out[63]), (-1.0, 0.0, 0.0, 10.0));
    }
}
