//! Speed of matmuls with few activation rows, as in batched decoding: `cargo run
//! --release -p atta-benches --bin few [ISA] [THREADS]`. Each column is the time of so many rows
//! through a matrix larger than the caches, in times that of one row.

use atta_benches::{inputs, seconds, weights};
use atta_formats::TensorType::{Q4_0, Q4_K, Q6_K, Q8_0};
use atta_kernels::{Kernels, Matrix, Pool};
use std::num::NonZeroUsize;

const ROWS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24];
const LARGE: usize = 256 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let k = args.next().map_or_else(Kernels::detect, |name| {
        Kernels::named(&name).expect("the name of an isa")
    });
    let n_threads = args
        .next()
        .map_or(1, |n| n.parse().expect("a number of threads"));
    let pool = Pool::new(NonZeroUsize::new(n_threads).expect("at least one thread"));
    println!(
        "{}, {n_threads} threads\nrows {}",
        k.isa(),
        ROWS.map(|n| format!("{n:6}")).concat()
    );
    for ty in [Q4_0, Q8_0, Q4_K, Q6_K] {
        let d_in = 2048;
        let d_out = LARGE
            / ty.row_bytes(2048)
                .expect("the width is a whole number of blocks");
        let bytes = weights(ty, d_out, d_in);
        let w = Matrix::new(ty, d_out, d_in, &bytes).expect("lengths agree");
        let times = ROWS.map(|n| {
            let x = inputs(k, &pool, w, n);
            let mut out = vec![0.0; n * d_out];
            seconds(|| atta_benches::matmul(k, &pool, w, &x, &mut out))
        });
        println!(
            "{:4} {}   one row {:.1} GB/s",
            ty.name(),
            times.map(|t| format!("{:6.2}", t / times[0])).concat(),
            bytes.len() as f64 / times[0] / 1e9
        );
    }
}
