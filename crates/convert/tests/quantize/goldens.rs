//! Blocks equal those of llama.cpp for the same weights (`tests/oracles/quantize_golden.py`).

use atta_convert::quantize::{Quantizer, needs_importance, quantize};
use atta_formats::TensorType;

use crate::{
    blocks, quantizers,
    seeded::{D_ROW, importance, weights},
};

/// Row length for types with blocks of 32: 7 blocks, which is no multiple of four.
const D_SHORT: usize = 224;
/// Number of rows in the goldens of types with a codebook.
const N_CODEBOOK_ROWS: usize = 7;

fn golden(name: &str) -> Option<Vec<u8>> {
    std::fs::read(format!(
        "{}/../../tests/golden/quantize/{name}.bin",
        env!("CARGO_MANIFEST_DIR")
    ))
    .ok()
}

fn has_codebook(ty: TensorType) -> bool {
    ty.name().starts_with("IQ2") || ty.name().starts_with("IQ3")
}

fn quantized(ty: TensorType, quantizer: &Quantizer, importance: Option<&[f32]>) -> Vec<u8> {
    let mut x = weights();
    if has_codebook(ty) {
        x.truncate(N_CODEBOOK_ROWS * D_ROW);
    }
    let d_row = if ty.block_len() == 256 {
        D_ROW
    } else {
        D_SHORT
    };
    let mut out = blocks(ty, x.len());
    quantizer
        .rows(
            &x,
            d_row,
            importance.map(|importance| &importance[..d_row]),
            &mut out,
        )
        .unwrap();
    out
}

/// The first block that differs from the golden.
fn difference(ty: TensorType, got: &[u8], want: &[u8]) -> Option<usize> {
    assert_eq!(got.len(), want.len(), "{ty}");
    got.chunks(ty.block_bytes())
        .zip(want.chunks(ty.block_bytes()))
        .position(|(got, want)| got != want)
}

fn with_blocks() -> impl Iterator<Item = (TensorType, Quantizer)> {
    quantizers()
        .into_iter()
        .filter(|(ty, _)| ty.block_len() > 1 && !ty.is_own())
}

#[test]
fn every_block_is_llama_cpps_without_importance() {
    let mut n_types = 0;
    for (ty, quantizer) in with_blocks().filter(|&(ty, _)| !needs_importance(ty)) {
        let want = golden(ty.name()).expect("every type has a golden");
        assert_eq!(
            difference(ty, &quantized(ty, &quantizer, None), &want),
            None,
            "{ty}"
        );
        n_types += 1;
    }
    assert_eq!(n_types, 18);
}

#[test]
fn every_block_is_llama_cpps_with_importance() {
    let importance = importance();
    let mut n_used = 0;
    for (ty, quantizer) in with_blocks() {
        let got = quantized(ty, &quantizer, Some(&importance));
        let want = golden(&format!("{ty}.importance"));
        n_used += usize::from(want.is_some());
        assert_eq!(
            difference(
                ty,
                &got,
                &want.unwrap_or_else(|| golden(ty.name()).unwrap())
            ),
            None,
            "{ty}"
        );
    }
    assert_eq!(n_used, 16, "types that use importance");
}

#[test]
fn floats_are_rounded_and_nothing_else() {
    let x = [1.0, -0.1, 65504.0, 1e-8, 3.0e38];
    let mut out = [0; 20];
    quantize(TensorType::F32, &x, 5, None, &mut out).unwrap();
    assert_eq!(
        out.as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect::<Vec<_>>(),
        x
    );
    for (ty, round) in [
        (
            TensorType::F16,
            atta_formats::f16::f32_to_f16 as fn(f32) -> u16,
        ),
        (TensorType::BF16, atta_formats::f16::f32_to_bf16),
    ] {
        quantize(ty, &x, 5, None, &mut out[..10]).unwrap();
        assert_eq!(
            out[..10]
                .as_chunks()
                .0
                .iter()
                .map(|&b| u16::from_le_bytes(b))
                .collect::<Vec<_>>(),
            x.map(round)
        );
    }
}
