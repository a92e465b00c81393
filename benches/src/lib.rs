//! Shared by the kernel benchmarks: random weights, a matmul, and a timer. It knows no model.

use atta_formats::TensorType;
use atta_kernels::{Activations, Job, Kernels, Matrix, Pool, Store};
use std::time::Instant;

/// The time of `f`: the minimum of seven runs, to exclude disturbance by other processes.
pub fn seconds(mut f: impl FnMut()) -> f64 {
    let mut once = || {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..7).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// `[d_out, d_in]` weights with random codes; no scale and no float is subnormal, which would be
/// slow.
///
/// # Panics
/// If `d_in` is not a whole number of blocks.
pub fn weights(ty: TensorType, d_out: usize, d_in: usize) -> Vec<u8> {
    use TensorType::*;
    let n = d_out * ty.row_bytes(d_in).expect("widths here are whole blocks");
    let mut state = 1u32;
    let random = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let byte = (state >> 24) as u8;
        let at = i % ty.block_bytes();
        match ty {
            F16 | BF16 | F32 if at == ty.block_bytes() - 1 => 0x3c,
            MXFP4 if at == 0 => byte & 0x3f | 0x40,
            // The scale is in the first two bytes; indices stay random, because their spread
            // determines the speed.
            IQ1_S | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S if at != 1 => byte,
            // The scale is in the upper halves of words at the end.
            IQ1_M if at < 48 => byte,
            _ => byte & 0x3f | 0x04,
        }
    };
    (0..n).map(random).collect()
}

/// `n_rows` inputs of a matrix, in the layout that it reads.
pub fn inputs(k: Kernels, pool: &Pool, w: Matrix<'_>, n_rows: usize) -> Activations {
    let mut x = Activations::new(n_rows, w.d_in());
    let row = |t: usize, row: &mut [f32]| {
        row.iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = ((t + i) % 13) as f32 - 6.0)
    };
    x.fill(k, pool, (n_rows, w.d_in()), w.layout(), row);
    x
}

/// `out = W x`, `[n_rows, d_out]`.
pub fn matmul(k: Kernels, pool: &Pool, w: Matrix<'_>, x: &Activations, out: &mut [f32]) {
    k.matmul(
        pool,
        x,
        &mut [Job {
            w,
            bias: None,
            out,
            mode: Store::Set,
        }],
    );
}
