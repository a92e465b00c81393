//! Errors of quantizers, and inputs that must not panic.

use atta_convert::{
    Error,
    quantize::{needs_importance, quantize, supports},
};
use atta_formats::TensorType;

use crate::{blocks, quantizers};

const ONES: [f32; 256] = [1.0; 256];

#[test]
fn types_without_a_quantizer_are_refused_by_name() {
    assert_eq!(quantizers().len(), 31);
    for &ty in TensorType::ALL.iter().filter(|&&ty| !supports(ty)) {
        let x = vec![1.0; ty.block_len()];
        let error = quantize(ty, &x, x.len(), None, &mut vec![0; ty.block_bytes()]).unwrap_err();
        assert!(matches!(
            error,
            Error::NoQuantizer {
                needs_importance: false,
                ..
            }
        ));
        assert!(error.to_string().contains(ty.name()), "{error}");
    }
}

#[test]
fn iq2_types_require_importance() {
    let mut n_refused = 0;
    for (ty, quantizer) in quantizers() {
        let result = quantizer.rows(&ONES, 256, None, &mut blocks(ty, 256));
        assert_eq!(
            needs_importance(ty),
            matches!(
                result,
                Err(Error::NoQuantizer {
                    needs_importance: true,
                    ..
                })
            )
        );
        n_refused += usize::from(result.is_err());
    }
    assert_eq!(n_refused, 2);
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    for (ty, quantizer) in quantizers() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 512];
            x[256 + 77] = bad;
            match quantizer.rows(&x, 256, Some(&ONES), &mut blocks(ty, 512)) {
                Err(Error::NotFinite { at: 77, value }) => {
                    assert_eq!(value.to_bits(), bad.to_bits())
                }
                other => panic!("{ty}: {other:?}"),
            }
        }
    }
}

#[test]
fn lengths_have_to_agree() {
    let x = [1.0; 512];
    let ty = TensorType::Q4_K;
    let mut out = blocks(ty, 512);
    let mut refused = |x: &[f32], d_row, importance: Option<&[f32]>, n_bytes| {
        assert!(matches!(
            quantize(ty, x, d_row, importance, &mut out[..n_bytes]),
            Err(Error::Shape { .. })
        ));
    };
    refused(&x, 0, None, 288);
    refused(&x, 128, None, 288);
    refused(&x[..511], 256, None, 288);
    refused(&x, 256, None, 287);
    refused(&x, 256, None, 144);
    refused(&x, 256, Some(&x), 288);
    refused(&x, usize::MAX, None, 288);
    refused(&[], 256, None, 144);
    assert!(quantize(ty, &x, 256, Some(&ONES), &mut out).is_ok());
    assert!(quantize(ty, &[], 256, None, &mut []).is_ok());
}

#[test]
fn no_importance_is_a_panic() {
    let x: Vec<f32> = (0..256)
        .map(|i| (i as f32 * 0.37).sin() * 10f32.powi(i % 50 - 25))
        .collect();
    let huge = [f32::MAX; 256];
    let kinds = [
        0.0,
        -1.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        1e-45,
    ];
    for (ty, quantizer) in quantizers() {
        for importance in kinds
            .iter()
            .flat_map(|&odd| [[odd; 256], std::array::from_fn(|i| [odd, 1.0, 0.0][i % 3])])
        {
            for x in [&x[..], &[0.0; 256], &huge, &ONES] {
                quantizer
                    .rows(x, 256, Some(&importance), &mut blocks(ty, 256))
                    .unwrap();
            }
        }
    }
}

#[test]
fn rows_know_nothing_of_each_other() {
    let x = crate::seeded::weights();
    let importance = &crate::seeded::importance()[..256];
    for (ty, quantizer) in quantizers() {
        let mut together = blocks(ty, x.len());
        let mut alone = blocks(ty, x.len());
        quantizer
            .rows(&x, 256, Some(importance), &mut together)
            .unwrap();
        for (x, out) in x
            .chunks(256)
            .zip(alone.chunks_mut(ty.row_bytes(256).unwrap()))
        {
            quantizer.rows(x, 256, Some(importance), out).unwrap();
        }
        assert!(together == alone, "{ty}");
    }
}
