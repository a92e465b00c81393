//! As `gemv.rs`, for registers of 256 bits: one activation row times four weight rows.
//!
//! ```text
//! for 4 weight rows at once:
//!     for each block b, in order:
//!         4 headers -> scales and minima (Q4_K, Q5_K), d
//!         for each row: prefetch, indices and signs (codebooks), dot product
//!         4 dot products -> one vector by a tree; f32 rule
//! ```
//! Formats without a kernel here go through `gemv.rs`. A program for boards, which must stay small,
//! is without all this.

pub(crate) mod codebooks;
pub(crate) mod k_quants;
pub(crate) mod trellis;

use super::x86_512::{four_rows, store};
use crate::algo::gemv;
use crate::algo::matmul::RowTile;
use crate::algo::unpack::NextTile;
use crate::format::{
    IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, KQuant, Q4_K, Q5_K, Q6_K, T2, T3, T4,
};
use crate::isa::Wide;
use crate::isa::avx2::Avx2;
use crate::isa::memory::load;
use crate::registry::{Format, formats};
use k_quants::{HasAvx2, Input};
use std::arch::x86_64::__m128;

pub(crate) use gemv::quant_32;

/// Up to how many activation rows are multiplied here, not as a panel: T types up to four at a
/// time, others one by one where making a panel takes longer (measured on Zen 4).
pub(crate) const fn few(format: Format) -> usize {
    match format {
        Format::IQ2_S | Format::TQ2_0 => 2,
        Format::IQ2_XS => 3,
        Format::IQ1_S => 6,
        Format::T2 | Format::T3 | Format::T4 => 8,
        Format::IQ1_M => 9,
        _ => 1,
    }
}

/// A format with a fused kernel.
trait FourRows: KQuant {
    /// A block of each of four rows, without the scale of the activations; `prefetch(i)` is called
    /// four times in between.
    fn four(isa: Avx2, blocks: [&Self::Block; 4], x: Input<'_>, prefetch: impl Fn(usize))
    -> __m128;
}

macro_rules! kernel {
    ($ty:ident codebook $isa:ident $blocks:ident $x:ident $prefetch:ident) => {
        $isa.codebook::<$ty, _>($blocks, $x, $prefetch)
    };
    ($ty:ident $kernel:ident $isa:ident $blocks:ident $x:ident $prefetch:ident) => {
        $isa.$kernel($blocks, $x, $prefetch)
    };
}

/// The kernel of a format, but for those that have a loop of their own.
macro_rules! impl_four_rows {
    ($k_quant:ident trellis) => {};
    ($k_quant:ident $kernel:ident) => {
        impl FourRows for $k_quant {
            #[inline(always)]
            fn four(
                isa: Avx2,
                blocks: [&Self::Block; 4],
                x: Input<'_>,
                prefetch: impl Fn(usize),
            ) -> __m128 {
                kernel!($k_quant $kernel isa blocks x prefetch)
            }
        }
    };
}

macro_rules! call {
    (trellis $ty:ident $isa:ident $row_tile:ident) => {
        trellis::k_quant::<$ty, _>($isa.avx2(), $row_tile)
    };
    ($kernel:ident $ty:ident $isa:ident $row_tile:ident) => {
        fours::<$ty>($isa.avx2(), $row_tile)
    };
}

macro_rules! fused {
    (
        float { $($float:ident;)* }
        quant_32 { $($quant:ident $q512:tt;)* }
        k_quant { $($k_quant:ident [$($kernel:ident)?] $k512:tt;)* }
    ) => {
        $($(impl_four_rows!($k_quant $kernel);)?)*

        /// Multiplies a row tile of a K-quant.
        #[inline(always)]
        pub(crate) fn k_quant<F: KQuant>(isa: impl Wide + HasAvx2, row_tile: RowTile<'_>) {
            match F::FORMAT {
                $($(Format::$k_quant => call!($kernel $k_quant isa row_tile),)?)*
                _ => gemv::k_quant::<F>(isa, row_tile),
            }
        }
    };
}
formats!(fused);

/// Multiplies a row tile, one activation row after the other.
#[inline(always)]
fn fours<F: FourRows>(isa: Avx2, mut row_tile: RowTile<'_>) {
    while !row_tile.rows.is_empty() {
        fours_of_row::<F>(isa, row_tile.take_rows(1));
    }
}

/// One activation row.
#[inline(always)]
fn fours_of_row<F: FourRows>(isa: Avx2, row_tile: RowTile<'_>) {
    let (x, d_out) = (row_tile.x.q8_256(), row_tile.w.d_out());
    let next = NextTile::new(&row_tile, d_out);
    for r in (0..d_out).step_by(4) {
        let places = [r, r + 1, r + 2, r + 3];
        let [first, second, third, fourth] = four_rows(row_tile.w, F::blocks, places);
        let next = next.behind(r * row_tile.w.row(0).len());
        let mut out = isa.no_four();
        for (b, (((first, second), third), fourth)) in
            first.iter().zip(second).zip(third).zip(fourth).enumerate()
        {
            let at = x.at(b, row_tile.rows.start);
            let input = Input {
                codes: &x.codes[at].0,
                sums: &x.sums[at],
            };
            let v = F::four(isa, [first, second, third, fourth], input, |i| {
                next.block(isa, 4 * b + i, size_of::<F::Block>())
            });
            out = isa.add_four(out, x.scales[at], v);
        }
        store(load(&out), places, &mut row_tile.acc[..d_out]);
    }
}
