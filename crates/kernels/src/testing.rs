//! Random inputs for the tests of this crate.

use crate::Pool;
use atta_formats::TensorType;
use atta_formats::f16::{f16_to_f32, f32_to_f16};
use atta_formats::layout;
use std::cell::RefCell;
use std::num::NonZeroUsize;

thread_local! {
    /// Kernels of K-quants that ran on this thread, in order; a name only once in a row.
    static RAN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Notes that a kernel multiplied a row tile.
pub(crate) fn ran(kernel: &'static str) {
    RAN.with_borrow_mut(|ran| {
        if ran.last() != Some(&kernel) {
            ran.push(kernel);
        }
    });
}

/// The kernels that ran on this thread since the last call.
pub(crate) fn kernels_that_ran() -> Vec<&'static str> {
    RAN.take()
}

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
    pub(crate) fn weights(
        &mut self,
        ty: TensorType,
        d_out: usize,
        d_in: usize,
        scale: f32,
    ) -> Vec<u8> {
        match ty {
            TensorType::F32 => self
                .floats(d_out * d_in)
                .iter()
                .flat_map(|x| (x * scale).to_le_bytes())
                .collect(),
            TensorType::F16 => self.halves(d_out * d_in, |x| f32_to_f16(x * scale)),
            TensorType::BF16 => self.halves(d_out * d_in, |x| ((x * scale).to_bits() >> 16) as u16),
            _ => {
                let row_bytes = ty.row_bytes(d_in).unwrap();
                let mut bytes: Vec<u8> =
                    (0..d_out * row_bytes).map(|_| self.next() as u8).collect();
                for row in bytes.chunks_mut(row_bytes) {
                    for block in row.chunks_mut(ty.block_bytes()) {
                        set_scales(ty, block, [(); 2].map(|()| self.scale(scale)));
                    }
                }
                bytes
            }
        }
    }

    fn scale(&mut self, scale: f32) -> f32 {
        scale
            * (1.5 + self.float())
            * if self.next().is_multiple_of(4) {
                -1.0
            } else {
                1.0
            }
    }

    fn halves(&mut self, n: usize, narrow: impl Fn(f32) -> u16) -> Vec<u8> {
        self.floats(n)
            .into_iter()
            .flat_map(|x| narrow(x).to_le_bytes())
            .collect()
    }
}

/// Whether blocks have minima, which the second of the scales multiplies.
pub(crate) fn has_mins(ty: TensorType) -> bool {
    ty.f16_factors().len() == 2
}

/// The power of two that makes weights of the integers of a block.
fn k(ty: TensorType) -> f32 {
    use TensorType::*;
    match ty {
        IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S => 0.125,
        IQ3_XXS => 0.25,
        QSF2S => 0.5,
        T2 | T3 | T4 => 1.0 / 32.0,
        _ => 1.0,
    }
}

/// What the integers of a block are multiplied with.
pub(crate) struct Scales {
    /// `d·K`; of as many parts of the block as there are.
    pub(crate) d: Vec<f32>,
    /// `dmin` or `m`, if there is one.
    pub(crate) second: f32,
}

/// The scales of a block.
pub(crate) fn scales(ty: TensorType, block: &[u8]) -> Scales {
    let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let half = |i: usize| {
        ty.f16_factors()
            .get(i)
            .map_or(0.0, |&at| f16_to_f32(word(at)))
    };
    let d = match ty {
        TensorType::MXFP4 => 2f64.powi(i32::from(block[0]) - 128) as f32,
        TensorType::IQ1_M => f16_to_f32((0..4).map(|i| word(48 + 2 * i) >> 12 << (4 * i)).sum()),
        _ => half(0),
    };
    let d = match ty {
        TensorType::NVFP4 => (0..4).map(|s| f16_to_f32(nvfp4_scale(block, s))).collect(),
        _ => vec![d * k(ty)],
    };
    Scales { d, second: half(1) }
}

/// The scale of sub-block `s` of a block of NVFP4.
fn nvfp4_scale(block: &[u8], s: usize) -> u16 {
    layout::NVFP4(block.try_into().expect("a block")).d_bits(s)
}

/// Writes what [`scales`] reads, as near to it as the format can.
pub(crate) fn set_scales(ty: TensorType, block: &mut [u8], [d, second]: [f32; 2]) {
    let d = (d / k(ty)).clamp(-6e4, 6e4);
    match ty {
        TensorType::MXFP4 => block[0] = (d.abs().log2().floor() + 128.0) as u8,
        TensorType::IQ1_M => {
            for i in 0..4 {
                let nibble = f32_to_f16(d) >> (4 * i) & 15;
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | (nibble as u8) << 4;
            }
        }
        TensorType::NVFP4 => {
            let scale = |x: u8| f16_to_f32(nvfp4_scale(&[x; 36], 0));
            let error = |x: &u8| (scale(*x) - d.abs()).abs();
            let nearest = (1..=0x7e).min_by(|x, y| error(x).total_cmp(&error(y)));
            block[..4].fill(nearest.expect("a scale"));
        }
        _ => {
            for (&at, value) in ty.f16_factors().iter().zip([d, second]) {
                block[at..at + 2].copy_from_slice(&f32_to_f16(value).to_le_bytes());
            }
        }
    }
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
    let error: f64 = got
        .iter()
        .zip(want)
        .map(|(&got, want)| (f64::from(got) - want).powi(2))
        .sum();
    error
        / want
            .iter()
            .map(|want| want * want)
            .sum::<f64>()
            .max(f64::MIN_POSITIVE)
}
