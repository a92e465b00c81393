//! Speed of the kernels on this machine, per format: `cargo run --release -p atta-benches [ISA]
//! [THREADS] [FORMAT]…`, all formats if none is named.
//!
//! Decode is one row through a matrix larger than the caches (bytes of weights per second matter),
//! so are 8 rows; prefill is 512 rows through a small one (multiplications per second matter).
//! Attention has a program of its own, `--bin attention`.

use atta_benches::{inputs, seconds, weights};
use atta_formats::TensorType;
use atta_kernels::{Activations, Kernels, Layouts, Matrix, Pool};
use std::num::NonZeroUsize;

fn matmul(k: Kernels, pool: &Pool, w: Matrix<'_>, n_rows: usize) -> f64 {
    let x = inputs(k, pool, w, n_rows);
    let mut out = vec![0.0; n_rows * w.d_out()];
    seconds(|| atta_benches::matmul(k, pool, w, &x, &mut out))
}

fn quantize(k: Kernels, pool: &Pool, layout: Layouts) -> f64 {
    let mut x = Activations::new(1, 4096);
    seconds(|| (0..1000).for_each(|_| x.fill(k, pool, (1, 4096), layout, |_, row| row.fill(1.5))))
        / 4096e3
}

/// Bytes of the matrices that decoding reads; larger than caches.
const LARGE: usize = 512 << 20;

/// Measures one format, relative to the peak and the bandwidth measured just before.
fn format(k: Kernels, pool: &Pool, ty: TensorType, d_in: usize) {
    let d_out = LARGE
        / ty.row_bytes(d_in)
            .expect("the width is a whole number of blocks");
    let matrix = |d_out, bytes| Matrix::new(ty, d_out, d_in, bytes).expect("lengths agree");
    let large = weights(ty, d_out, d_in);
    let small = weights(ty, 2048, d_in);
    let cached = weights(ty, 256, d_in);
    let peak = k.int8_peak(pool) / 1e9;
    let bandwidth = k.read_bandwidth(pool, LARGE) / 1e9;
    let decode = large.len() as f64 / matmul(k, pool, matrix(d_out, &large), 1) / 1e9;
    let cached = cached.len() as f64 / matmul(k, pool, matrix(256, &cached), 1) / 1e9;
    let prefill =
        |n: usize| (2048 * d_in * n) as f64 / matmul(k, pool, matrix(2048, &small), n) / 1e9;
    let few = large.len() as f64 / matmul(k, pool, matrix(d_out, &large), 8) / 1e9;
    let many = prefill(512);
    let share = 100.0 * many / peak;
    let read = 100.0 * decode / bandwidth;
    println!(
        "{:7} decode {decode:6.1} GB/s = {read:3.0} % (cached {cached:5.1})   8 rows {few:5.1} GB/s   512 rows {many:6.1} \
         GMAC/s = {share:3.0} %",
        ty.name()
    );
}

/// The types that have kernels.
fn supported() -> impl Iterator<Item = TensorType> {
    TensorType::ALL
        .iter()
        .copied()
        .filter(|&ty| Matrix::supports(ty))
}

/// The formats with the given names.
fn named(names: impl Iterator<Item = String>) -> Vec<TensorType> {
    let find = |name: String| {
        supported()
            .find(|ty| ty.name() == name)
            .expect("the name of a format")
    };
    names.map(find).collect()
}

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
        "{}, {n_threads} threads; shares of the int8 peak and of the best read loop, measured per line",
        k.isa()
    );
    let formats = named(args);
    for ty in if formats.is_empty() {
        supported().collect()
    } else {
        formats
    } {
        format(k, &pool, ty, 2048);
    }
    for (name, layout) in [("Q8_32", Layouts::Q8_32), ("Q8_256", Layouts::Q8_256)] {
        println!(
            "quantize {name}: {:.2} ns per value",
            quantize(k, &pool, layout) * 1e9
        );
    }
}
