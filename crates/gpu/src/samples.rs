//! Inputs of the self-test: random numbers, and weights of every format with sensible scales.

use crate::WeightFormat;
use atta_formats::f16::f32_to_f16;

/// A seeded stream of numbers (xorshift64*, Vigna 2014).
pub(crate) struct Samples(pub(crate) u64);

impl Samples {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Between −1 and 1.
    fn float(&mut self) -> f32 {
        (self.next() % 200_001) as f32 / 100_000.0 - 1.0
    }

    /// Between −1 and 1.
    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    pub(crate) fn words(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.next() as u32).collect()
    }

    /// A matrix `[d_out, d_in]` in GGUF's layout: random codes, scales around 0.01.
    pub(crate) fn matrix(&mut self, format: WeightFormat, d_out: usize, d_in: usize) -> Vec<u8> {
        let ty = format.tensor_type();
        let n = d_out * d_in;
        match format {
            WeightFormat::F32 => self
                .floats(n)
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect(),
            WeightFormat::F16 => {
                let halves = self.floats(n).into_iter().map(f32_to_f16);
                halves.flat_map(u16::to_le_bytes).collect()
            }
            _ => {
                let n_blocks = n / ty.block_len();
                let mut bytes: Vec<u8> = (0..n_blocks * ty.block_bytes())
                    .map(|_| self.next() as u8)
                    .collect();
                for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                    for &at in scales_at(format) {
                        let scale = f32_to_f16(0.01 * (1.5 + self.float()));
                        block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                    }
                }
                bytes
            }
        }
    }
}

/// Where the f16 of a block are.
fn scales_at(format: WeightFormat) -> &'static [usize] {
    match format {
        WeightFormat::Q4_K => &[0, 2],
        WeightFormat::Q6_K => &[208],
        WeightFormat::Q8_0 | WeightFormat::Q4_0 => &[0],
        WeightFormat::F16 | WeightFormat::F32 => &[],
    }
}
