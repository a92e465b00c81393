//! Random inputs for the tests of this crate.

use crate::Pool;
use atta_formats::TensorType;
use atta_formats::f16::f32_to_f16;
use std::num::NonZeroUsize;

/// Types with a kernel.
pub(crate) const TYPES: [TensorType; 11] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q4_0,
    TensorType::Q5_0,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
];

/// A seeded stream of numbers (xorshift64*, Vigna 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Between −1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() % 200_001) as f32 / 100_000.0 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// Weights `[d_out, d_in]`: random codes, scales around `scale`.
    pub(crate) fn weights(&mut self, ty: TensorType, d_out: usize, d_in: usize, scale: f32) -> Vec<u8> {
        match ty {
            TensorType::F32 => self.floats(d_out * d_in).iter().flat_map(|x| (x * scale).to_le_bytes()).collect(),
            TensorType::F16 => self.halves(d_out * d_in, |x| f32_to_f16(x * scale)),
            TensorType::BF16 => self.halves(d_out * d_in, |x| ((x * scale).to_bits() >> 16) as u16),
            _ => {
                let mut bytes: Vec<u8> = (0..d_out * ty.row_bytes(d_in).unwrap()).map(|_| self.next() as u8).collect();
                for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                    for at in scale_fields(ty) {
                        let d = scale * (1.5 + self.float()) * if self.next().is_multiple_of(4) { -1.0 } else { 1.0 };
                        set_scale(block, at, d);
                    }
                }
                bytes
            }
        }
    }

    fn halves(&mut self, n: usize, narrow: impl Fn(f32) -> u16) -> Vec<u8> {
        self.floats(n).into_iter().flat_map(|x| narrow(x).to_le_bytes()).collect()
    }
}

/// Bytes of `d` and, if there is one, `dmin` in a block.
pub(crate) fn scale_fields(ty: TensorType) -> Vec<usize> {
    match ty {
        TensorType::Q4_0 | TensorType::Q5_0 | TensorType::Q8_0 => vec![0],
        TensorType::Q2_K => vec![80, 82],
        TensorType::Q3_K => vec![108],
        TensorType::Q4_K | TensorType::Q5_K => vec![0, 2],
        TensorType::Q6_K => vec![208],
        _ => vec![],
    }
}

pub(crate) fn set_scale(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f32_to_f16(value).to_le_bytes());
}

pub(crate) fn pool(n_threads: usize) -> Pool {
    Pool::new(NonZeroUsize::new(n_threads).unwrap())
}

/// Bits, for comparisons that distinguish −0 and NaN.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Normalised mean square error: `Σ(got − want)² / Σ want²`.
pub(crate) fn nmse(got: &[f32], want: &[f64]) -> f64 {
    let error: f64 = got.iter().zip(want).map(|(&got, want)| (f64::from(got) - want).powi(2)).sum();
    error / want.iter().map(|want| want * want).sum::<f64>().max(f64::MIN_POSITIVE)
}
