//! Checks the levels of T2, T3 or T4 on weights of real models: one of Lloyd's steps.
//!
//! `cargo run --release -p atta-convert --example trellis_levels -- t2 A.f32 B.f32`
//!
//! Each file has raw little-endian f32, rows of 256. The program quantizes them, prints the signal
//! to noise of each file, and the level that fits best for each label, the largest one made 63. To
//! train, put the levels into `crates/formats/src/layout/trellis.rs` and run it again, as long as
//! all files gain. It refuses to choose: the levels are constants of the types.

use atta_convert::quantize::Quantizer;
use atta_formats::{
    TensorType, decode_rows,
    f16::f16_to_f32,
    layout::{Trellis, trellis_parities},
};
use std::error::Error;

/// Weights of a row, one block.
const D_ROW: usize = 256;

/// Sums of one label.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// `Σ w·scale / signal`.
    products: f64,
    /// `Σ scale² / signal`.
    squares: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let ty = *TensorType::ALL
        .iter()
        .find(|ty| ty.is_own() && ty.name().eq_ignore_ascii_case(&name))
        .ok_or("expected t2, t3 or t4, and files")?;
    let levels = Trellis::of(ty).expect("it is one of the types").levels();
    let mut sums = vec![Sums::default(); levels.len()];
    for path in args {
        let bytes = std::fs::read(&path)?;
        let weights = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
        let mut weights: Vec<f32> = weights.collect();
        weights.truncate(weights.len() / D_ROW * D_ROW);
        println!("{path}: {:.3} dB", measure(ty, &weights, &mut sums)?);
    }
    let best = sums.iter().map(|sum| sum.products / sum.squares);
    let best: Vec<f64> = best.collect();
    let largest = best.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    let level = |x: &f64| (x * 63.0 / largest).round() as i8;
    println!(
        "now  {levels:?}\nbest {:?}",
        best.iter().map(level).collect::<Vec<_>>()
    );
    Ok(())
}

/// Quantizes rows, adds them to the sums of their labels, each row with the same weight, and
/// returns the signal to noise of all in dB.
fn measure(ty: TensorType, x: &[f32], sums: &mut [Sums]) -> Result<f64, Box<dyn Error>> {
    let row_bytes = ty.row_bytes(D_ROW).expect("a block");
    let mut bytes = vec![0; x.len() / D_ROW * row_bytes];
    Quantizer::new(ty)?.rows(x, D_ROW, None, &mut bytes)?;
    let mut y = vec![0.0; x.len()];
    decode_rows(ty, D_ROW, &bytes, &mut y)?;
    let mut signal = 0.0;
    let mut noise = 0.0;
    let rows = x
        .chunks(D_ROW)
        .zip(y.chunks(D_ROW))
        .zip(bytes.chunks(row_bytes));
    for ((x, y), bytes) in rows {
        let square = square_of(x);
        if square == 0.0 {
            continue;
        }
        add_block(ty, bytes, x, sums);
        signal += 1.0;
        noise += x
            .iter()
            .zip(y)
            .map(|(x, y)| f64::from(x - y).powi(2))
            .sum::<f64>()
            / square;
    }
    Ok(10.0 * (signal / noise).log10())
}

/// `Σ x²`.
fn square_of(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum()
}

/// Adds the weights `x` of a whole block to the sums of their labels.
fn add_block(ty: TensorType, bytes: &[u8], x: &[f32], sums: &mut [Sums]) {
    let block = Trellis::of(ty)
        .and_then(|layout| layout.block(bytes))
        .expect("a whole block");
    let step = f64::from(f16_to_f32(block.d_bits()) * Trellis::K);
    let square = square_of(x);
    let n_levels = sums.len();
    for (b, symbols) in block.x().as_chunks().0.iter().enumerate() {
        let symbols = u64::from_le_bytes(*symbols);
        let parities = trellis_parities(symbols);
        let scale = step * f64::from(block.scale(b));
        for (i, &w) in x[32 * b..][..32].iter().enumerate() {
            let f = i / 8;
            let j = i % 8;
            let p = 8 * j + 2 * f;
            let lane = 8 * b + j;
            let label = (symbols >> p & 3 | (parities >> p & 3) << 2) as usize;
            let table = match n_levels {
                16 => 0,
                32 => block.upper()[lane % 32] >> (lane / 32 * 4 + f) & 1,
                _ => block.upper()[lane] >> (2 * f) & 3,
            };
            let sum = &mut sums[label | usize::from(table) << 4];
            sum.products += f64::from(w) * scale / square;
            sum.squares += scale * scale / square;
        }
    }
}
