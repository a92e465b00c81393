//! What NEON could get wrong and other instruction sets could not: subnormal numbers, and the
//! widening of scales by integer instructions.

use crate::testing::{Random, bits, pool};
use crate::{Activations, Job, Kernels, Layouts, Matrix, Store};
use atta_formats::TensorType;

/// `w · x` by `neon` and by `scalar`, if this CPU has NEON.
fn both(w: Matrix<'_>, x: &[f32]) -> Option<[Vec<f32>; 2]> {
    let product = |k: Kernels| {
        let n_rows = x.len() / w.d_in();
        let mut a = Activations::new(n_rows, w.d_in());
        let layouts = Layouts::F32 | Layouts::Q8_32 | Layouts::Q8_256;
        a.fill(k, &pool(1), (n_rows, w.d_in()), layouts, |t, row| {
            row.copy_from_slice(&x[t * w.d_in()..][..w.d_in()]);
        });
        let mut out = vec![f32::NAN; n_rows * w.d_out()];
        let job = Job {
            w,
            bias: None,
            out: &mut out,
            mode: Store::Set,
        };
        k.matmul(&pool(1), &a, &mut [job]);
        out
    };
    let neon = Kernels::named("neon").ok()?;
    Some([neon, Kernels::named("scalar").expect("everywhere")].map(product))
}

/// Compares a row of `ty` for every `step`th f16, which lies at `at` in its block, and the
/// complement at `and_at`.
fn assert_scales(ty: TensorType, step: usize, at: usize, and_at: usize) {
    let halves: Vec<u16> = (0..=u16::MAX).step_by(step).collect();
    let d_in = ty.block_len();
    let mut bytes = Random(5).weights(ty, halves.len(), d_in, 1.0);
    for (h, block) in halves.iter().zip(bytes.chunks_mut(ty.block_bytes())) {
        block[and_at..][..2].copy_from_slice(&(!h).to_le_bytes());
        block[at..][..2].copy_from_slice(&h.to_le_bytes());
    }
    let w = Matrix::new(ty, halves.len(), d_in, &bytes).unwrap();
    let x: Vec<f32> = (0..d_in).map(|i| i as f32 - 9.5).collect();
    let Some([neon, scalar]) = both(w, &x) else {
        return;
    };
    for ((h, neon), scalar) in halves.iter().zip(neon).zip(scalar) {
        // Compilers may turn the sign of a NaN.
        let same = neon.to_bits() == scalar.to_bits() || neon.is_nan() && scalar.is_nan();
        assert!(same, "{ty} {h:#x}: {neon} {scalar}");
    }
}

#[test]
fn every_f16_is_the_scale_that_plain_code_reads() {
    assert_scales(TensorType::Q4_0, 1, 0, 0);
    assert_scales(TensorType::Q8_0, 1, 0, 0);
    assert_scales(TensorType::Q4_K, 11, 0, 2);
    assert_scales(TensorType::Q5_K, 11, 0, 2);
    assert_scales(TensorType::Q6_K, 11, 208, 208);
}

#[test]
fn f16_weights_give_the_bits_of_plain_code_however_small_the_inputs_are() {
    let mut random = Random(6);
    for (of_w, of_x) in [(1.0, 1.0), (1e-7, 1e-19), (1e-7, 1e-37), (1e-7, 1e-43)] {
        for d_in in [5, 16, 100, 1024] {
            let bytes = random.weights(TensorType::F16, 21, d_in, of_w);
            let w = Matrix::new(TensorType::F16, 21, d_in, &bytes).unwrap();
            let x: Vec<f32> = random.floats(3 * d_in).iter().map(|x| x * of_x).collect();
            let Some([neon, scalar]) = both(w, &x) else {
                return;
            };
            assert_eq!(bits(&neon), bits(&scalar), "{of_w} {of_x} {d_in}");
        }
    }
}
