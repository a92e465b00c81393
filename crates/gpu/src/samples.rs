//! Inputs of the self-test and of trials: random numbers, and weights of every format with
//! sensible scales.

use crate::WeightFormat;
use atta_formats::TensorType;
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
            WeightFormat::BF16 => {
                let halves = self.floats(n).into_iter();
                let halves = halves.map(|x| (x.to_bits() >> 16) as u16);
                halves.flat_map(u16::to_le_bytes).collect()
            }
            _ => {
                let row_bytes = ty.row_bytes(d_in).expect("samples have whole rows");
                let bytes = (0..d_out * row_bytes).map(|_| self.next() as u8);
                let mut bytes: Vec<u8> = bytes.collect();
                for row in bytes.chunks_exact_mut(row_bytes) {
                    let blocks = row.chunks_mut(ty.block_bytes());
                    blocks.for_each(|block| self.set_scales(ty, block));
                }
                bytes
            }
        }
    }

    /// Writes sensible scales into a block.
    fn set_scales(&mut self, ty: TensorType, block: &mut [u8]) {
        match ty {
            TensorType::MXFP4 => block[0] = 115 + block[0] % 12,
            TensorType::NVFP4 => block[..4].iter_mut().for_each(|scale| *scale %= 0x70),
            // The top nibbles of four words are an f16.
            TensorType::IQ1_M => block[55] = 0x20 | block[55] & 15,
            _ => {
                for &at in ty.f16_factors() {
                    let scale = f32_to_f16(0.01 * (1.5 + self.float()));
                    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
}
