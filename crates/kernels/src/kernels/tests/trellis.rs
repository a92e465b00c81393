//! T2, T3 and T4: which kernels multiply them, and their largest sums.

use super::*;
use crate::testing::kernels_that_ran;

const TYPES: [TensorType; 3] = [TensorType::T2, TensorType::T3, TensorType::T4];

#[test]
fn no_instruction_set_with_vectors_falls_back_to_the_plain_algorithm() {
    let mut random = Random(41);
    for (k, ty) in kernels().flat_map(|k| TYPES.map(|ty| (k, ty))) {
        let alone = match k.isa() {
            "amx" | "avx512" | "avx512seq" if cfg!(feature = "avx512") => "x86_512::trellis",
            "avxvnni" | "avx2" if cfg!(feature = "avx512") => "x86_256::trellis",
            "neon" if cfg!(target_arch = "arm") => "gemm",
            "i8mm" | "dotprod" | "neon" => "arm_128::trellis",
            "scalar" | "sse41" | "rvv" | "rvv256" => "gemm",
            _ => "gemv",
        };
        let many = match alone {
            "gemm" if k.isa().starts_with("rvv") => "riscv_v::panel",
            "gemm" => "gemm",
            _ if cfg!(feature = "avx512") || cfg!(not(target_arch = "x86_64")) => "panel",
            _ => "gemv",
        };
        let n_few = match alone {
            "x86_512::trellis" | "x86_256::trellis" => 8,
            "arm_128::trellis" if cfg!(feature = "avx512") => 4,
            "gemm" if k.isa().starts_with("rvv") => 3,
            _ => 1,
        };
        for d_in in [512, 576, 96] {
            let bytes = random.weights(ty, 37, d_in, 0.01);
            let w = Matrix::new(ty, 37, d_in, &bytes).unwrap();
            for n_rows in [1, 2, 3, 4, 5, 8, 9] {
                let kernel = if n_rows <= n_few { alone } else { many };
                kernels_that_ran();
                matmul(k, 1, w, &random.floats(n_rows * d_in));
                assert_eq!(
                    kernels_that_ran(),
                    [kernel],
                    "{} {ty} {d_in} {n_rows}",
                    k.isa()
                );
            }
        }
    }
}

#[test]
fn the_largest_sums_are_exact() {
    for (k, ty) in kernels().flat_map(|k| TYPES.map(|ty| (k, ty))) {
        // All bits set are the last level, 63, and the largest scale, 16; d·K is 1.
        let mut block = vec![0xff; ty.block_bytes()];
        set_scales(ty, &mut block, [1.0, 0.0]);
        let w = Matrix::new(ty, 1, 256, &block).unwrap();
        for (x, sum) in [(127.0, 32_772_096.0), (-127.0, -32_772_096.0)] {
            for n_rows in [1, 2, 33] {
                let got = matmul(k, 1, w, &vec![x; n_rows * 256]);
                assert!(
                    got.iter().all(|&y| y == sum),
                    "{} {ty} {n_rows}: {got:?}",
                    k.isa()
                );
            }
        }
    }
}
