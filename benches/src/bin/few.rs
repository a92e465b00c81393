//! Speed of matmuls with few activation rows, as in batched decoding and speculation: `cargo run
//! --release -p atta-benches --bin few [ISA [THREADS [TYPE...]]]`. A column c(n) is the time of n
//! rows through a matrix larger than the caches, in times that of one row; then how much of the
//! multiplications per second of 512 rows 4 and 8 rows reach.
//!
//! The matrix is multiplied in parts of a millisecond or less, and the least time of each part
//! counts: other processes disturb a part, but not the same one in all rounds.

use atta_benches::{inputs, matmul, weights};
use atta_formats::TensorType;
use atta_kernels::{Activations, Kernels, Matrix, Pool};
use std::num::NonZeroUsize;
use std::time::Instant;

const ROWS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 24];
const ROUNDS: usize = 9;
const LARGE: usize = 256 << 20;
const PART: usize = 4 << 20;
const D_IN: usize = 2048;
/// Weight rows that 512 activation rows are multiplied with.
const SMALL: usize = 128;

/// Some activation rows, and the times of the parts of a matrix.
struct Column {
    x: Activations,
    out: Vec<f32>,
    /// In seconds, the least so far of each part.
    least: Vec<f64>,
}

impl Column {
    fn new(k: Kernels, pool: &Pool, parts: &[Matrix<'_>], n: usize) -> Self {
        Self {
            x: inputs(k, pool, parts[0], n),
            out: vec![0.0; n * parts[0].d_out()],
            least: vec![f64::INFINITY; parts.len()],
        }
    }

    fn measure(&mut self, k: Kernels, pool: &Pool, parts: &[Matrix<'_>]) {
        for (w, least) in parts.iter().zip(&mut self.least) {
            let start = Instant::now();
            matmul(k, pool, *w, &self.x, &mut self.out);
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }

    fn seconds(&self) -> f64 {
        self.least.iter().sum()
    }
}

/// Measures one type.
fn measure(k: Kernels, pool: &Pool, ty: TensorType) {
    let row_bytes = ty.row_bytes(D_IN);
    let row_bytes = row_bytes.expect("the width is a whole number of blocks");
    let d_out = PART / row_bytes / 64 * 64;
    let bytes = weights(ty, LARGE / PART * d_out, D_IN);
    let matrix = |d_out, bytes| Matrix::new(ty, d_out, D_IN, bytes).expect("lengths agree");
    let parts = bytes.chunks_exact(d_out * row_bytes);
    let parts: Vec<_> = parts.map(|bytes| matrix(d_out, bytes)).collect();
    let small = [matrix(SMALL, &bytes[..SMALL * row_bytes])];
    let mut columns = ROWS.map(|n| Column::new(k, pool, &parts, n));
    let mut many = Column::new(k, pool, &small, 512);
    for _ in 0..ROUNDS {
        for column in &mut columns {
            column.measure(k, pool, &parts);
        }
        many.measure(k, pool, &small);
    }
    let times = columns.map(|column| column.seconds());
    let of_many = (512 * SMALL) as f64 / many.seconds();
    let share = |i: usize| 100.0 * (ROWS[i] * parts.len() * d_out) as f64 / times[i] / of_many;
    println!(
        "{:7} {}  {:5.1} GB/s {:4.0} %{:4.0} %",
        ty.name(),
        times.map(|t| format!("{:6.2}", t / times[0])).concat(),
        bytes.len() as f64 / times[0] / 1e9,
        share(3),
        share(7)
    );
}

/// The type with this name.
fn named(name: &str) -> TensorType {
    let mut all = TensorType::ALL.iter().copied();
    all.find(|ty| ty.name() == name)
        .expect("the name of a type")
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
        "{}, {n_threads} threads\nrows    {}   one row   4 and 8 of 512",
        k.isa(),
        ROWS.map(|n| format!("{n:6}")).concat()
    );
    let mut types: Vec<_> = args.map(|name| named(&name)).collect();
    if types.is_empty() {
        let all = TensorType::ALL.iter().copied();
        types = all.filter(|&ty| Matrix::supports(ty)).collect();
    }
    types.into_iter().for_each(|ty| measure(k, &pool, ty));
}
