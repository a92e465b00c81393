//! Decoded blocks are near the original weights.

use atta_convert::quantize::Quantizer;
use atta_formats::{TensorType, decode};
use proptest::prelude::*;

use crate::{blocks, quantizers};
use TensorType::*;

/// Weights after quantizing and decoding.
fn round_trip(
    made: &(TensorType, Quantizer),
    x: &[f32],
    d_row: usize,
    importance: Option<&[f32]>,
) -> Vec<f32> {
    let (ty, quantizer) = made;
    let mut out = blocks(*ty, x.len());
    quantizer.rows(x, d_row, importance, &mut out).unwrap();
    let mut y = vec![0.0; x.len()];
    decode(*ty, &out, &mut y).unwrap();
    y
}

fn of(ty: TensorType) -> (TensorType, Quantizer) {
    (ty, Quantizer::new(ty).unwrap())
}

/// The largest error of a weight, relative to the largest magnitude of its block: the maximum over
/// 40,000 blocks of uniform weights, plus a tenth.
fn bound(ty: TensorType) -> f32 {
    match ty {
        F32 => 0.0,
        F16 => 0.0005,
        BF16 => 0.004,
        Q8_0 => 0.0045,
        Q6_K => 0.035,
        Q5_K | Q5_0 | Q5_1 => 0.075,
        Q4_0 | Q4_1 | Q4_K => 0.16,
        IQ4_NL | IQ4_XS => 0.2,
        MXFP4 => 0.26,
        Q3_K => 0.35,
        // Neighbours share an error, so one weight may end farther off than by rounding alone.
        T4 => 0.45,
        T3 => 0.7,
        T2 => 1.3,
        IQ3_S => 0.45,
        Q2_K => 0.6,
        IQ2_S => 0.75,
        // A sign may be flipped.
        IQ2_XXS | IQ2_XS | IQ3_XXS => 1.1,
        _ => 0.51,
    }
}

thread_local! {
    static ALL: Vec<(TensorType, Quantizer)> = quantizers();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_weight_ends_far_from_where_it_was(
        x in prop::collection::vec(-1f32..1.0, 512),
        exponent in -4i32..10,
    ) {
        let x: Vec<f32> = x.iter().map(|x| x * 2f32.powi(exponent)).collect();
        ALL.with(|all| all.iter().try_for_each(|made| {
            let ty = made.0;
            let y = round_trip(made, &x, 256, Some(&[1.0; 256]));
            for (x, y) in x.chunks(ty.block_len()).zip(y.chunks(ty.block_len())) {
                let largest = x.iter().fold(0f32, |max, x| max.max(x.abs()));
                let error = x.iter().zip(y).fold(0f32, |max, (x, y)| max.max((x - y).abs()));
                let relative = error / largest;
                prop_assert!(
                    error <= bound(ty) * largest + 1e-6,
                    "{}: {} of {}", ty, relative, largest
                );
            }
            Ok(())
        }))?;
    }

    /// The search starts with plain rounding, so its weighted error can only be smaller.
    #[test]
    fn a_search_is_not_worse_than_rounding(
        x in prop::collection::vec(-1f32..1.0, 128),
        matters in prop::collection::vec(0f32..1.0, 128),
    ) {
        let mean_square = x.iter().map(|x| x * x).sum::<f32>() / 128.0;
        let weight = |(x, m): (&f32, &f32)| m * (mean_square + x * x).sqrt();
        let weight: Vec<f32> = x.iter().zip(&matters).map(weight).collect();
        for ty in [Q4_0, Q5_0, Q4_1, Q5_1] {
            let errors = |importance| {
                let y = round_trip(&of(ty), &x, 128, importance);
                let one = |i: usize| weight[i] * (x[i] - y[i]) * (x[i] - y[i]);
                (0..4).map(|b| (32 * b..32 * b + 32).map(one).sum::<f32>()).collect::<Vec<f32>>()
            };
            for (searched, rounded) in errors(Some(&matters)).iter().zip(errors(None)) {
                prop_assert!(
                    *searched <= 1.01 * rounded + 1e-6,
                    "{}: {} > {}", ty, searched, rounded
                );
            }
        }
    }
}

#[test]
fn what_matters_is_nearer_if_it_is_known_to_matter() {
    let x = &crate::seeded::weights()[..2 * crate::seeded::D_ROW];
    let matters = crate::seeded::importance();
    for ty in [
        Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ2_S, IQ3_XXS, IQ3_S,
    ] {
        let made = of(ty);
        let error = |importance| {
            let y = round_trip(&made, x, matters.len(), importance);
            let one =
                |i: usize| f64::from(matters[i % matters.len()]) * f64::from(x[i] - y[i]).powi(2);
            (0..x.len()).map(one).sum::<f64>()
        };
        let with = error(Some(&matters));
        let without = error(None);
        assert!(with < 0.97 * without, "{ty}: {with} against {without}");
    }
}

#[test]
fn more_bits_are_nearer() {
    let x = &crate::seeded::weights()[..crate::seeded::D_ROW];
    let error = |ty| -> f64 {
        let y = round_trip(&of(ty), x, x.len(), None);
        y.iter().zip(x).map(|(y, x)| f64::from(x - y).powi(2)).sum()
    };
    let order = [Q8_0, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, TQ2_0];
    assert!(
        order
            .windows(2)
            .all(|pair| 2.0 * error(pair[0]) < error(pair[1]))
    );
    assert!(error(Q4_K) < error(Q4_0) && error(IQ4_XS) < error(Q4_0));
    assert!(error(IQ3_S) < error(IQ3_XXS) && error(IQ3_XXS) < error(IQ2_S));
    assert_eq!(error(TQ1_0), error(TQ2_0));
}

/// llama.cpp shifts these entries by one sub-block.
#[test]
fn entries_behind_a_sub_block_of_zeros_stay_where_they_are() {
    let mut x = [0.5f32; 256];
    x[64..96].fill(0.0);
    x[160] = -0.5;
    let y = round_trip(&of(IQ3_S), &x, 256, None);
    assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 0.15), "{y:?}");
}
