//! T2, T3 and T4: the same bytes everywhere, quality that no speed-up may cost, and hard rows.

use atta_convert::quantize::Quantizer;
use atta_formats::{TensorType, decode_rows};
use atta_kernels::Kernels;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::seeded;
use TensorType::{T2, T3, T4};

const TYPES: [TensorType; 3] = [T2, T3, T4];

/// A stream of numbers with mean 0 and variance 1, by Box and Muller's equation.
struct Gauss(u64);

impl Gauss {
    /// Between 0 and 1, neither of them.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn next(&mut self) -> f32 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.uniform()).cos()) as f32
    }

    fn row(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

fn quantized(ty: TensorType, x: &[f32], d_row: usize, importance: Option<&[f32]>) -> Vec<u8> {
    bytes_of(&Quantizer::new(ty).unwrap(), ty, x, (d_row, importance))
}

fn bytes_of(
    quantizer: &Quantizer,
    ty: TensorType,
    x: &[f32],
    row: (usize, Option<&[f32]>),
) -> Vec<u8> {
    let mut out = vec![0; x.len() / row.0 * ty.row_bytes(row.0).unwrap()];
    quantizer.rows(x, row.0, row.1, &mut out).unwrap();
    out
}

fn round_trip(ty: TensorType, x: &[f32], d_row: usize, importance: Option<&[f32]>) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    decode_rows(ty, d_row, &quantized(ty, x, d_row, importance), &mut y).unwrap();
    y
}

/// Signal to noise in dB.
fn db(x: &[f32], y: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let signal: f64 = x.iter().map(|&x| square(x)).sum();
    let noise: f64 = x.iter().zip(y).map(|(x, y)| square(x - y)).sum();
    10.0 * (signal / noise).log10()
}

#[test]
fn no_speed_costs_quality_on_gaussian_weights() {
    let x = Gauss(1).row(4096 * 256);
    let quality = TYPES.map(|ty| {
        let parts: Vec<_> = x.chunks(1 << 19).collect();
        let y: Vec<f32> = std::thread::scope(|scope| {
            let threads = parts
                .iter()
                .map(|x| scope.spawn(|| round_trip(ty, x, 4096, None)));
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        db(&x, &y)
    });
    let least = [11.25, 17.3, 23.35];
    assert!(
        quality.iter().zip(least).all(|(got, least)| *got >= least),
        "{quality:.3?}"
    );
}

/// Rows of 288: ordinary ones, of zeros, tiny ones, and with outliers.
fn hard_rows() -> Vec<f32> {
    let mut gauss = Gauss(2);
    let mut rows = gauss.row(5 * 288);
    rows[288..576].fill(0.0);
    rows[576..864].iter_mut().for_each(|x| *x *= 1e-8);
    for at in [864, 1000, 1151] {
        rows[at] *= 100.0;
    }
    rows.extend_from_slice(&seeded::weights()[..2 * 288]);
    rows
}

#[test]
fn bytes_are_the_same_on_every_instruction_set() {
    let rows = hard_rows();
    let importance: Vec<f32> = Gauss(3).row(288).iter().map(|x| x * x).collect();
    let names = ["scalar", "sse41", "avx2", "avx512", "neon"];
    let kernels: Vec<_> = names
        .into_iter()
        .filter_map(|name| Kernels::named(name).ok())
        .collect();
    for ty in TYPES {
        for importance in [None, Some(&importance[..])] {
            let hashes = kernels.iter().map(|kernels| {
                let quantizer = Quantizer::new(ty).unwrap().with_kernels(*kernels);
                let mut hasher = DefaultHasher::new();
                bytes_of(&quantizer, ty, &rows, (288, importance)).hash(&mut hasher);
                hasher.finish()
            });
            let hashes: Vec<_> = hashes.collect();
            assert!(
                hashes.iter().all(|hash| *hash == hashes[0]),
                "{ty}: {hashes:?}"
            );
        }
    }
}

#[test]
fn zeros_are_zero_bytes_and_tiny_weights_are_not() {
    for ty in TYPES {
        let mut x = vec![0.0; 512];
        assert!(quantized(ty, &x, 512, None).iter().all(|&byte| byte == 0));
        x[300..].fill(1e-12);
        let bytes = quantized(ty, &x, 512, None);
        let (zeros, tiny) = bytes.split_at(ty.block_bytes());
        assert!(
            zeros.iter().all(|&byte| byte == 0) && tiny[..2] == [1, 0],
            "{ty}"
        );
    }
}

#[test]
fn weights_of_any_size_keep_their_quality() {
    for (ty, least) in TYPES.into_iter().zip([10.5, 16.5, 22.5]) {
        let x = Gauss(4).row(8 * 288);
        for factor in [1e-4, 1e-2, 1.0, 1e3] {
            let x: Vec<f32> = x.iter().map(|x| x * factor).collect();
            let quality = db(&x, &round_trip(ty, &x, 288, None));
            assert!(quality > least, "{ty} times {factor}: {quality}");
        }
    }
}

#[test]
fn a_column_that_matters_is_the_most_exact() {
    let x = Gauss(5).row(64 * 256);
    let mut importance = vec![1.0; 256];
    importance[77] = 1e4;
    for ty in TYPES {
        let y = round_trip(ty, &x, 256, Some(&importance));
        let [mut matters, mut others] = [0.0, 0.0];
        for (i, (x, y)) in x.iter().zip(&y).enumerate() {
            let sum = if i % 256 == 77 {
                &mut matters
            } else {
                &mut others
            };
            *sum += (x - y) * (x - y);
        }
        assert!(matters < 0.1 * others / 255.0, "{ty}: {matters} {others}");
    }
}

#[test]
fn importance_of_zeros_or_of_any_size_loses_nothing() {
    let x = Gauss(6).row(4 * 256);
    for ty in TYPES {
        let plain = quantized(ty, &x, 256, None);
        for same in [0.0, 1.0, 1e-30, 0.5e30] {
            assert_eq!(
                quantized(ty, &x, 256, Some(&[same; 256])),
                plain,
                "{ty}, {same}"
            );
        }
        let mut importance = [0.0; 256];
        importance[..128].fill(1.0);
        let quality = db(
            &x[..256],
            &round_trip(ty, &x[..256], 256, Some(&importance)),
        );
        assert!(quality > 5.0, "{ty}: {quality}");
    }
}
