//! The scale of a whole tensor, which files have beside weights of NVFP4.

use super::*;
use atta_formats::Encoding;

const SCALE: f32 = 0.37;
const D_OUT: usize = 37;
const D_IN: usize = 192;

fn encoding() -> Encoding {
    Encoding {
        ty: TensorType::NVFP4,
        scale: SCALE,
    }
}

/// What the scalar codec decodes, times the scale.
fn scaled(bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; D_OUT * D_IN];
    decode(TensorType::NVFP4, bytes, &mut out).unwrap();
    out.into_iter().map(|w| w * SCALE).collect()
}

#[test]
fn a_product_of_scaled_weights_is_that_of_the_scaled_codec() {
    let mut random = Random(41);
    let bytes = random.weights(TensorType::NVFP4, D_OUT, D_IN, 0.1);
    let w = Matrix::new(encoding(), D_OUT, D_IN, &bytes).unwrap();
    let unscaled = Matrix::new(TensorType::NVFP4, D_OUT, D_IN, &bytes).unwrap();
    let weights = scaled(&bytes);
    for n_rows in [1, 2, 3, 4, 35, 70] {
        let x = random.floats(n_rows * D_IN);
        let want: Vec<f64> = x
            .chunks(D_IN)
            .flat_map(|x| weights.chunks(D_IN).map(|w| dot_of_floats(x, w)))
            .collect();
        for k in kernels() {
            let got = matmul(k, 2, w, &x);
            let error = nmse(&got, &want);
            assert!(error < 1e-4, "{} {n_rows}: {error:e}", k.isa());
            let product: Vec<f32> = matmul(k, 1, unscaled, &x)
                .into_iter()
                .map(|y| y * SCALE)
                .collect();
            assert_eq!(bits(&got), bits(&product), "{} {n_rows}", k.isa());
        }
    }
}

fn dot_of_floats(x: &[f32], w: &[f32]) -> f64 {
    x.iter()
        .zip(w)
        .map(|(&x, &w)| f64::from(x) * f64::from(w))
        .sum()
}

#[test]
fn a_bias_is_added_after_the_scale() {
    let mut random = Random(43);
    let bytes = random.weights(TensorType::NVFP4, D_OUT, D_IN, 0.1);
    let w = Matrix::new(encoding(), D_OUT, D_IN, &bytes).unwrap();
    let bias = random.floats(D_OUT);
    for (k, n_rows) in kernels().flat_map(|k| [1, 35].map(|n_rows| (k, n_rows))) {
        let x = random.floats(n_rows * D_IN);
        let mut out = vec![f32::NAN; n_rows * D_OUT];
        let job = Job {
            w,
            bias: Some(&bias),
            out: &mut out,
            mode: Store::Set,
        };
        k.matmul(&pool(1), &filled(k, n_rows, D_IN, &x), &mut [job]);
        let want = with_bias(matmul(k, 1, w, &x), &bias);
        assert_eq!(bits(&out), bits(&want), "{} {n_rows}", k.isa());
    }
}

#[test]
fn a_gate_and_its_other_branch_have_scales_of_their_own() {
    let mut random = Random(47);
    let bytes = [(); 2].map(|()| random.weights(TensorType::NVFP4, D_OUT, D_IN, 0.1));
    let gate = Matrix::new(encoding(), D_OUT, D_IN, &bytes[0]).unwrap();
    let up = Matrix::new(TensorType::NVFP4, D_OUT, D_IN, &bytes[1]).unwrap();
    for (k, n_rows) in kernels().flat_map(|k| [1, 35].map(|n_rows| (k, n_rows))) {
        let x = random.floats(n_rows * D_IN);
        let mut out = vec![f32::NAN; n_rows * D_OUT];
        let job = Gated {
            gate,
            up,
            gate_bias: None,
            up_bias: None,
            activation: Activation::Relu,
            out: &mut out,
        };
        k.matmul_gated(&pool(2), &filled(k, n_rows, D_IN, &x), job);
        let want: Vec<f32> = matmul(k, 1, gate, &x)
            .into_iter()
            .zip(matmul(k, 1, up, &x))
            .map(|(g, u)| g.max(0.0) * u)
            .collect();
        assert_eq!(out, want, "{} {n_rows}", k.isa());
    }
}

#[test]
fn decoded_rows_are_scaled() {
    let bytes = Random(53).weights(TensorType::NVFP4, D_OUT, D_IN, 0.1);
    let w = Matrix::new(encoding(), D_OUT, D_IN, &bytes).unwrap();
    let mut row = vec![0.0; D_IN];
    Kernels::detect().decode_row(w, 2, &mut row);
    assert_eq!(bits(&row), bits(&scaled(&bytes)[2 * D_IN..3 * D_IN]));
}
