//! Scalar decoders: the definition of what every quantized block means, bit for bit the f32 values
//! of ggml.
//!
//! Slow and plain on purpose. Each decoder keeps ggml's order of f32 operations (multiply, then
//! subtract, never fused), because kernels and quantizers are tested against them. Layouts come
//! from [`crate::layout`].

mod float;
mod nonlinear;
mod q2_k;
mod q3_k;
mod q4_1;
mod q4_k;
mod q6_k;
mod q8_0;
mod signed;

use crate::{Error, TensorType, layout};
use signed::signed;

/// Decodes whole blocks of `ty` in `bytes` into `out`, `[n_weights]`.
///
/// # Errors
/// [`Error::NoCodec`] if the type cannot be decoded yet, [`Error::DecodeLength`] unless `bytes` and
/// `out` hold the same whole number of blocks.
pub fn decode(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    if !ty.has_codec() {
        return Err(Error::NoCodec { ty });
    }
    if ty.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(Error::DecodeLength {
            ty,
            bytes: bytes.len(),
            weights: out.len(),
        });
    }
    match ty {
        TensorType::F32 => blocks(bytes, out, float::f32),
        TensorType::F16 => blocks(bytes, out, float::f16),
        TensorType::BF16 => blocks(bytes, out, float::bf16),
        TensorType::Q4_0 => blocks(bytes, out, q8_0::q4_0),
        TensorType::Q4_1 => blocks(bytes, out, q4_1::q4_1),
        TensorType::Q5_0 => blocks(bytes, out, q8_0::q5_0),
        TensorType::Q5_1 => blocks(bytes, out, q4_1::q5_1),
        TensorType::Q8_0 => blocks(bytes, out, q8_0::q8_0),
        TensorType::Q2_K => blocks(bytes, out, q2_k::q2_k),
        TensorType::Q3_K => blocks(bytes, out, q3_k::q3_k),
        TensorType::Q4_K => blocks(bytes, out, q4_k::q4_k),
        TensorType::Q5_K => blocks(bytes, out, q4_k::q5_k),
        TensorType::Q6_K => blocks(bytes, out, q6_k::q6_k),
        TensorType::IQ4_NL => blocks(bytes, out, nonlinear::iq4_nl),
        TensorType::MXFP4 => blocks(bytes, out, nonlinear::mxfp4),
        TensorType::IQ1_S => blocks(bytes, out, |b, y| signed(layout::IQ1S(b), y)),
        TensorType::IQ1_M => blocks(bytes, out, |b, y| signed(layout::IQ1M(b), y)),
        TensorType::IQ2_XXS => blocks(bytes, out, |b, y| signed(layout::IQ2XXS(b), y)),
        TensorType::IQ2_XS => blocks(bytes, out, |b, y| signed(layout::IQ2XS(b), y)),
        TensorType::IQ2_S => blocks(bytes, out, |b, y| signed(layout::IQ2S(b), y)),
        TensorType::IQ3_XXS => blocks(bytes, out, |b, y| signed(layout::IQ3XXS(b), y)),
        TensorType::IQ3_S => blocks(bytes, out, |b, y| signed(layout::IQ3S(b), y)),
        TensorType::IQ4_XS => blocks(bytes, out, |b, y| signed(layout::IQ4XS(b), y)),
        TensorType::TQ1_0 => blocks(bytes, out, |b, y| signed(layout::TQ1_0(b), y)),
        TensorType::TQ2_0 => blocks(bytes, out, |b, y| signed(layout::TQ2_0(b), y)),
        _ => return Err(Error::NoCodec { ty }),
    }
    Ok(())
}

/// Applies a decoder of blocks of `BYTES` bytes and `LEN` weights to each block in turn.
fn blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, y) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode(block, y);
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
