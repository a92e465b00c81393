//! Which kernels multiply the formats that many people run on ARM.

use crate::testing::{Random, kernels_that_ran, pool};
use crate::{Activations, Job, Kernels, Layouts, Matrix, Store};
use atta_formats::TensorType;

/// The kernel of a K-quant that multiplies `n_rows` activation rows.
fn kernel_of(k: Kernels, ty: TensorType, n_rows: usize) -> Vec<&'static str> {
    let (d_out, d_in) = (21, 512);
    let mut random = Random(51);
    let bytes = random.weights(ty, d_out, d_in, 0.01);
    let w = Matrix::new(ty, d_out, d_in, &bytes).unwrap();
    let x = random.floats(d_in);
    let mut a = Activations::new(n_rows, d_in);
    a.fill(k, &pool(1), (n_rows, d_in), Layouts::Q8_256, |_, row| {
        row.copy_from_slice(&x)
    });
    let mut out = vec![0.0; n_rows * d_out];
    let job = Job {
        w,
        bias: None,
        out: &mut out,
        mode: Store::Set,
    };
    kernels_that_ran();
    k.matmul(&pool(1), &a, &mut [job]);
    kernels_that_ran()
}

#[test]
fn a_few_rows_of_k_quants_are_multiplied_without_a_panel() {
    use TensorType::{IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0};
    for isa in ["i8mm", "dotprod", "neon"] {
        let Ok(k) = Kernels::named(isa) else { continue };
        for ty in [Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, TQ1_0, TQ2_0] {
            for n_rows in 1..=super::AT_ONCE {
                assert_eq!(
                    kernel_of(k, ty, n_rows),
                    ["arm_128::k_quants"],
                    "{isa} {ty}"
                );
            }
            assert_eq!(
                kernel_of(k, ty, super::AT_ONCE + 1),
                ["panel"],
                "{isa} {ty}"
            );
        }
    }
}
