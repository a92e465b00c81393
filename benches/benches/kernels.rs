//! Matmuls of every type on this machine's best instruction set, one thread, 1024 × 2048 weights:
//! one row, as in decoding (from caches), and 128 rows, as in prefill. `cargo bench -p atta-benches
//! [-- FILTER]`; against an earlier commit, `--save-baseline` and `--baseline`. Shares of what the
//! machine can do: `cargo run --release -p atta-benches`.

use atta_benches::{inputs, matmul, weights};
use atta_formats::TensorType;
use atta_kernels::{Kernels, Matrix, Pool};
use criterion::{BenchmarkId, Criterion, Throughput};
use std::num::NonZeroUsize;
use std::time::Duration;

const D_OUT: usize = 1024;
const D_IN: usize = 2048;

fn matmuls(c: &mut Criterion) {
    let k = Kernels::detect();
    let pool = Pool::new(NonZeroUsize::MIN);
    for n_rows in [1, 128] {
        let mut group = c.benchmark_group(format!("matmul of {n_rows} rows, {}", k.isa()));
        group.throughput(Throughput::Elements((n_rows * D_OUT * D_IN) as u64));
        for ty in TensorType::ALL.iter().copied().filter(|ty| ty.has_codec()) {
            let bytes = weights(ty, D_OUT, D_IN);
            let Ok(w) = Matrix::new(ty, D_OUT, D_IN, &bytes) else {
                continue;
            };
            let x = inputs(k, &pool, w, n_rows);
            let mut out = vec![0.0; n_rows * D_OUT];
            group.bench_function(BenchmarkId::from_parameter(ty.name()), |b| {
                b.iter(|| matmul(k, &pool, w, &x, &mut out));
            });
        }
        group.finish();
    }
}

fn main() {
    let config = Criterion::default()
        .sample_size(20)
        .measurement_time(Duration::from_secs(1));
    let mut c = config.configure_from_args();
    matmuls(&mut c);
    c.final_summary();
}
