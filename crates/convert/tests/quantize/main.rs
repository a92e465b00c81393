//! Quantizers: bit-exact against llama.cpp, error bounds against the decoders, and invalid inputs.

mod errors;
mod goldens;
mod quality;
mod seeded;
mod trellis;

use atta_convert::quantize::{Quantizer, supports};
use atta_formats::TensorType;

/// A quantizer of every supported type.
fn quantizers() -> Vec<(TensorType, Quantizer)> {
    let supported = TensorType::ALL.iter().copied().filter(|&ty| supports(ty));
    supported
        .map(|ty| (ty, Quantizer::new(ty).unwrap()))
        .collect()
}

/// A buffer for the blocks of whole rows.
fn blocks(ty: TensorType, n_weights: usize) -> Vec<u8> {
    vec![0; ty.row_bytes(n_weights).unwrap()]
}
