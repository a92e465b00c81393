//! The quantizers: against llama.cpp bit for bit, against the decoders, and against nonsense.

mod errors;
mod goldens;
mod quality;
mod seeded;

use atta_convert::quantize::{Quantizer, supports};
use atta_formats::TensorType;

/// A quantizer of every type that there is one for.
fn quantizers() -> Vec<(TensorType, Quantizer)> {
    let supported = TensorType::ALL.iter().copied().filter(|&ty| supports(ty));
    supported
        .map(|ty| (ty, Quantizer::new(ty).unwrap()))
        .collect()
}

/// Blocks of whole rows.
fn blocks(ty: TensorType, n_weights: usize) -> Vec<u8> {
    vec![0; ty.row_bytes(n_weights).unwrap()]
}
