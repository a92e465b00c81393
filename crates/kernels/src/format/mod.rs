//! Weight formats: one short, safe decoder each, generic over the instruction set.
//!
//! A decoder yields the format's own integer codes and sub-block scales and does no arithmetic on
//! them: nothing is requantized or rounded here. Where the fields lie is described once, in
//! `atta_formats::layout`.

pub(crate) mod float;
pub(crate) mod grid;
pub(crate) mod iq4_nl;
mod iq4_xs;
pub(crate) mod mxfp4;
mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
#[cfg(feature = "qsf")]
mod qsf;
pub(crate) mod tq1_0;
mod tq2_0;
pub(crate) mod trellis;

pub(crate) use float::{BF16, F16, F32};
pub(crate) use grid::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
pub(crate) use iq4_nl::IQ4_NL;
pub(crate) use iq4_xs::IQ4_XS;
pub(crate) use mxfp4::MXFP4;
pub(crate) use nvfp4::NVFP4;
pub(crate) use q1_0::Q1_0;
pub(crate) use q2_0::Q2_0;
pub(crate) use q2_k::Q2_K;
pub(crate) use q3_k::Q3_K;
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_1::Q4_1;
pub(crate) use q4_k::Q4_K;
pub(crate) use q5_0::Q5_0;
pub(crate) use q5_1::Q5_1;
pub(crate) use q5_k::Q5_K;
pub(crate) use q6_k::Q6_K;
pub(crate) use q8_0::Q8_0;
#[cfg(feature = "qsf")]
pub(crate) use qsf::{QSF2, QSF2S, QSF3, QSF4, QSFT};
pub(crate) use tq1_0::TQ1_0;
pub(crate) use tq2_0::TQ2_0;
pub(crate) use trellis::{T2, T3, T4};

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use crate::isa::Words;
use crate::isa::{Floats, Lanes, Row};
use crate::registry::Format;
use atta_formats::layout::half_power;

/// Scales of a block of 256 weights. Bytes of sub-blocks are packed into words, sub-block 0 lowest,
/// because decoders make eight of them at once; the f16 are widened many at a time where the CPU
/// can.
#[derive(Clone, Copy)]
pub(crate) struct BlockHeader {
    /// Scale of each sub-block, −128 to 127; zeros behind the last one.
    pub(crate) scale: [u64; 2],
    /// Minimum of each sub-block, 0 to 63; zeros behind the last one and in formats without
    /// minima.
    pub(crate) min: [u64; 2],
    /// f16.
    pub(crate) d: u16,
    /// f16.
    pub(crate) dmin: u16,
}

impl BlockHeader {
    /// Scale of sub-block `s`.
    #[inline(always)]
    pub(crate) fn scale_of(&self, s: usize) -> i16 {
        i16::from((self.scale[s / 8] >> (8 * (s % 8))) as i8)
    }
}

/// `byte` in all eight bytes.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// 16 bytes as two words.
#[inline(always)]
fn two_words(bytes: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    [both as u64, (both >> 64) as u64]
}

/// Each of 8 codes from 0 to 63 less 32.
#[inline(always)]
fn less_32(codes: u64) -> u64 {
    // The top bit of each byte is set before the subtraction so that nothing is borrowed from the
    // next.
    ((codes | each(0x80)) - each(32)) ^ each(0x80)
}

/// The two bytes at `at`: an f16 that stays packed, unlike those that the layout's accessors
/// return.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> u16 {
    // One load: two of a byte are left as they are where four rows are widened at once.
    u16::from_le_bytes(*block[at..].first_chunk().expect("two bytes"))
}

/// Where a decoder puts 256 weights of as many rows as a vector has lanes, lane = row.
pub(crate) trait PanelColumns<I: Lanes> {
    /// Codes 4·k to 4·k + 3 of each row, unsigned.
    fn codes(&mut self, k: usize, codes: I::W);
    /// Scales of sub-blocks 4·c to 4·c + 3.
    fn scales(&mut self, c: usize, scales: I::W);
    /// Their minima.
    fn minima(&mut self, c: usize, minima: I::W);
    /// `d·K` and `dmin`.
    fn factors(&mut self, d: I::L, dmin: I::L);
}

/// The 16 bytes from `at` on of each block.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
#[inline(always)]
fn column<'a, const N: usize>(blocks: &[&'a [u8; N]; 16], at: usize) -> [&'a [u8; 16]; 16] {
    // Not by `array::from_fn`, which is left as a call.
    let mut out = [&[0; 16]; 16];
    for (out, block) in out.iter_mut().zip(blocks) {
        *out = block[at..].first_chunk().expect("16 bytes of a block");
    }
    out
}

/// Blocks of 256 weights with integer scales per 16 or 32: `w = d·K·scale·(code − OFFSET) −
/// dmin·min`.
pub(crate) trait KQuant: 'static {
    /// Bytes of a block.
    type Block: AsRef<[u8]> + Copy + 'static;
    /// The index of the format.
    const FORMAT: Format;
    /// The offset subtracted from the unsigned codes, a power of two or 0. Codes are at most
    /// 127 if it is at most 64, and any byte if it is more; their products with a scale fit i16
    /// once the offset is subtracted.
    const OFFSET: i16;
    /// No code is larger.
    const LARGEST: i16;
    /// Sub-blocks with a scale of their own: 8 or 16.
    const GROUPS: usize;
    /// Whether the format has minima.
    const MINS: bool;
    /// A power of two, so that the product with an f16 is exact.
    const K: f32 = 1.0;
    /// Whether vectors multiply several activation rows at once with a panel of weight rows. In the
    /// program for x86-64 boards, which must stay small, only the formats of most files have that;
    /// the others take one activation row at a time, as in decoding.
    const HAS_PANEL: bool = !IS_SMALL_X86;

    /// Whether a row may end in a shorter block.
    const HAS_TAIL: bool = false;

    /// The blocks of a row of weights, without a shorter one at its end.
    fn blocks(row: &[u8]) -> &[Self::Block];
    /// The shorter block that ends a row, if one does, as a whole one: the weights behind it may be
    /// anything, because activations are zeros there.
    #[inline(always)]
    fn tail(_: &[u8]) -> Option<Self::Block> {
        None
    }
    fn head(block: &Self::Block) -> BlockHeader;
    /// Codes 32·g to 32·g + 31, unsigned; of a format with [`Self::signs`] their magnitudes, at
    /// most 62.
    fn codes<I: Row>(isa: I, block: &Self::Block, g: usize) -> I::V;
    /// [`Self::codes`] of a format with an offset of 128, less that: signed bytes.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn signed_codes<I: Row>(isa: I, block: &Self::Block, g: usize) -> I::V {
        isa.xor(Self::codes(isa, block, g), 0x80)
    }
    /// Signs, if the format stores them apart: bit i of word g is set where weight 32·g + i is
    /// negative. [`Self::OFFSET`] is [`CODE_BIAS`](crate::isa::CODE_BIAS) then.
    #[inline(always)]
    fn signs<I: Row>(_: I, _: &Self::Block) -> Option<[u32; 8]> {
        None
    }
    /// [`Self::codes`], biased, with [`Self::signs`].
    #[inline(always)]
    fn biased_codes<I: Row>(
        isa: I,
        block: &Self::Block,
        signs: Option<&[u32; 8]>,
        g: usize,
    ) -> I::V {
        let codes = Self::codes(isa, block, g);
        match signs {
            Some(signs) => isa.biased(codes, signs[g]),
            None => codes,
        }
    }
    /// The same and the head of a block of each row, transposed as they are; whether the format has
    /// a way to do that, which is worth while if whole words of fields become whole words of
    /// codes.
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(_: I, _: &[&Self::Block; 16], _: &mut impl PanelColumns<I>) -> bool {
        false
    }
}

/// Whether this is the program for boards with x86-64.
const IS_SMALL_X86: bool = cfg!(all(target_arch = "x86_64", not(feature = "avx512")));

/// The type of the scale of a block.
#[derive(Clone, Copy)]
pub(crate) enum ScaleKind {
    /// IEEE binary16.
    F16,
    /// The exponent `e` of [`half_power`].
    E8M0,
}

impl ScaleKind {
    /// The same number as an f32.
    #[inline(always)]
    pub(crate) fn widen(self, bits: u16) -> f32 {
        match self {
            Self::F16 => float::widen_f16(bits),
            Self::E8M0 => half_power(bits as u8),
        }
    }
}

/// The second factor of a group of 32 weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// Nothing: `w = d·(code − OFFSET)`.
    Nothing,
    /// A minimum: `w = d·(code − OFFSET) + m`.
    Minimum,
    /// The scale of its last 16 weights; the first one is that of its first 16.
    Scale,
}

/// Blocks of one or more groups of 32 weights, each with one or two scales of its own and perhaps a
/// minimum.
pub(crate) trait Quant32: 'static {
    /// Bytes of a block.
    type Block: AsRef<[u8]> + 'static;
    /// The index of the format.
    const FORMAT: Format;
    /// Groups of 32 weights in a block.
    const GROUPS: usize = 1;
    /// The offset subtracted from the unsigned codes. Codes are at most 127 if it is at most
    /// 64, and any byte if it is more.
    const OFFSET: i16;
    /// No code is larger.
    const LARGEST: i16;
    /// The type of the scale.
    const D: ScaleKind = ScaleKind::F16;
    /// A power of two that multiplies the scale.
    const K: f32 = 1.0;
    /// The second factor of a group.
    const SECOND: Second = Second::Nothing;
    /// As [`KQuant::HAS_PANEL`].
    const HAS_PANEL: bool = !IS_SMALL_X86;

    /// The blocks of a row of weights.
    fn blocks(row: &[u8]) -> &[Self::Block];
    /// The scale of group `g` of the block: widened 16 at a time where the CPU can.
    fn d(block: &Self::Block, g: usize) -> u16;
    /// Its minimum or second scale, f16.
    #[inline(always)]
    fn second(_: &Self::Block, _: usize) -> u16 {
        0
    }
    /// Its 32 codes, unsigned.
    fn codes<I: Row>(isa: I, block: &Self::Block, g: usize) -> I::V;
    /// As [`KQuant::signed_codes`].
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn signed_codes<I: Row>(isa: I, block: &Self::Block, g: usize) -> I::V {
        isa.xor(Self::codes(isa, block, g), 0x80)
    }
    /// Those of a block of each row, codes 4·k to 4·k + 3 in word k, transposed as they are; if the
    /// format has a way to do that.
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(_: I, _: &[&Self::Block; 16]) -> Option<[I::W; 8]> {
        None
    }

    /// Group `g` of a row: its block, and its number in the block.
    #[inline(always)]
    fn group(row: &[Self::Block], g: usize) -> (&Self::Block, usize) {
        (&row[g / Self::GROUPS], g % Self::GROUPS)
    }
}

/// Weights that are floats already.
pub(crate) trait FloatFormat: 'static {
    /// Bytes of a weight.
    type Weight: 'static;

    /// The weights of a row.
    fn weights(row: &[u8]) -> &[Self::Weight];
    fn widen(weight: &Self::Weight) -> f32;
    fn load<I: Floats>(isa: I, weights: &[Self::Weight; 16]) -> I::F;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;
    use crate::registry::formats;
    use crate::testing::Random;

    fn blocks<B>(blocks: fn(&[u8]) -> &[B]) -> Vec<u8> {
        let mut random = Random(31);
        let bytes: Vec<u8> = (0..500 * size_of::<B>())
            .map(|_| random.next() as u8)
            .collect();
        assert_eq!(blocks(&bytes).len(), 500);
        bytes
    }

    fn stored(v: <Scalar as Row>::V) -> [u8; 32] {
        let mut codes = [0; 32];
        Scalar.store(v, &mut codes);
        codes
    }

    fn check(format: Format, codes: impl Iterator<Item = [u8; 32]>, (offset, largest): (i16, i16)) {
        let found = codes.flatten().max().unwrap();
        assert!(
            i16::from(found) <= largest,
            "{format:?}: {found} of {largest}"
        );
        assert!(largest <= if offset > 64 { 255 } else { 127 }, "{format:?}");
    }

    fn k_quant<F: KQuant>() {
        let bytes = blocks(F::blocks);
        let codes = F::blocks(&bytes).iter().flat_map(|block| {
            let signs = F::signs(Scalar, block);
            (0..8).map(move |g| stored(F::biased_codes(Scalar, block, signs.as_ref(), g)))
        });
        check(F::FORMAT, codes, (F::OFFSET, F::LARGEST));
    }

    fn quant_32<F: Quant32>() {
        let bytes = blocks(F::blocks);
        check(
            F::FORMAT,
            F::blocks(&bytes)
                .iter()
                .flat_map(|block| (0..F::GROUPS).map(move |g| stored(F::codes(Scalar, block, g)))),
            (F::OFFSET, F::LARGEST),
        );
    }

    macro_rules! check_all {
        (
            float { $($float:ident;)* }
            quant_32 { $($quant:ident $q512:tt;)* }
            k_quant { $($k_quant:ident $k256:tt $k512:tt;)* }
        ) => {
            $(quant_32::<$quant>();)*
            $(k_quant::<$k_quant>();)*
        };
    }

    #[test]
    fn no_bytes_make_a_larger_code_than_the_format_says() {
        formats!(check_all);
    }
}
