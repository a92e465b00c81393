//! As `gemv.rs`, for registers of 256 bits: one activation row times four weight rows.
//!
//! ```text
//! for 4 weight rows at once:
//!     for each block b, in order:
//!         4 headers -> scales and minima (Q4_K, Q5_K), d; for each row: prefetch, what is its own (codebooks), dot product
//!         4 dot products -> one vector by a tree; f32 rule
//! ```
//! Formats without a kernel here go through `gemv.rs`. A program for boards, which must stay small,
//! is without all this.

pub(crate) mod codebooks;
pub(crate) mod k_quants;

use super::x86_512::{four_rows, store};
use crate::algo::gemv;
use crate::algo::matmul::Strip;
use crate::algo::unpack::Next;
use crate::format::grid::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS};
use crate::format::{Format, KQuant, q4_k::Q4K, q5_k::Q5K, q6_k::Q6K};
use crate::isa::Wide;
use crate::isa::avx2::Avx2;
use k_quants::{HasAvx2, Input};
use std::arch::x86_64::__m128;

pub(crate) use gemv::quant_32;

/// A format that has a kernel here.
trait Four<const B: usize>: KQuant<Block = [u8; B]> {
    /// A block of each of four rows, without the scale of the activations; `ask(i)` is called four
    /// times in between.
    fn four(isa: Avx2, blocks: [&[u8; B]; 4], x: Input<'_>, ask: impl Fn(usize)) -> __m128;
}

macro_rules! four {
    ($($format:ident, $b:literal, $kernel:ident $(::<$of:ty>)?;)*) => {
        $(impl Four<$b> for $format {
            #[inline(always)]
            fn four(isa: Avx2, blocks: [&[u8; $b]; 4], x: Input<'_>, ask: impl Fn(usize)) -> __m128 {
                isa.$kernel $(::<$of, $b>)? (blocks, x, ask)
            }
        })*

        /// Strip of a K-quant.
        #[inline(always)]
        pub(crate) fn k_quant<F: KQuant>(isa: impl Wide + HasAvx2, strip: Strip<'_>) {
            match F::FORMAT {
                $(Format::$format => fours::<$format, _>(isa.avx2(), strip),)*
                _ => gemv::k_quant::<F>(isa, strip),
            }
        }
    };
}
four! {
    Q4K, 144, nibbles_k;
    Q5K, 176, nibbles_k;
    Q6K, 210, q6_k;
    IQ1S, 50, codebook::<IQ1S>;
    IQ1M, 56, codebook::<IQ1M>;
    IQ2XXS, 66, codebook::<IQ2XXS>;
    IQ2XS, 74, codebook::<IQ2XS>;
    IQ2S, 82, codebook::<IQ2S>;
    IQ3XXS, 98, codebook::<IQ3XXS>;
    IQ3S, 110, codebook::<IQ3S>;
}

#[inline(always)]
fn fours<F: Four<B>, const B: usize>(isa: Avx2, strip: Strip<'_>) {
    let (x, d_out) = (strip.x.q8_256(), strip.w.d_out());
    let next = Next::new(&strip, d_out);
    for r in (0..d_out).step_by(4) {
        let places = [r, r + 1, r + 2, r + 3];
        let [first, second, third, fourth] = four_rows(strip.w, F::blocks, places);
        let next = next.behind(r * strip.w.row(0).len());
        let mut out = isa.no_four();
        for (b, (((first, second), third), fourth)) in
            first.iter().zip(second).zip(third).zip(fourth).enumerate()
        {
            let at = x.at(b, strip.rows.start);
            let input = Input {
                codes: &x.codes[at].0,
                sums: &x.sums[at],
            };
            let v = F::four(isa, [first, second, third, fourth], input, |i| {
                next.block(isa, 4 * b + i, B)
            });
            out = isa.add_four(out, x.scales[at], v);
        }
        store(isa.floats_of(out), places, &mut strip.acc[..d_out]);
    }
}
