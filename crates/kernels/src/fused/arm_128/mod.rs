//! As `gemv.rs`, for the 128-bit registers of ARM: one activation row or a few times sixteen weight
//! rows.
//!
//! `gemv.rs` keeps codes in registers as well; a kernel of its own pays for formats whose codes
//! take longer to make than to multiply, T2 to T4.

pub(crate) mod trellis;

use crate::algo::gemv;
use crate::algo::matmul::RowTile;
use crate::format::{KQuant, T2, T3, T4};
use crate::isa::neon::{Dot, Neon};
use crate::registry::Format;

pub(crate) use gemv::quant_32;

/// Up to how many activation rows are multiplied here, not as a panel.
pub(crate) const fn few(format: Format) -> usize {
    match format {
        Format::T2 | Format::T3 | Format::T4 => trellis::AT_ONCE,
        _ => 1,
    }
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Neon<impl Dot>, row_tile: RowTile<'_>) {
    match F::FORMAT {
        Format::T2 => trellis::k_quant::<T2, _, _>(isa, row_tile),
        Format::T3 => trellis::k_quant::<T3, _, _>(isa, row_tile),
        Format::T4 => trellis::k_quant::<T4, _, _>(isa, row_tile),
        _ => gemv::k_quant::<F>(isa, row_tile),
    }
}
