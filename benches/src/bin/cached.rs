//! Speed of matmuls from the level 2 cache, by format and width: `cargo run --release -p
//! atta-benches --bin cached [ISA] [FORMAT]…`. One thread; 10^9 weights times activation rows per
//! second, so that formats of different sizes can be compared where memory is not waited for.

use atta_benches::{inputs, seconds, weights};
use atta_formats::TensorType;
use atta_kernels::{Kernels, Matrix, Pool};
use std::num::NonZeroUsize;

/// Activation rows.
const ROWS: [usize; 5] = [1, 2, 4, 8, 512];
/// Widths; the second one ends in a short block of the types that have such.
const WIDTHS: [usize; 3] = [512, 576, 2048];
/// Bytes of a matrix.
const SMALL: usize = 384 << 10;

/// Repetitions of the seven runs that the fastest one is taken of: each is short, so that some fall
/// between other work of the machine.
const ROUNDS: usize = 25;

fn best(mut run: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| seconds(&mut run));
    rounds.fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let k = args.next().map_or_else(Kernels::detect, |name| {
        Kernels::named(&name).expect("the name of an isa")
    });
    let named: Vec<String> = args.collect();
    let pool = Pool::new(NonZeroUsize::MIN);
    println!("{}, one thread, Gweights·rows/s at rows {ROWS:?}", k.isa());
    let types = TensorType::ALL.iter().filter(|ty| Matrix::supports(**ty));
    for &ty in types.filter(|ty| named.is_empty() || named.iter().any(|name| name == ty.name())) {
        for d_in in WIDTHS {
            let Some(row_bytes) = ty.row_bytes(d_in) else {
                continue;
            };
            let d_out = SMALL / row_bytes;
            let bytes = weights(ty, d_out, d_in);
            let w = Matrix::new(ty, d_out, d_in, &bytes).expect("lengths agree");
            let speeds = ROWS.map(|n| {
                let x = inputs(k, &pool, w, n);
                let mut out = vec![0.0; n * d_out];
                let times = 16 / n.min(16);
                let run =
                    || (0..times).for_each(|_| atta_benches::matmul(k, &pool, w, &x, &mut out));
                (times * n * d_out * d_in) as f64 / best(run) / 1e9
            });
            println!(
                "{:7} {d_in:5} {}",
                ty.name(),
                speeds.map(|s| format!("{s:8.1}")).concat()
            );
        }
    }
}
