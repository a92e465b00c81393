//! As `gemv.rs`, for the 128-bit registers of ARM: one activation row or a few times a row tile.
//!
//! It refuses to know how bytes are multiplied ([`Dot`]). The one idea: four weight rows in turn,
//! written out. Processors of boards execute in order, and their vector instructions take several
//! cycles, so that cycles are lost where a product waits for the one before it; and loops over rows
//! are left rolled. Formats with signs of their own or other sub-blocks take `gemv.rs`.

mod blocks_32;
mod codes;
mod k_quants;
mod trellis;

#[cfg(test)]
mod tests;

use crate::algo::gemv;
use crate::algo::matmul::RowTile;
use crate::format::{
    IQ4_NL, IQ4_XS, KQuant, Q2_K, Q3_K, Q4_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, Quant32, T2, T3, T4,
    TQ1_0, TQ2_0,
};
use crate::isa::memory::store;
use crate::isa::neon::{Dot, Neon, proven};
use crate::registry::Format;
use std::arch::aarch64::*;

/// Activation rows at once; in a program for boards, which must stay small, one.
const AT_ONCE: usize = if cfg!(feature = "avx512") { 4 } else { 1 };

/// Up to how many activation rows are multiplied here, not as a panel.
pub(crate) const fn few(format: Format) -> usize {
    use Format::*;
    match format {
        Q4_0 | Q5_0 | Q8_0 | IQ4_NL => AT_ONCE,
        Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ4_XS | TQ1_0 | TQ2_0 | T2 | T3 | T4 => AT_ONCE,
        _ => 1,
    }
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Neon<impl Dot>, row_tile: RowTile<'_>) {
    match F::FORMAT {
        Format::Q2_K => k_quants::k_quant::<Q2_K, _>(isa, row_tile),
        Format::Q3_K => k_quants::k_quant::<Q3_K, _>(isa, row_tile),
        Format::Q4_K => k_quants::k_quant::<Q4_K, _>(isa, row_tile),
        Format::Q5_K => k_quants::k_quant::<Q5_K, _>(isa, row_tile),
        Format::Q6_K => k_quants::k_quant::<Q6_K, _>(isa, row_tile),
        Format::IQ4_XS => k_quants::k_quant::<IQ4_XS, _>(isa, row_tile),
        Format::TQ1_0 => k_quants::k_quant::<TQ1_0, _>(isa, row_tile),
        Format::TQ2_0 => k_quants::k_quant::<TQ2_0, _>(isa, row_tile),
        Format::T2 => trellis::k_quant::<T2, _, _>(isa, row_tile),
        Format::T3 => trellis::k_quant::<T3, _, _>(isa, row_tile),
        Format::T4 => trellis::k_quant::<T4, _, _>(isa, row_tile),
        _ => gemv::k_quant::<F>(isa, row_tile),
    }
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Neon<impl Dot>, row_tile: RowTile<'_>) {
    match F::FORMAT {
        Format::Q4_0 => blocks_32::quant_32::<Q4_0, _>(isa, row_tile),
        Format::Q5_0 => blocks_32::quant_32::<Q5_0, _>(isa, row_tile),
        Format::Q8_0 => blocks_32::quant_32::<Q8_0, _>(isa, row_tile),
        Format::IQ4_NL => blocks_32::quant_32::<IQ4_NL, _>(isa, row_tile),
        _ => gemv::quant_32::<F>(isa, row_tile),
    }
}

/// Multiplies a row tile by `$rows`, up to [`AT_ONCE`] activation rows at a time: codes are
/// unpacked once for all of them. Three are four, the last of them twice.
macro_rules! by_few_rows {
    ($isa:expr, $row_tile:expr, $rows:ident[$($of:ident),*]) => {{
        let mut row_tile = $row_tile;
        while !row_tile.rows.is_empty() {
            let few = row_tile.take_rows(super::AT_ONCE);
            match few.rows.len() {
                #[cfg(feature = "avx512")]
                2 => $rows::<$($of,)* 2>($isa, few),
                #[cfg(feature = "avx512")]
                3.. => $rows::<$($of,)* 4>($isa, few),
                _ => $rows::<$($of,)* 1>($isa, few),
            }
        }
    }};
}
use by_few_rows;

/// Writes the columns from `r` on of the activation rows that there are.
#[inline(always)]
fn store_columns<const T: usize>(row_tile: &mut RowTile<'_>, r: usize, out: [float32x4_t; T]) {
    let width = row_tile.width;
    for (out, acc) in out.into_iter().zip(row_tile.acc.chunks_exact_mut(width)) {
        store(out, &mut acc.as_chunks_mut::<4>().0[r / 4]);
    }
}

impl<D: Dot> Neon<D> {
    proven! {
        fn no_sum(self) -> int32x4_t { vdupq_n_s32(0) }
        fn no_floats(self) -> float32x4_t { vdupq_n_f32(0.0) }
        /// The f16 of four rows, put together in a general register: loads of lanes wait for each
        /// other.
        fn four_halves(self, bits: [u16; 4]) -> float32x4_t {
            let [a, b, c, d] = bits.map(u64::from);
            vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(a | b << 16 | c << 32 | d << 48)))
        }
        /// The totals of four sums.
        fn four_sums(self, sums: [int32x4_t; 4]) -> int32x4_t {
            vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]))
        }
        fn times_k(self, d: float32x4_t, k: f32) -> float32x4_t {
            if k == 1.0 { d } else { vmulq_n_f32(d, k) }
        }
        fn scaled(self, d: float32x4_t, sums: int32x4_t) -> float32x4_t {
            vmulq_f32(d, vcvtq_f32_s32(sums))
        }
        fn minus(self, x: float32x4_t, y: float32x4_t) -> float32x4_t { vsubq_f32(x, y) }
        /// `out + dx·v`.
        fn add_times(self, out: float32x4_t, v: float32x4_t, dx: f32) -> float32x4_t {
            vaddq_f32(out, vmulq_n_f32(v, dx))
        }
    }
}
