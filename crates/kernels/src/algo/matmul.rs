//! Which algorithm multiplies a row tile of weight rows, for each instruction set.
//!
//! | | one activation row, or as many as `few` says | several |
//! |---|---|---|
//! | plain | `gemm.rs`: decode to i16, one flat dot product | the same, decoded once for 16 rows |
//! | vectors | `gemv.rs`: codes never leave the registers; ARM: `fused/arm_128` for most; 256-bit ones of x86: `fused/x86_256`; 512-bit ones: `fused/x86_512` | `panel.rs`: transposed once, lane = weight row |
//! | vectors of RISC-V | `fused/riscv_v` | the same: `panel.rs` there, from 4 rows on |
//! | NEON of 32-bit ARM | as plain; some formats: `fused/armv7` | the same, for 16 rows |
//! | matrix tiles | as vectors | `tile.rs`: as `panel.rs`, from 32 rows on |
//! | float weights | `float.rs`: lanes along the row; 512-bit vectors: four rows of `fused/x86_512` | the same, in register tiles; 512-bit vectors, from 16 rows on: `float_many.rs` |

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use super::float_many;
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
use super::gemv;
#[cfg(all(target_arch = "x86_64", not(feature = "avx512")))]
use super::gemv as x86_256;
use super::{float, gemm, measure, panel, unpack};
use crate::Matrix;
use crate::activations::Activations;
use crate::format::{FloatFormat, KQuant, Quant32};
#[cfg(target_arch = "aarch64")]
use crate::fused::arm_128;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::fused::{x86_256, x86_512};
use crate::isa::scalar::Scalar;
use crate::isa::{Floats, Row};
#[cfg(all(target_arch = "arm", target_os = "linux"))]
use crate::{fused::armv7, isa::armv7::Armv7};
use std::ops::Range;

/// A row tile: `acc[t][r] = w[r] · x[t]` for all rows r of `w` and the rows t of `rows`.
pub(crate) struct RowTile<'a> {
    /// The weight rows of the row tile.
    pub(crate) w: Matrix<'a>,
    pub(crate) x: &'a Activations,
    /// Activation rows.
    pub(crate) rows: Range<usize>,
    /// How many row tiles further on the thread continues; 0 if it does not. Nothing
    /// but speed depends on it.
    pub(crate) prefetch_distance: usize,
    /// `[rows.len(), width]`, where `width` is the row tile width of the instruction set, at least
    /// the rows of `w`. Zeros at first. Columns behind those mean nothing.
    pub(crate) acc: &'a mut [f32],
    pub(crate) width: usize,
}

impl<'a> RowTile<'a> {
    /// Takes off the first `n` activation rows, or all if there are fewer; the last part
    /// prefetches.
    #[inline(always)]
    pub(crate) fn take_rows(&mut self, n: usize) -> RowTile<'a> {
        let first = self.rows.start;
        let n = n.min(self.rows.len());
        let (acc, rest) = std::mem::take(&mut self.acc).split_at_mut(n * self.width);
        (self.acc, self.rows.start) = (rest, first + n);
        RowTile {
            rows: first..first + n,
            prefetch_distance: if self.rows.is_empty() {
                self.prefetch_distance
            } else {
                0
            },
            acc,
            ..*self
        }
    }
}

/// The algorithms of an instruction set.
pub(crate) trait MatMul: Row + Floats {
    fn k_quant<F: KQuant>(self, row_tile: RowTile<'_>);
    fn quant_32<F: Quant32>(self, row_tile: RowTile<'_>);
    fn float<F: FloatFormat>(self, row_tile: RowTile<'_>);
    /// See [`measure`].
    fn dots(self, rounds: usize) -> u64;
}

impl MatMul for Scalar {
    #[inline(always)]
    fn k_quant<F: KQuant>(self, row_tile: RowTile<'_>) {
        gemm::k_quant::<_, F>(self, row_tile)
    }

    #[inline(always)]
    fn quant_32<F: Quant32>(self, row_tile: RowTile<'_>) {
        gemm::quant_32::<_, F>(self, row_tile)
    }

    #[inline(always)]
    fn float<F: FloatFormat>(self, row_tile: RowTile<'_>) {
        float::float::<F, 1, 2>(self, row_tile)
    }

    #[inline(always)]
    fn dots(self, rounds: usize) -> u64 {
        measure::dots_of_arrays(self, rounds)
    }
}

#[cfg(all(target_arch = "arm", target_os = "linux"))]
impl MatMul for Armv7 {
    #[inline(always)]
    fn k_quant<F: KQuant>(self, row_tile: RowTile<'_>) {
        armv7::k_quant::<F>(self, row_tile)
    }

    #[inline(always)]
    fn quant_32<F: Quant32>(self, row_tile: RowTile<'_>) {
        armv7::quant_32::<F>(self, row_tile)
    }

    #[inline(always)]
    fn float<F: FloatFormat>(self, row_tile: RowTile<'_>) {
        float::float::<F, 1, 2>(self, row_tile)
    }

    #[inline(always)]
    fn dots(self, rounds: usize) -> u64 {
        self.multiply_registers(rounds);
        64 * rounds as u64
    }
}

/// The algorithms for vectors, with that for one activation row or a few, the register tile of the
/// panel, and the algorithm and tile of float weights: rows (of a vector each), tokens.
macro_rules! vectors {
    ($isa:ty, $decode:ident, [$r:literal, $t:literal], $float:ident [$float_r:literal, $float_t:literal]) => {
        impl MatMul for $isa {
            #[inline(always)]
            fn k_quant<F: KQuant>(self, row_tile: RowTile<'_>) {
                if !F::HAS_PANEL || row_tile.rows.len() <= $decode::few(F::FORMAT) {
                    $decode::k_quant::<F>(self, row_tile)
                } else {
                    panel::k_quant::<_, unpack::PanelUnpack, F, $r, $t>(self, row_tile)
                }
            }

            #[inline(always)]
            fn quant_32<F: Quant32>(self, row_tile: RowTile<'_>) {
                if !F::HAS_PANEL || row_tile.rows.len() <= $decode::few(F::FORMAT) {
                    $decode::quant_32::<F>(self, row_tile)
                } else {
                    panel::quant_32::<_, unpack::PanelUnpack, F, $r, $t>(self, row_tile)
                }
            }

            #[inline(always)]
            fn float<F: FloatFormat>(self, row_tile: RowTile<'_>) {
                $float::float::<F, $float_r, $float_t>(self, row_tile)
            }

            #[inline(always)]
            fn dots(self, rounds: usize) -> u64 {
                measure::dots_of_lanes(self, rounds)
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
vectors!(crate::isa::avx512::Avx512, x86_512, [4, 3], float_many[8, 3]);
#[cfg(target_arch = "x86_64")]
vectors!(crate::isa::avx2::AvxVnni, x86_256, [2, 3], float[2, 3]);
#[cfg(target_arch = "x86_64")]
vectors!(crate::isa::avx2::Avx2, x86_256, [2, 4], float[2, 3]);
#[cfg(target_arch = "aarch64")]
vectors!(crate::isa::neon::Neon<crate::isa::i8mm::UsDot>, arm_128, [4, 4], float[2, 2]);
#[cfg(target_arch = "aarch64")]
vectors!(crate::isa::neon::Neon<crate::isa::dotprod::SDot>, arm_128, [4, 4], float[2, 2]);
#[cfg(target_arch = "aarch64")]
vectors!(crate::isa::neon::Neon<crate::isa::mull::Mull>, arm_128, [4, 2], float[2, 2]);
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
vectors!(crate::isa::wasm::Simd128, gemv, [4, 2], float[1, 2]);
